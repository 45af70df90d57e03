"""Outlines against distances that scipy finds."""

import numpy as np
import pytest
from scipy.ndimage import distance_transform_cdt

from spt_core.insight.outlines import HALO, MOST_PIXELS, outline_factor, outlined

LABELS = np.array(
    [
        [0, 0, 0, 0, 0, 0],
        [0, 1, 1, 1, 2, 0],
        [0, 1, 1, 1, 2, 0],
        [0, 1, 1, 2, 2, 0],
        [0, 0, 0, 0, 0, 0],
    ],
    np.uint8,
)


@pytest.mark.parametrize("factor", [4, 8, 16])
def test_a_line_inside_each_area_with_a_halo_on_both_sides(factor):
    drawn = outlined(LABELS, factor)
    fine = np.kron(LABELS, np.ones((factor, factor), np.uint8))
    line = max(1, factor // 8)
    for label in (1, 2):
        inside = fine == label
        # Chessboard distance from the nearest pixel that is another.
        far = distance_transform_cdt(inside, metric="chessboard")
        near = inside & (far <= line + 2)
        np.testing.assert_array_equal(
            drawn == label, near & (far >= 2) & (far <= line + 1)
        )
        np.testing.assert_array_equal(
            (drawn == HALO) & inside, near & ((far == 1) | (far == line + 2))
        )
        assert not drawn[inside & (far > line + 2)].any()
    assert not drawn[fine == 0].any()


def test_whole_cells_where_there_is_no_room():
    drawn = outlined(np.pad(np.ones((3, 3), np.uint8), 1), 1)
    assert drawn.sum() == 8
    assert drawn[2, 2] == 0


def test_as_fine_as_the_screen_shows_and_memory_allows():
    assert outline_factor((40, 40), 20) == 16
    assert outline_factor((40, 40), 10) == 8
    assert outline_factor((40, 40), 2) == 1
    for side in (100, 300, 900, 5000):
        factor = outline_factor((side, side), 100)
        assert factor == 1 or (side * factor) ** 2 <= MOST_PIXELS
