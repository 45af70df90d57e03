"""Other processes, on every system."""

from contextlib import suppress

import psutil


def is_running(pid):
    """Whether a process exists and is not merely waiting to be reaped."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def kill(pid):
    """End a process without a chance to clean up; one that has ended is fine."""
    with suppress(psutil.NoSuchProcess):
        psutil.Process(pid).kill()


def resident_bytes(pid):
    """The memory that a process and all of its children hold."""
    total = 0
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        for one in (process, *process.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                total += one.memory_info().rss
    return total
