"""The lattice of patches: inside, never twice, and the same in every coordinate."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spt_core import open_slide
from spt_core.errors import InputError
from spt_core.slides import Slide
from spt_core.slides.grid import MissingPixelSizeError, lay_grid
from spt_core.slides.tissue import Tissue
from tests.made_slides import picture, write_tiff


class Canvas:
    """A source of any geometry: the lattice needs no pixels."""

    reader = "canvas"
    objective_power = None
    notes = ()

    def __init__(self, sizes, mpp_xy, bounds=None):
        self.path = Path(__file__)
        self.level_dimensions = tuple(sizes)
        self.tile_sizes = ((256, 256),) * len(sizes)
        self.raw_mpp_xy = mpp_xy
        self.bounds = bounds

    def read(self, level, x, y, w, h):
        return np.full((h, w, 3), 255, np.uint8)

    def all_properties(self):
        return {}

    def associated_images(self):
        return {}

    def close(self):
        pass


sides = st.integers(300, 40_000)
pixel_sizes = st.floats(0.1, 1.0)


@st.composite
def slides(draw):
    width, height = draw(sides), draw(sides)
    factors = draw(st.sampled_from([(), (2,), (4, 16), (2.0005,), (3, 9, 27)]))
    sizes = [(width, height)]
    sizes += [(max(1, int(width / f)), max(1, int(height / f))) for f in factors]
    mpp = draw(pixel_sizes)
    mpp_xy = draw(st.sampled_from([(mpp, mpp), (mpp, mpp * 1.3), (mpp * 1.01, mpp)]))
    bounds = None
    if draw(st.booleans()):
        x, y = draw(st.integers(0, width - 1)), draw(st.integers(0, height - 1))
        w, h = draw(st.integers(1, width - x)), draw(st.integers(1, height - y))
        bounds = (x, y, w, h)
    return Slide(Canvas(sizes, mpp_xy, bounds))


@settings(deadline=None, max_examples=100)
@given(slides(), st.integers(128, 600), st.floats(0.4, 4.0))
def test_every_patch_is_inside_once_and_agrees_in_all_coordinates(
    slide, patch_size, target_mpp
):
    x, y, w, h = slide.bounds
    um = patch_size * target_mpp
    step = np.array([max(1, round(um / mpp)) for mpp in slide.mpp_xy])
    # The bounds hold as many whole cells as fit.
    fit = [(a + n) // s - -(-a // s) for a, n, s in ((x, w, step[0]), (y, h, step[1]))]
    options = {"target_mpp": target_mpp, "allow_upsampling": True}
    if min(fit) < 1:
        with pytest.raises(InputError, match="smaller than one patch"):
            lay_grid(slide, patch_size=patch_size, **options)
        return
    grid = lay_grid(slide, patch_size=patch_size, **options)
    assert grid.l0_step_xy == tuple(step)
    assert len(grid) == fit[0] * fit[1]
    l0_xy = grid.l0_xy
    assert len(np.unique(grid.g_rc, axis=0)) == len(grid) > 0
    assert (l0_xy >= (x, y)).all()
    assert (l0_xy + step <= (x + w, y + h)).all()
    np.testing.assert_array_equal(l0_xy[:, 0] // step[0], grid.g_rc[:, 1])
    np.testing.assert_array_equal(l0_xy[:, 1] // step[1], grid.g_rc[:, 0])
    np.testing.assert_array_equal(l0_xy % step, 0)
    order = np.lexsort((grid.g_rc[:, 1], grid.g_rc[:, 0]))
    np.testing.assert_array_equal(order, np.arange(len(grid)))
    # Read from a level of the file that is fine enough, or from level 0.
    assert not slide.levels[grid.level].is_made
    if grid.level:
        assert min(grid.lv_size_xy) * 1.02 >= patch_size
    coarser = [n for n in slide.levels[grid.level + 1 :] if not n.is_made]
    for level in coarser[:1]:
        scale = slide.dimensions[0] / level.width
        assert min(grid.l0_step_xy) / scale < patch_size * 1.01


def test_the_step_is_whole_where_the_exact_one_is_not():
    slide = Slide(Canvas([(100_000, 80_000)], (0.2527, 0.2527)))
    grid = lay_grid(slide)
    assert grid.l0_step_xy == (594, 594)
    assert grid.l0_xy[-1].tolist() == [594 * 167, 594 * 133]


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_tissue_shares_are_areas(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 999)))
    mask = rng.random((9, 13)) < 0.5
    tissue = Tissue(mask, (10.0, 10.0))
    size = (data.draw(st.integers(1, 60)), data.draw(st.integers(1, 50)))
    x = data.draw(st.integers(0, 130 - size[0]))
    y = data.draw(st.integers(0, 90 - size[1]))
    full = np.kron(mask, np.ones((10, 10)))
    share = tissue.shares(np.array([[x, y]]), size)[0]
    assert share == pytest.approx(
        full[y : y + size[1], x : x + size[0]].mean(), abs=1e-5
    )


def test_only_patches_with_enough_tissue_are_kept():
    slide = Slide(Canvas([(6000, 3000)], (0.5, 0.5)))
    mask = np.zeros((30, 60), bool)
    mask[3:9, 3:8] = True  # 600 x 500 pixels from (300, 300): two rows, 1 2/3 columns
    tissue = Tissue(mask, (100.0, 100.0))
    cells = lay_grid(slide, tissue, min_tissue=0.5).g_rc.tolist()
    assert cells == [[1, 1], [1, 2], [2, 1], [2, 2]]
    cells = lay_grid(slide, tissue, min_tissue=0.7).g_rc.tolist()
    assert cells == [[1, 1], [2, 1]]
    grid = lay_grid(slide, tissue)
    assert grid.g_origin == (1, 1)


def test_a_missing_pixel_size_is_asked_for(tmp_path):
    write_tiff(tmp_path / "s.tif", picture(700, 700), mpp_xy=None)
    with pytest.raises(MissingPixelSizeError, match=r"--slide-mpp.*labels\.csv"):
        lay_grid(open_slide(tmp_path / "s.tif"))
    assert len(lay_grid(open_slide(tmp_path / "s.tif", 0.5))) == 4


def test_coarse_slides_are_refused_or_said_to_be_blurred():
    coarse = Slide(Canvas([(5000, 5000)], (0.8, 0.8)))
    with pytest.raises(InputError, match="--allow-upsampling"):
        lay_grid(coarse)
    assert "enlarged" in lay_grid(coarse, allow_upsampling=True).notes[0]
    near = Slide(Canvas([(5000, 5000)], (0.6, 0.6)))
    assert "enlarged" in lay_grid(near).notes[0]
    same = Slide(Canvas([(5000, 5000)], (0.51, 0.51)))
    assert lay_grid(same).notes == ()
