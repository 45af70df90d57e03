"""``python -m spt_core`` is the ``spt`` command (torchrun starts it this way)."""

import sys

from spt_core.cli import main

if __name__ == "__main__":
    sys.exit(main())
