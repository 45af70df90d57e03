"""Which patches come next, while somebody looks at a part of the slide."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from spt_core.insight.growing import moments
from spt_core.patches.order import coarse_to_fine
from spt_core.slides.grid import PatchGrid


class Steering:
    """An order of encoding that follows the view.

    From coarse to fine over the whole slide; while there is a place to look at, every
    other block is the nearest to it that is not done. So the view fills up soon, and
    what is seen of the slide as a whole stays a fair half of all.
    """

    def __init__(self, l0_xy: tuple[float, float] | None = None) -> None:
        self.l0_xy = l0_xy

    def __call__(
        self, grid: PatchGrid, todo: NDArray[np.int64]
    ) -> Iterator[NDArray[np.int64]]:
        blocks = list(coarse_to_fine(grid.g_rc[todo]))
        if not blocks:
            return
        l0_step = np.asarray(grid.l0_step_xy, float)
        l0_middles = np.stack(
            [
                (grid.g_rc[todo[rows]].mean(axis=0)[::-1] + 0.5) * l0_step
                for rows in blocks
            ]
        )
        is_left = np.ones(len(blocks), bool)
        even, given = 0, 0
        # The first answer is of the whole slide: all its patches are spread evenly.
        first = next(moments(len(todo)), 0)
        for turn in range(len(blocks)):
            l0_xy = self.l0_xy
            if l0_xy is None or given < first or turn % 2 == 0:
                while not is_left[even]:
                    even += 1
                chosen = even
            else:
                far = np.square(l0_middles - l0_xy).sum(axis=1)
                chosen = int(np.where(is_left, far, np.inf).argmin())
            is_left[chosen] = False
            given += len(blocks[chosen])
            yield todo[blocks[chosen]]
