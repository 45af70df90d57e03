"""Timing two pieces of work in turn, so that both meet the same machine."""

import statistics
import time
from collections.abc import Callable


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def alternately(
    one: Callable[[], object], other: Callable[[], object], *, repeats: int
) -> tuple[float, float, float]:
    """Median seconds of each, and the median of the ratios one / other of each turn."""
    one()
    other()
    pairs = [(seconds(one), seconds(other)) for _ in range(repeats)]
    return (
        statistics.median(a for a, _ in pairs),
        statistics.median(b for _, b in pairs),
        statistics.median(a / b for a, b in pairs),
    )
