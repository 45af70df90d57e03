"""Letting the window go first."""

import os
import sys

_BELOW_NORMAL = 0x4000  # Windows: BELOW_NORMAL_PRIORITY_CLASS
# Beside a window that draws in software on two cores: the lower, the later come the
# window's ticks; from 5 on the work may get less than 0.6 of its pace alone
# (benchmarks/dock_heartbeat.py).
_NICE = 4


def lower_priority() -> str:
    """Lower this process's priority; threads started later inherit it.

    Returns
    -------
    What was done: ``below normal``, ``nice`` or ``unchanged``.
    """
    if sys.platform == "win32":
        return _below_normal()
    try:
        nice = os.getpriority(os.PRIO_PROCESS, 0) + _NICE
        for thread in _threads():
            os.setpriority(os.PRIO_PROCESS, thread, nice)
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
