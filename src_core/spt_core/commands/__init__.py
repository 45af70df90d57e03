"""The sub-commands of ``spt``, one per module."""
