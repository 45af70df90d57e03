"""Timing two pieces of work in turn, so that both meet the same machine."""

import argparse
import statistics
import time
from collections.abc import Callable

import torch

CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


def add_clock(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--clock",
        choices=CLOCKS,
        default="wall",
        help="cpu: processor time on one thread, for a machine that others use too",
    )


def choose_clock(name: str) -> Callable[[], float]:
    if name == "cpu":
        torch.set_num_threads(1)  # waiting threads would count as work
    return CLOCKS[name]


def alternately(
    one: Callable[[], object],
    other: Callable[[], object],
    *,
    repeats: int,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[float, float, float]:
    """Median seconds of each, and the median of the ratios one / other of each turn."""

    def seconds(work: Callable[[], object]) -> float:
        start = clock()
        work()
        return clock() - start

    one()
    other()
    pairs = [(seconds(one), seconds(other)) for _ in range(repeats)]
    return (
        statistics.median(a for a, _ in pairs),
        statistics.median(b for _, b in pairs),
        statistics.median(a / b for a, b in pairs),
    )
