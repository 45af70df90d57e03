"""Noticing that the process which started this one is gone."""

import os
import sys
import time
from collections.abc import Callable
from threading import Thread

_LOOK_SECONDS = 1.0
_SYNCHRONIZE = 0x00100000
_FOREVER = 0xFFFFFFFF


def watch_parent(pid: int, when_gone: Callable[[], None]) -> Thread:
    """Call ``when_gone`` once, from a thread of its own, when the process has ended.

    The end of the input says the same, but not where some other process has inherited
    the pipe.
    """
    wait = _wait_windows if sys.platform == "win32" else _wait_posix

    def watch() -> None:
        wait(pid)
        when_gone()

    thread = Thread(target=watch, name="parent watch", daemon=True)
    thread.start()
    return thread


def _wait_posix(pid: int) -> None:
    is_child = os.getppid() == pid
    while os.getppid() == pid if is_child else _is_alive(pid):
        time.sleep(_LOOK_SECONDS)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _wait_windows(pid: int) -> None:
    # By its handle: on Windows the direct parent may be a launcher of the environment.
    import ctypes

    kernel = ctypes.windll.kernel32  # type: ignore[attr-defined]
    kernel.OpenProcess.restype = ctypes.c_void_p
    kernel.WaitForSingleObject.argtypes = (ctypes.c_void_p, ctypes.c_uint32)
    handle = kernel.OpenProcess(_SYNCHRONIZE, False, pid)
    if handle:
        kernel.WaitForSingleObject(handle, _FOREVER)
