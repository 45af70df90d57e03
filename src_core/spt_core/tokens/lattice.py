"""From level-0 coordinates to grid cells, for files that do not store the cells."""

import numpy as np
from numpy.typing import NDArray

# A patch farther than this share of a step from its cell is not on our lattice.
OFF_LATTICE = 0.25


def cells_of(
    l0_xy: NDArray[np.integer], l0_step_xy: tuple[int, int]
) -> tuple[NDArray[np.int64], bool]:
    """Nearest grid cells (row, col), (n, 2), and whether they are off the lattice.

    They are off when a patch is more than a quarter step from its cell, or when two
    patches share one (CLAM restarts its lattice in every contour).
    """
    if len(l0_xy) == 0:
        return np.zeros((0, 2), np.int64), False
    steps = (l0_xy - l0_xy.min(axis=0)) / np.asarray(l0_step_xy, dtype=float)
    g_xy = np.rint(steps)
    far = bool(np.abs(steps - g_xy).max() > OFF_LATTICE)
    g_rc = g_xy[:, ::-1].astype(np.int64)
    shared = len(np.unique(g_rc, axis=0)) < len(g_rc)
    return g_rc, far or shared


def likely_step(l0_xy: NDArray[np.integer]) -> tuple[int, int]:
    """The most common step (x, y) between neighbours in a row and in a column."""
    found = [
        step
        for step in (
            _commonest_gap(l0_xy[:, 0], l0_xy[:, 1]),
            _commonest_gap(l0_xy[:, 1], l0_xy[:, 0]),
        )
        if step
    ]
    if not found:
        return (1, 1)  # one patch, or none that share a row or a column
    # Patches are square: where the axes disagree, the denser one has the smaller step.
    step = min(found)
    return (step, step)


def _commonest_gap(along: NDArray[np.integer], across: NDArray[np.integer]) -> int:
    order = np.lexsort((along, across))
    same_line = np.diff(across[order]) == 0
    gaps = np.diff(along[order])[same_line]
    gaps = gaps[gaps > 0]
    if len(gaps) == 0:
        return 0
    values, counts = np.unique(gaps, return_counts=True)
    return int(values[counts.argmax()])
