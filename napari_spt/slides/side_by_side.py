"""Where slides lie side by side. Sizes and places are (y, x), in one unit."""

from collections.abc import Sequence
from math import ceil

import numpy as np
from numpy.typing import NDArray

# Between two slides, in parts of the largest side.
GAP = 0.06


def places_side_by_side(
    sizes: Sequence[Sequence[float]], window: Sequence[float]
) -> NDArray[np.float64]:
    """The upper left corners of slides in rows, as large in the window as can be.

    Parameters
    ----------
    sizes : (n, 2)
        Of the slides, in their order.
    window : (2,)
        Size of the window; its shape alone counts.
    """
    found: tuple[float, NDArray[np.float64]] | None = None
    for columns in range(1, len(sizes) + 1):
        places, whole = _in_rows(np.asarray(sizes, float), columns)
        zoom = float((np.asarray(window, float) / whole).min())
        if found is None or zoom > found[0]:
            found = zoom, places
    return np.zeros((0, 2)) if found is None else found[1]


def _in_rows(
    sizes: NDArray[np.float64], columns: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Corners (n, 2) and the size of the whole, with so many slides in each row."""
    gap = GAP * sizes.max()
    places = np.zeros_like(sizes)
    top = right = 0.0
    for row in range(ceil(len(sizes) / columns)):
        these = slice(row * columns, (row + 1) * columns)
        widths, heights = sizes[these, 1], sizes[these, 0]
        places[these, 1] = np.cumsum(widths + gap) - widths - gap
        places[these, 0] = top + (heights.max() - heights) / 2
        top += heights.max() + gap
        right = max(right, float((widths + gap).sum()))
    return places, np.array([top - gap, right - gap])
