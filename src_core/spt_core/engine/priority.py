"""Taking only the processor time that nobody else wants."""

import os
import sys

_BELOW_NORMAL = 0x4000  # Windows: BELOW_NORMAL_PRIORITY_CLASS
_NICE = 10


def lower_priority() -> str:
    """Lower this process's priority; threads started later inherit it.

    Returns
    -------
    What was done: ``idle``, ``below normal``, ``nice`` or ``unchanged``.
    """
    if sys.platform == "win32":
        return _below_normal()
    if hasattr(os, "SCHED_IDLE"):
        try:
            for thread in _threads():
                os.sched_setscheduler(thread, os.SCHED_IDLE, os.sched_param(0))
            return "idle"
        except OSError:  # some containers forbid it
            pass
    try:
        os.nice(_NICE)
    except OSError:
        return "unchanged"
    return "nice"


def sleep_while_waiting() -> None:
    """Let torch's threads sleep, not spin, while they wait for one another.

    To be called before torch is loaded. Whoever shares the processor with a window
    often waits for a thread that is not running: spinning then takes the time that the
    other thread needs, and small operations become ten times slower.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def cores() -> int:
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _threads() -> list[int]:
    """All threads that run already: on Linux each has a priority of its own."""
    try:
        return [int(name) for name in os.listdir("/proc/self/task")]
    except OSError:
        return [0]


def _below_normal() -> str:
    import ctypes

    kernel = ctypes.windll.kernel32  # type: ignore[attr-defined]
    kernel.GetCurrentProcess.restype = ctypes.c_void_p
    kernel.SetPriorityClass.argtypes = (ctypes.c_void_p, ctypes.c_uint32)
    done = kernel.SetPriorityClass(kernel.GetCurrentProcess(), _BELOW_NORMAL)
    return "below normal" if done else "unchanged"
