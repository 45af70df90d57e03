"""Which parts of a slide to review: those looked at most, and some to compare.

A strip of the most attended patches alone flatters a model: whatever it looks at seems
to matter. So patches chosen at random, and those looked at least, stand among them.
"""

from dataclasses import dataclass
from enum import StrEnum
from itertools import zip_longest

import numpy as np
from numpy.typing import NDArray

COUNT, RANDOM, LEAST = 12, 3, 3
# The first try at how far apart patches lie: this share of the slide's extent.
APART_SHARE = 0.15
# Below this, even the best hundredth of the patches is looked at like any other.
STANDS_OUT = 1.5


class RegionKind(StrEnum):
    """Why a region was chosen."""

    MOST = "most"
    RANDOM = "random"
    LEAST = "least"


@dataclass(frozen=True)
class ChosenRegion:
    """One row of the patches, and why it was chosen."""

    row: int
    kind: RegionKind


def choose_regions(
    p: NDArray[np.integer],
    values: NDArray[np.floating],
    *,
    count: int = COUNT,
    random: int = RANDOM,
    least: int = LEAST,
    seed: int = 0,
) -> list[ChosenRegion]:
    """Patches that lie apart from one another, no patch twice.

    Parameters
    ----------
    p : (n, 2)
        Grid (row, col) of the patches.
    values : (n,)
        What to rank them by.
    count
        How many in all, ``random`` and ``least`` of them to compare with; on a slide
        of few patches there are fewer, the most attended first.

    Returns
    -------
    The most attended in their order, the others mixed in after every second one.
    """
    n = len(p)
    order = np.argsort(-np.asarray(values), kind="stable")
    taken = spread_out(p, order, max(count - random - least, 1))
    most = [ChosenRegion(row, RegionKind.MOST) for row in taken]
    lowest = spread_out(p, order[::-1][: n // 2], least, avoid=taken)
    taken = [*taken, *lowest]
    by_chance = np.random.default_rng([seed, 31]).permutation(n)
    chance = spread_out(p, by_chance, random, avoid=taken)
    pairs = zip_longest(
        (ChosenRegion(row, RegionKind.RANDOM) for row in chance),
        (ChosenRegion(row, RegionKind.LEAST) for row in lowest),
    )
    others = [region for pair in pairs for region in pair if region is not None]
    mixed: list[ChosenRegion] = []
    for turn, region in enumerate(most):
        mixed.append(region)
        if turn % 2:
            mixed += others[:2]
            del others[:2]
    return (mixed + others)[:count]


def spread_out(
    p: NDArray[np.integer],
    order: NDArray[np.integer],
    count: int,
    avoid: list[int] | None = None,
) -> list[int]:
    """The first ``count`` rows of ``order`` that lie apart, and apart from ``avoid``.

    As far apart as a share of the slide; where that leaves too few, nearer.
    """
    if len(order) == 0 or count < 1:
        return []
    apart = max(2.0, APART_SHARE * float(np.ptp(p, axis=0).max()))
    avoid = avoid or []
    while True:
        chosen = _apart(p, order, count, avoid, apart)
        if len(chosen) == count or apart < 1:
            return chosen
        apart /= 2


def _apart(
    p: NDArray[np.integer],
    order: NDArray[np.integer],
    count: int,
    avoid: list[int],
    apart: float,
) -> list[int]:
    free = np.ones(len(p), bool)
    for row in avoid:
        free &= np.abs(p - p[row]).max(axis=1) >= apart
    chosen: list[int] = []
    ordered = np.asarray(order)
    while len(chosen) < count:
        left = np.flatnonzero(free[ordered])
        if len(left) == 0:
            break
        row = int(ordered[left[0]])
        chosen.append(row)
        free &= np.abs(p - p[row]).max(axis=1) >= apart
    return chosen


def stands_out(times_average: NDArray[np.floating]) -> bool:
    """Whether any part of a slide is looked at clearly more than the rest."""
    if len(times_average) < 2:
        return False
    return bool(np.quantile(times_average, 0.99) >= STANDS_OUT)
