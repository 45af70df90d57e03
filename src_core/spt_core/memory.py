"""Giving memory back to the system."""

import ctypes
import sys
from functools import cache
from typing import Any


def give_back() -> None:
    """Return what was freed to the system, where the C library keeps it (glibc).

    It keeps freed memory per thread, so what one thread used for a large image would be
    missing for all others for the rest of a run.
    """
    trim = _trim()
    if trim is not None:
        trim(0)


@cache
def _trim() -> Any:
    if not sys.platform.startswith("linux"):
        return None
    try:
        return ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):  # another C library
        return None
