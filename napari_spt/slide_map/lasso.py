"""Which points a line drawn around them holds."""

import numpy as np
from numpy.typing import NDArray


def inside(
    points: NDArray[np.floating], polygon: NDArray[np.floating]
) -> NDArray[np.bool_]:
    """Which points (n, 2) lie in a polygon (k, 2), by the even-odd rule."""
    x, y = points.T
    found = np.zeros(len(points), bool)
    for (x0, y0), (x1, y1) in zip(polygon, np.roll(polygon, -1, axis=0), strict=True):
        if y0 == y1:
            continue
        crosses = (y0 > y) != (y1 > y)
        found ^= crosses & (x < (x1 - x0) * (y - y0) / (y1 - y0) + x0)
    return found
