"""The sub-commands of ``spt``, one a module."""
