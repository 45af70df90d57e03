"""Every slide of a folder (SPT_TEST_SLIDES) through the core: pixels to tokens."""

import numpy as np
import pytest

from spt_core import encode_slide, open_slide, read_tokens
from spt_core.patches import EncodeSettings
from spt_core.slides.tissue import find_tissue
from tests.events import run_through
from tests.slide_checks import check_against_openslide, check_pyramid
from tests.slides_folder import folder_slides

# For slides that do not state their pixel size.
SUPPOSED_MPP = 0.5
PATCH, MOST_PATCHES = 64, 400

pytestmark = pytest.mark.parametrize("path", folder_slides())


def test_its_levels_agree(path):
    slide = open_slide(path)
    check_pyramid(slide)
    middle = [size // 2 for size in slide.dimensions]
    assert slide.read(0, *middle, 1, 1).shape == (1, 1, 3)
    assert np.asarray(slide.pyramid[-1]).shape == slide.pyramid[-1].shape


def test_it_reads_as_openslide_reads_it(path):
    reader = open_slide(path).reader
    if reader != "openslide":
        pytest.skip(f"it is read by {reader}")
    check_against_openslide(path)


def test_no_property_that_is_kept_can_name_a_patient(path):
    words = ("patient", "name", "date", "time", "comment", "uid", "barcode", "user")
    words += ("identifier", "serial", "accession", "physician", "description", "title")
    for key in open_slide(path).properties:
        last = key.lower().removeprefix("dicom.shared").split(".")[-1]
        assert not any(word in last.replace("exposure time", "") for word in words)


def test_its_tissue_is_found_and_encoded(path, tmp_path):
    slide = open_slide(path, SUPPOSED_MPP)
    tissue = find_tissue(slide)
    assert tissue.mask.dtype == bool
    assert tissue.mask.any()
    for pixels, scale, size in zip(
        tissue.mask.shape[::-1], tissue.l0_scale_xy, slide.dimensions, strict=True
    ):
        assert abs(pixels * scale - size) <= scale
    # Patches large enough that a slide of any size takes seconds.
    um_area = tissue.mask.sum() * np.prod(tissue.l0_scale_xy) * np.prod(slide.mpp_xy)
    target_mpp = max(slide.mpp, 1.0, np.sqrt(um_area / MOST_PATCHES) / PATCH)
    settings = EncodeSettings(
        encoder="small-random",
        patch_size=PATCH,
        target_mpp=float(target_mpp),
        slide_mpp=SUPPOSED_MPP,
    )
    _, result = run_through(encode_slide(path, tmp_path, settings))
    tokens = read_tokens(result.path)
    assert result.status == "done"
    assert result.patches == len(tokens.x) > 0
    assert np.isfinite(tokens.x).all()
    step = round(PATCH * target_mpp / slide.mpp_xy[0])
    np.testing.assert_array_equal(tokens.xy[:, 0], tokens.g_rc[:, 1] * step)
    assert len(np.unique(tokens.p, axis=0)) == len(tokens.p)
    assert (tokens.xy >= 0).all()
    assert (tokens.xy < slide.dimensions).all()
