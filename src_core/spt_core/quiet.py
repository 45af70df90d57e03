"""What libraries say of a damaged file: we say it in our own words."""

import logging


def quiet_readers() -> None:
    """Keep what reads slides from writing to the screen, in a process of our own."""
    for reader in ("tifffile", "pydicom"):
        logging.getLogger(reader).setLevel(logging.CRITICAL)
