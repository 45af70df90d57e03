"""Values of patches as a raster on the slide: one pixel per grid cell, NaN = absent."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spt_core.tokens.tokens import TokenFacts

WEIGHT, TIMES_AVERAGE, PERCENTILE = "weight", "times average", "percentile"
UNITS = (WEIGHT, TIMES_AVERAGE, PERCENTILE)
MEAN = -1  # the head number that means all heads
# A map of more cells is drawn with larger ones.
MOST_CELLS = 64_000_000


@dataclass(frozen=True, eq=False)
class CellMap:
    """A raster over a slide.

    Attributes
    ----------
    values : (rows, cols) or (rows, cols, k) float32
        NaN where there is no patch.
    l0_origin_xy
        Level-0 (x, y) of the top left corner of cell (0, 0).
    l0_step_xy
        Level-0 pixels (x, y) that a cell covers.
    """

    values: NDArray[np.float32]
    l0_origin_xy: tuple[int, int]
    l0_step_xy: tuple[int, int]

    def l0_box(self, row: int, col: int) -> tuple[int, int, int, int]:
        """Level-0 left, top, right and bottom of a cell."""
        left = self.l0_origin_xy[0] + col * self.l0_step_xy[0]
        top = self.l0_origin_xy[1] + row * self.l0_step_xy[1]
        return left, top, left + self.l0_step_xy[0], top + self.l0_step_xy[1]


def attention_values(
    attention: NDArray[np.floating], *, head: int = MEAN, unit: str = WEIGHT
) -> NDArray[np.float64]:
    """One number per patch, (n,), from attention (heads, n).

    Each head is renormalised over the patches, so that its weights sum to 1; the mean
    is that of the renormalised heads.

    Parameters
    ----------
    unit
        ``weight``; ``times average`` (1 = looked at as much as any); ``percentile``
        (0 to 100, ties share their mean).
    """
    if unit not in UNITS:
        raise ValueError(f"unit is one of {', '.join(UNITS)}, not {unit!r}")
    weights = np.asarray(attention, np.float64)
    n = weights.shape[1]
    if n == 0:
        return np.zeros(0)
    total = weights.sum(axis=1, keepdims=True)
    # CLS may look at itself alone: then no patch counts more than another.
    even = np.full_like(weights, 1 / n)
    weights = np.divide(weights, total, out=even, where=total > 0)
    values = weights.mean(axis=0) if head == MEAN else weights[head]
    if unit == TIMES_AVERAGE:
        return values * n
    return percentiles(values) if unit == PERCENTILE else values


def percentiles(values: NDArray[np.floating]) -> NDArray[np.float64]:
    """The share of values, in percent, that each is above; ties count half, (n,)."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    below = np.cumsum(counts) - counts
    return 100 * (below + counts / 2)[inverse] / max(len(values), 1)


def cell_map(
    values: NDArray[np.floating],
    p: NDArray[np.integer],
    xy: NDArray[np.integer],
    facts: TokenFacts,
) -> CellMap:
    """Draw values (n,) or (n, k) of patches.

    Patches on the lattice fill their own cells; those off it fill every cell whose
    middle they cover, the nearest patch where several do.
    """
    step = np.asarray(facts.l0_step_xy or facts.l0_patch_xy or (1, 1), np.int64)
    step_xy = (int(step[0]), int(step[1]))
    values = np.asarray(values, np.float32)
    if len(p) == 0:
        return CellMap(np.zeros((0, 0, *values.shape[1:]), np.float32), (0, 0), step_xy)
    l0_xy: NDArray[np.int64] = np.asarray(xy, np.int64)
    corner = l0_xy - np.asarray(p, np.int64)[:, ::-1] * step
    size = np.ptp(p, axis=0) + 1
    on_lattice = not facts.off_lattice and bool((corner == corner[0]).all())
    if on_lattice and int(np.prod(size)) <= MOST_CELLS:
        first = np.min(p, axis=0)
        out = np.full((*size, *values.shape[1:]), np.nan, np.float32)
        out[p[:, 0] - first[0], p[:, 1] - first[1]] = values
        origin = corner[0] + first[::-1] * step
        return CellMap(out, (int(origin[0]), int(origin[1])), step_xy)
    return _by_nearest(values, l0_xy, step_xy)


def lattice_map(
    values: NDArray[np.floating],
    l0_xy: NDArray[np.integer],
    l0_step_xy: tuple[int, int],
    l0_size_xy: tuple[int, int],
) -> NDArray[np.float32]:
    """Draw values (n,) on the lattice of the whole slide, (rows, cols).

    Cell (0, 0) begins at level-0 (0, 0). The picture has the same shape however few
    patches are known, so that one that refines never moves.
    """
    cols, rows = (
        max(1, size // step) for size, step in zip(l0_size_xy, l0_step_xy, strict=True)
    )
    out = np.full((rows, cols), np.nan, np.float32)
    col, row = (np.asarray(l0_xy, np.int64) // np.asarray(l0_step_xy, np.int64)).T
    inside = (row >= 0) & (row < rows) & (col >= 0) & (col < cols)
    out[row[inside], col[inside]] = np.asarray(values, np.float32)[inside]
    return out


def smoothed(values: NDArray[np.float32], cells: float) -> NDArray[np.float32]:
    """Blur a map over the cells that have a value; the others stay NaN."""
    # Here, because nothing else in a window needs scipy at its start.
    from scipy import ndimage

    if cells <= 0:
        return values
    there = np.isfinite(values)
    filled = ndimage.gaussian_filter(np.where(there, values, 0), cells, mode="constant")
    weight = ndimage.gaussian_filter(there.astype(np.float32), cells, mode="constant")
    blurred = filled / np.maximum(weight, 1e-6)
    return np.where(there, blurred, np.nan).astype(np.float32)


def _by_nearest(
    values: NDArray[np.float32], xy: NDArray[np.int64], step_xy: tuple[int, int]
) -> CellMap:
    origin = xy.min(axis=0)
    reach = np.ptp(xy, axis=0)
    # Two patches far apart, of unknown size, must not fill the memory.
    factor = 1
    while int(np.prod(reach // (np.asarray(step_xy) * factor) + 2)) > MOST_CELLS:
        factor *= 2
    step = np.asarray(step_xy) * factor
    place = (xy - origin) / step  # in cells, (x, y)
    low = np.floor(place).astype(np.int64)
    candidates, which, far = [], [], []
    for dx in (0, 1):
        for dy in (0, 1):
            cell = low + np.array((dx, dy))
            offset = np.abs(cell - place)
            near = np.flatnonzero((offset <= 0.5).all(axis=1))
            candidates.append(cell[near])
            which.append(near)
            far.append(np.square(offset[near]).sum(axis=1))
    cells = np.concatenate(candidates)
    rows = np.concatenate(which)
    order = np.argsort(-np.concatenate(far), kind="stable")  # the nearest is put last
    shape = (cells[:, 1].max() + 1, cells[:, 0].max() + 1)
    out = np.full((*shape, *values.shape[1:]), np.nan, np.float32)
    out[cells[order, 1], cells[order, 0]] = values[rows[order]]
    return CellMap(out, (int(origin[0]), int(origin[1])), (int(step[0]), int(step[1])))
