"""Threads that make views side by side."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import torch

MOST = 16


def usual_workers(device: torch.device) -> int:
    """One for each core beside a GPU; a CPU has the network to run as well."""
    processes = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    cores = (os.cpu_count() or 1) // processes
    return max(1, min(MOST, cores if device.type != "cpu" else cores // 4))


def view_workers(count: int) -> ThreadPoolExecutor:
    """Threads in each of which torch uses one thread.

    The threads of one operation would wait for one another, and for whatever else the
    cores are doing; those of several operations wait for nobody.
    """
    before = torch.get_num_threads()
    all_here = threading.Barrier(count + 1)

    def begin() -> None:
        torch.set_num_threads(1)
        all_here.wait()

    workers = ThreadPoolExecutor(count, thread_name_prefix="views", initializer=begin)
    for _ in range(count):
        workers.submit(int)
    all_here.wait()
    torch.set_num_threads(before)  # else threads that start later would have one too
    return workers
