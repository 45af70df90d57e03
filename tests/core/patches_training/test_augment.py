"""Views against the same done plainly, one pixel or one library call at a time."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter

from spt_core.patches.training.augment import (
    LUMA,
    STAINS,
    _colour_change,
    _stain_change,
    draw_views,
    make_views,
    middle,
)
from spt_core.patches.training.augmentation_settings import Augmentation

NOTHING = Augmentation(
    scale=(1.0, 1.0), stretch=0, stain=0, brightness=0, contrast=0, saturation=0, hue=0,
    grey=0, blur=0,
)  # fmt: skip


def tile(height=40, width=40, seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (height, width, 3), dtype=np.uint8)


def views_of(tiles, numbers, size=40, um=0.5, mpp=0.5):
    found = make_views(tiles, np.full(len(tiles), um), numbers, size, mpp)
    return found.permute(0, 2, 3, 1).numpy()


def numbers_of(n, how=NOTHING, seed=0, **changes):
    drawn = draw_views(np.random.default_rng(seed), n, how)
    return replace(drawn, turns=np.zeros(n, np.int64), **changes)


def test_without_changes_a_view_is_the_tile():
    tiles = [tile(seed=i) for i in range(5)]
    have = views_of(tiles, numbers_of(5)).astype(int)
    assert np.abs(have - np.stack(tiles)).max() <= 1


def test_flips_and_quarter_turns_are_the_eight_of_a_square():
    one = tile()
    numbers = replace(numbers_of(8), turns=np.arange(8))
    have = views_of([one] * 8, numbers)
    want = [np.rot90(m, k) for m in (one, one[:, ::-1]) for k in range(4)]
    for mine, other in zip(have, want, strict=True):
        assert np.abs(mine.astype(int) - other).max() <= 1
    assert len({view.tobytes() for view in have}) == 8


@pytest.mark.parametrize(("um", "scale"), [(0.5, 1.0), (0.25, 1.0), (0.25, 1.6)])
def test_a_view_shows_its_scale_whatever_the_tiles_own(um, scale):
    """Stripes of 8 um: how many a view of 20 um a side shows says its scale."""
    x = np.arange(200) * um
    stripes = (127.5 + 127.5 * np.sin(2 * np.pi * x / 8)).astype(np.uint8)
    one = np.broadcast_to(stripes[None, :, None], (200, 200, 3)).copy()
    numbers = numbers_of(1, replace(NOTHING, scale=(scale, scale)))
    row = views_of([one], numbers, size=40, um=um)[0, 20, :, 0].astype(float)
    spectrum = np.abs(np.fft.rfft(row - row.mean(), 4000))
    um_a_pixel = 8 * spectrum.argmax() / 4000
    assert um_a_pixel == pytest.approx(0.5 * scale, rel=0.05)


def test_a_field_smaller_than_the_view_is_not_squeezed():
    wide = np.zeros((20, 200, 3), np.uint8)
    wide[:, ::2] = 255  # the finest stripes survive only where nothing is squeezed
    have = middle(wide, 0.5, 20, 0.5)[0].permute(1, 2, 0).numpy()
    assert np.array_equal(have, wide[:, 90:110])
    large = middle(wide, 0.5, 40, 0.5)  # no more is there: the same 20, enlarged
    assert large.shape == (1, 3, 40, 40)
    assert 10 < float(large.float().std()) < 127


def test_stains_change_in_optical_density():
    rng = np.random.default_rng(0)
    od = rng.uniform(0, 1.5, 3)
    strength, shift = rng.uniform(0.7, 1.3, (1, 3)), rng.uniform(-0.1, 0.1, (1, 3))
    have = _stain_change(strength, shift)[0] @ np.append(od, 1)
    unit = np.array([row / np.sqrt((row**2).sum()) for row in STAINS])
    amounts = np.linalg.solve(
        unit.T, od
    )  # od = h * unit[0] + e * unit[1] + r * unit[2]
    changed = amounts * strength[0] + shift[0]
    want = sum(amount * row for amount, row in zip(changed, unit, strict=True))
    np.testing.assert_allclose(have, want, atol=1e-12)


def test_more_haematoxylin_darkens_nuclei_and_leaves_glass():
    glass, nucleus = np.full((8, 8, 3), 250, np.uint8), np.full((8, 8, 3), 0, np.uint8)
    nucleus[:] = (80, 60, 140)
    more = _stain_change(np.array([[1.5, 1.0, 1.0]]), np.zeros((1, 3)))
    numbers = numbers_of(2, stain=np.concatenate([more, more]))
    have = views_of([glass, nucleus], numbers, size=8).astype(int)
    assert np.abs(have[0] - 250).max() <= 6
    assert (have[1] < nucleus - 5).all()


def test_colours_change_as_they_should():
    rng = np.random.default_rng(1)
    rgb = rng.random((5, 3))
    one = np.ones(1)
    grey = _colour_change(one, one, 0 * one, 0 * one)[0]
    for pixel in rgb:
        np.testing.assert_allclose(grey[:, :3] @ pixel, LUMA @ pixel)
        bright = _colour_change(1.3 * one, one, one, 0 * one)[0] @ np.append(pixel, 1)
        np.testing.assert_allclose(bright, 1.3 * pixel)
        flat = _colour_change(one, 0.5 * one, one, 0 * one)[0] @ np.append(pixel, 1)
        np.testing.assert_allclose(flat, (pixel - 0.5) / 2 + 0.5)
    # a third of a turn makes red another primary, and no hue turns grey
    third = _colour_change(one, one, one, np.full(1, 2 * np.pi / 3))[0][:, :3]
    assert sorted(np.round(third @ [1, 0, 0], 6)) == [0, 0, 1]
    np.testing.assert_allclose(third @ [0.4, 0.4, 0.4], 0.4)


def test_blur_is_scipys():
    tiles = [tile(seed=i) for i in range(3)]
    numbers = numbers_of(3, blur=np.array([0.0, 0.8, 1.5]))
    have = views_of(tiles, numbers).astype(float)
    assert np.abs(have[0] - tiles[0]).max() <= 1
    for view, one, sigma in zip(have[1:], tiles[1:], (0.8, 1.5), strict=True):
        want = gaussian_filter(one.astype(float), (sigma, sigma, 0), mode="mirror")
        inner = np.abs(view - want)[5:-5, 5:-5]
        assert inner.max() < 3


def test_views_are_a_function_of_the_generator():
    tiles = [tile(60, 80, seed=i) for i in range(4)]
    how = Augmentation()
    first, again, other = (
        make_views(
            tiles,
            np.full(4, 0.4),
            draw_views(np.random.default_rng(s), 4, how),
            32,
            0.5,
        )
        for s in (3, 3, 4)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert first.dtype == torch.uint8
    assert first.shape == (4, 3, 32, 32)
