"""How much memory there is, and giving it back to the system."""

import ctypes
import os
import sys
from functools import cache
from pathlib import Path
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


def memory_bytes() -> tuple[int | None, int | None]:
    """The computer's memory, and how much of it is free; None where it does not say."""
    if sys.platform == "win32":
        return _windows_memory()
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        kib = {name: int(rest.split()[0]) for name, _, rest in _split(lines)}
        return 1024 * kib["MemTotal"], 1024 * kib["MemAvailable"]
    except (OSError, KeyError, ValueError):
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), None
    except (OSError, ValueError, AttributeError):
        return None, None


def _split(lines: list[str]) -> list[tuple[str, str, str]]:
    return [line.partition(":") for line in lines if ":" in line]


def _windows_memory() -> tuple[int | None, int | None]:
    class Status(ctypes.Structure):
        _fields_ = (
            ("length", ctypes.c_ulong),
            ("load", ctypes.c_ulong),
            *(
                (name, ctypes.c_ulonglong)
                for name in (
                    "total", "free", "total_page", "free_page", "total_virtual",
                    "free_virtual", "free_extended",
                )
            ),
        )  # fmt: skip

    status = Status(length=ctypes.sizeof(Status))
    kernel = ctypes.windll.kernel32  # type: ignore[attr-defined]
    if not kernel.GlobalMemoryStatusEx(ctypes.byref(status)):
        return None, None
    return status.total, status.free
