"""The order of encoding that follows the view."""

import numpy as np
import pytest

from spt_core.engine.steering import Steering
from spt_core.insight.growing import moments
from spt_core.slides.grid import PatchGrid

SIDE, STEP = 80, 256


@pytest.fixture
def grid():
    g_rc = np.stack(np.mgrid[:SIDE, :SIDE], axis=-1).reshape(-1, 2)
    return PatchGrid(g_rc.astype(np.int64), (STEP, STEP), 256, 0.5, 0, (1.0, 1.0))


def taken(grid, steering, count, todo=None):
    """The first rows that are given, at least so many."""
    todo = np.arange(len(grid)) if todo is None else todo
    rows = []
    for block in steering(grid, todo):
        rows += block.tolist()
        if len(rows) >= count:
            break
    return np.array(rows)


def near(grid, rows, l0_xy, cells=8):
    g_there = np.array(l0_xy)[::-1] / STEP
    return (np.abs(grid.g_rc[rows] - g_there) <= cells).all(axis=1)


@pytest.mark.parametrize("l0_xy", [None, (0.0, 0.0), (9000.0, 14000.0), (1e9, -5.0)])
def test_every_patch_comes_once(grid, l0_xy):
    todo = np.arange(7, len(grid))
    rows = taken(grid, Steering(l0_xy), len(grid), todo)
    assert sorted(rows) == todo.tolist()


def test_the_view_comes_first_and_the_rest_stays_even(grid):
    l0_xy = (4000.0, 4000.0)
    rows = taken(grid, Steering(l0_xy), 600)
    there = near(grid, rows, l0_xy)
    everywhere = near(grid, np.arange(len(grid)), l0_xy).sum()
    assert there.sum() > 0.8 * everywhere
    # Half of the turns go all over the slide.
    others = grid.g_rc[rows[~there]]
    assert (np.ptp(others, axis=0) > 0.8 * SIDE).all()
    # What the first answer is made of is spread alike, view or none.
    first = next(moments(len(grid)))
    unsteered = taken(grid, Steering(), first)
    np.testing.assert_array_equal(taken(grid, Steering(l0_xy), first), unsteered)


def test_it_follows_when_the_view_moves(grid):
    steering = Steering((2000.0, 2000.0))
    blocks = steering(grid, np.arange(len(grid)))
    for _ in range(400):
        next(blocks)
    l0_later = (16000.0, 16000.0)
    steering.l0_xy = l0_later
    after = np.concatenate([next(blocks) for _ in range(40)])
    assert near(grid, after, l0_later, 12).mean() > 0.4


def test_of_nothing_comes_nothing(grid):
    assert list(Steering((1.0, 1.0))(grid, np.zeros(0, np.int64))) == []
