"""Windows of neighbouring tokens, slid over a slide's grid."""

from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from spt_core.learning.views import ViewSettings

STRIDE = 4
Rows = NDArray[np.intp]


@dataclass(frozen=True)
class WindowSettings:
    """The size of windows, and how many tokens they have.

    Attributes
    ----------
    side, stride
        Grid cells along a side of a window, and from one window to the next.
    limit
        Windows with more tokens are thinned to this many.
    fewest
        Windows with fewer tokens are left out.
    """

    side: int
    stride: int
    limit: int
    fewest: int


def windows_like_training(views: ViewSettings, stride: int = STRIDE) -> WindowSettings:
    """Windows of the area, and with the tokens, that training crops had."""
    area_min, area_max = views.crop_area
    side = max(1, round(sqrt((area_min + area_max) / 2) / stride)) * stride
    limit = max(1, int(views.max_tokens) if views.mask else side * side)
    # What keeps every token of a slide says nothing of how few there may be.
    thins = views.mask and views.mask_keep[0] < 1
    fewest = max(2, round(area_min * views.mask_keep[0])) if thins else 2
    return WindowSettings(side, stride, limit, min(fewest, limit))


@dataclass(frozen=True, eq=False)
class Windows:
    """Which tokens are in which window.

    Attributes
    ----------
    members
        For each window the rows of all tokens in it.
    g_middle : (w, 2)
        Grid (row, col) of each window's middle.
    """

    members: list[Rows]
    g_middle: NDArray[np.float64]


def slide_windows(p: NDArray[np.integer], settings: WindowSettings) -> Windows:
    """All windows with enough tokens.

    Tokens are sorted into squares with sides of one stride; a window is a square of
    those squares, and windows reach over the slide's edges, so that every token is
    covered as often as any other.
    """
    stride, across = settings.stride, settings.side // settings.stride
    if len(p) == 0:
        return Windows([], np.zeros((0, 2)))
    square = p // stride
    square = square - square.min(axis=0)
    rows, cols = square.max(axis=0) + 1
    number = square[:, 0] * cols + square[:, 1]
    order = np.argsort(number, kind="stable")
    starts = np.searchsorted(number[order], np.arange(rows * cols + 1))
    counts = np.diff(starts).reshape(rows, cols)
    # Tokens in each window, by sums over the squares above and left of a corner.
    padded = np.pad(counts, across - 1)
    sums = np.pad(padded.cumsum(0).cumsum(1), ((1, 0), (1, 0)))
    inside = (
        sums[across:, across:]
        - sums[:-across, across:]
        - sums[across:, :-across]
        + sums[:-across, :-across]
    )
    members, middles = [], []
    first = (p // stride).min(axis=0)
    for top, left in np.argwhere(inside >= settings.fewest) - (across - 1):
        parts = [
            order[starts[row * cols + max(left, 0)] : starts[row * cols + right]]
            for row in range(max(top, 0), min(top + across, rows))
            for right in (min(left + across, cols),)
        ]
        members.append(np.concatenate(parts))
        corner = (first + np.array((top, left))) * stride
        middles.append(corner + (settings.side - 1) / 2)
    return Windows(members, np.array(middles, np.float64).reshape(-1, 2))


def thinned(rows: Rows, limit: int, rng: np.random.Generator) -> Rows:
    """At most ``limit`` of the rows, chosen at random, in their order."""
    if len(rows) <= limit:
        return rows
    return np.sort(rng.choice(rows, limit, replace=False, shuffle=False))
