"""The pixels that an encoder receives are those of a naive read and resize."""

import math

import numpy as np
import openslide
import pytest
from PIL import Image

from spt_core import open_slide, read_tokens
from spt_core.patches import EncodeSettings, encode_slide
from spt_core.slides.grid import lay_grid
from tests.core.patches.conftest import make_slide, pixels_encoder, run_through, smooth
from tests.made_slides import write_tiff

# name: level-0 pixel size, target, and what it puts to the test
CASES = {
    "as scanned": ((1.0, 1.0), 1.0),
    "level 0, reduced": ((0.4, 0.4), 1.0),
    "level 1, whole": ((0.5, 0.5), 1.0),
    "level 1, in between": ((0.487, 0.487), 1.0),
    "unequal axes": ((0.5, 0.61), 1.0),
    "enlarged": ((1.3, 1.3), 1.0),
}


def encoded_pixels(path, out, size, target_mpp):
    encoder = pixels_encoder(size)
    settings = EncodeSettings(
        patch_size=size, target_mpp=target_mpp, batch_size=16, min_tissue=0.5
    )
    run_through(encode_slide(path, out, settings, encoder=encoder))
    tokens = read_tokens(next(out.glob("*.h5")))
    pixels = tokens.x.reshape(len(tokens), 3, size, size).transpose(0, 2, 3, 1)
    return tokens, pixels


@pytest.mark.parametrize("case", CASES)
def test_pixels_are_a_naive_read_and_resize(case, tmp_path):
    mpp_xy, target = CASES[case]
    path = make_slide(tmp_path / "s.tif", 1501, 1203, mpp_xy=mpp_xy, levels=2)
    size = 64
    tokens, pixels = encoded_pixels(path, tmp_path / "f", size, target)
    assert len(tokens) > 20
    slide = open_slide(path)
    grid = lay_grid(slide, patch_size=size, target_mpp=target)
    step = grid.l0_step_xy
    with openslide.OpenSlide(path) as file:
        level = grid.level
        scale = [
            round(a / b)
            for a, b in zip(file.dimensions, file.level_dimensions[level], strict=True)
        ]
        whole = file.read_region((0, 0), level, file.level_dimensions[level])
    whole = whole.convert("RGB")
    rng = np.random.default_rng(0)
    for i in rng.choice(len(tokens), 12, replace=False):
        x, y = tokens.xy[i]
        left, top = x / scale[0], y / scale[1]
        right = min((x + step[0]) / scale[0], whole.width)
        bottom = min((y + step[1]) / scale[1], whole.height)
        x0, y0 = math.floor(left), math.floor(top)
        patch = whole.crop((x0, y0, math.ceil(right), math.ceil(bottom)))
        box = (left - x0, top - y0, right - x0, bottom - y0)
        naive = patch.resize((size, size), Image.Resampling.BILINEAR, box=box)
        difference = np.abs(pixels[i] - np.asarray(naive, np.float32))
        assert difference.max() <= 2  # torch rounds twice
        assert difference.mean() < 0.35


def test_a_patch_shows_what_lies_at_its_coordinates(tmp_path):
    """From another level and resized, it is still the same place."""
    rng = np.random.default_rng(5)
    rgb = make_ramp(2049, 1537, rng)
    write_tiff(tmp_path / "s.tif", rgb, levels=2, compression="zlib")
    tokens, pixels = encoded_pixels(tmp_path / "s.tif", tmp_path / "f", 32, 1.0)
    step = tokens.facts.l0_patch_xy[0]
    for i in range(0, len(tokens), 7):
        x, y = tokens.xy[i]
        direct = rgb[y : y + step, x : x + step].astype(float).mean(axis=(0, 1))
        np.testing.assert_allclose(pixels[i].mean(axis=(0, 1)), direct, atol=2.5)


def make_ramp(width, height, rng):
    """Colours that differ from place to place, rough enough to be tissue."""
    y, x = np.mgrid[:height, :width].astype(np.float32)
    rgb = np.stack([90 + x / 30, 40 + y / 30, 130 + 0 * x], axis=-1)
    rgb += smooth(rng.normal(0, 60, rgb.shape), 2)
    return np.clip(rgb, 0, 255).astype(np.uint8)
