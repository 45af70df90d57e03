"""The stains of a slide, found and changed."""

import io
import time

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image

from spt_core import open_slide
from spt_core.patches.stain_step import StainStep, stain_step
from spt_core.slides.grid import lay_grid
from spt_core.slides.stain import (
    MACENKO,
    NO_STAIN,
    NoStainsError,
    Stains,
    estimate_stains,
    sample_tissue,
    slide_stains,
)
from spt_core.slides.tissue import Tissue, find_tissue
from tests.core.stained import (
    BLUE,
    PINK,
    amounts,
    on_glass,
    rendered,
    unit,
    write_slide,
)
from tests.slides_folder import FOLDER, needs

MIXED = amounts(400, 400)


def angles(vectors, others):
    cosines = (unit(vectors) * unit(others)).sum(axis=0)
    return np.degrees(np.arccos(np.clip(cosines, -1, 1)))


def naively(rgb):
    """Macenko's recipe, pixel by pixel where that is plainest; vectors and amounts."""
    rows = []
    for pixel in rgb.reshape(-1, 3).tolist():
        od = [-np.log((value + 1) / 240) for value in pixel]
        if sum(od) / 3 >= 0.15:
            rows.append(od)
    od = np.array(rows)
    _, _, right = np.linalg.svd(od, full_matrices=False)
    plane = right[:2]
    if plane[0].sum() < 0:
        plane[0] = -plane[0]
    on_plane = od @ plane.T
    phi = sorted(np.arctan2(on_plane[:, 1], on_plane[:, 0]))
    low, high = np.percentile(phi, 1), np.percentile(phi, 99)
    ends = [np.array([np.cos(a), np.sin(a)]) @ plane for a in (low, high)]
    ends.sort(key=lambda vector: -vector[0])
    vectors = np.array(ends).T
    each = np.linalg.lstsq(vectors, od.T, rcond=None)[0]
    return vectors, np.percentile(each, 99, axis=1)


def naively_normalised(rgb, vectors, strengths):
    reference = np.array([[0.5626, 0.2159], [0.7201, 0.8012], [0.4062, 0.5581]])
    od = -np.log((rgb.reshape(-1, 3).astype(float) + 1) / 240)
    each = np.linalg.lstsq(vectors, od.T, rcond=None)[0]
    each *= np.array([[1.9705], [1.0308]]) / strengths[:, None]
    out = 240 * np.exp(-(reference @ each)) - 1
    return np.clip(out.T.reshape(rgb.shape), 0, 255)


@pytest.mark.parametrize("vectors", [BLUE, PINK])
@pytest.mark.parametrize("strengths", [(1.0, 1.0), (0.7, 1.4), (1.4, 0.6)])
def test_known_stains_are_found(vectors, strengths):
    found = estimate_stains(rendered(MIXED, vectors, strengths).reshape(-1, 3))
    assert angles(found.vectors, vectors).max() < 2
    np.testing.assert_allclose(np.linalg.norm(found.vectors, axis=0), 1)
    stained = MIXED.reshape(-1, 2) * strengths
    shown = (stained @ unit(vectors).T).mean(axis=1) >= 0.15
    want = np.percentile(stained[shown], 99, axis=0)
    np.testing.assert_allclose(found.strengths, want, rtol=0.05)


def test_as_the_plain_recipe_says():
    rgb = rendered(MIXED[:150, :150], PINK)
    found = estimate_stains(rgb.reshape(-1, 3))
    vectors, strengths = naively(rgb)
    np.testing.assert_allclose(found.vectors, vectors, atol=1e-9)
    np.testing.assert_allclose(found.strengths, strengths, rtol=1e-9)
    want = naively_normalised(rgb, vectors, strengths)
    np.testing.assert_allclose(found.normalised(rgb), want, atol=1e-6)


def test_two_laboratories_become_alike():
    one, two = rendered(MIXED, BLUE, (0.8, 1.2)), rendered(MIXED, PINK, (1.2, 0.8))
    before = np.abs(one.astype(float) - two).mean()
    after = [estimate_stains(x.reshape(-1, 3)).normalised(x) for x in (one, two)]
    assert before > 15
    assert np.abs(after[0] - after[1]).mean() < 2


def test_the_reference_stays_as_it_is():
    reference = np.array([[0.5626, 0.2159], [0.7201, 0.8012], [0.4062, 0.5581]])
    # Its columns are of length 1 but for their rounding.
    stains = Stains(reference, np.array([1.9705, 1.0308]))
    rgb = rendered(MIXED, reference)
    assert np.abs(stains.normalised(rgb) - rgb).max() < 2


def test_torch_gives_the_same_numbers():
    rgb = rendered(MIXED, PINK)
    stains = estimate_stains(rgb.reshape(-1, 3))
    pixels = torch.from_numpy(np.stack([rgb, 255 - rgb])).permute(0, 3, 1, 2)
    want = stains.normalised(np.stack([rgb, 255 - rgb]))
    step = StainStep(stains)
    planes = pixels.to(torch.float32, memory_format=torch.channels_last)
    given_planes = planes.clone()
    for seen in (planes, planes.contiguous()):
        have = step(seen)
        assert have.dtype == torch.float32
        np.testing.assert_allclose(have.permute(0, 2, 3, 1).numpy(), want, atol=0.01)
    assert step(planes).is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(planes, given_planes)
    # Mixed precision around it is not for it.
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(step(planes), have)


def spoiled(kind):
    rng = np.random.default_rng(0)
    noise = rng.normal(0, 1.5, (300, 300, 3))
    shade = np.clip(0.8 + 0.3 * rng.normal(size=(300, 300, 1)), 0, 2)
    light = {
        "blank": np.full((300, 300, 3), 238.0),
        "grey": 240 * np.exp(-shade * (1, 1, 1)),
        "hematoxylin": 240 * np.exp(-shade * unit(BLUE)[:, 0]),
        "eosin": 240 * np.exp(-shade * unit(BLUE)[:, 1]),
        "noisy": 240 * np.exp(-shade * (1, 1, 1)) + 6 * noise,
        "one colour": np.full((300, 300, 3), (180.0, 120, 170)),
        "black": np.zeros((300, 300, 3)),
        "fluorescence": 40 * shade * (0.05, 0.1, 1.0),
        "green and red": 200 * np.clip(rng.random((300, 300, 3)), 0, 1) * (1, 1, 0),
        "ink": 240
        * np.exp(-rng.random((300, 300, 2)) * 2 @ [[1, 0.1, 0.8], [0, 0, 1]]),
    }[kind]
    return np.clip(light + noise, 0, 255).astype(np.uint8)


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("blank", "too little of its tissue is stained"),
        ("grey", "one stain, or none"),
        ("hematoxylin", "one stain, or none"),
        ("eosin", "one stain, or none"),
        ("noisy", "one stain, or none"),
        ("one colour", "one stain, or none"),
        ("black", "too dark"),
        ("fluorescence", "too dark"),
        ("green and red", "too dark"),
        ("ink", "not those of hematoxylin and eosin"),
    ],
)
def test_what_shows_no_two_stains_is_said(kind, why):
    with pytest.raises(NoStainsError, match=why):
        estimate_stains(spoiled(kind).reshape(-1, 3))


DAB = np.array([0.268, 0.570, 0.776])


@pytest.mark.parametrize("noise", [3, 8])
@pytest.mark.parametrize("strength", [1, 0.5])
@pytest.mark.parametrize("only", [BLUE[:, 0], PINK[:, 1], np.array([0.07, 0.99, 0.11])])
def test_one_stain_with_a_scanners_noise_is_one_stain(only, strength, noise):
    """Faint pixels of one stain are turned far by noise and JPEG, dark ones are not."""
    amount = strength * MIXED.sum(axis=-1, keepdims=True)
    pixels = scanned(amount, only[:, None], noise)
    with pytest.raises(NoStainsError, match="one stain, or none"):
        estimate_stains(pixels)


@pytest.mark.parametrize("noise", [3, 8])
@pytest.mark.parametrize("lab", [BLUE, PINK])
def test_much_hematoxylin_and_pale_eosin_are_two_stains(lab, noise):
    """As where tumour is most of the tissue: the darker half shows nuclei alone."""
    found = estimate_stains(scanned(MIXED * (1.6, 0.4), lab, noise))
    assert angles(found.vectors, lab).max() < 8


def test_brown_is_told_from_eosin():
    """H-DAB: the brown of an immunostain is within 20 degrees of eosin."""
    both = np.stack([BLUE[:, 0], DAB], axis=1)
    with pytest.raises(NoStainsError, match=r"brown \(DAB\)"):
        estimate_stains(scanned(MIXED, both, 3))
    for lab in (BLUE, PINK):
        estimate_stains(scanned(MIXED, lab, 3))


def scanned(mixed, vectors, noise):
    """Means of two by two pixels, as a slide's are taken, after noise and JPEG."""
    od = mixed @ unit(vectors).T
    light = 240 * np.exp(-od) - 1
    light = light + np.random.default_rng(0).normal(0, noise, light.shape)
    held = io.BytesIO()
    rgb = np.clip(light, 0, 255).round().astype(np.uint8)
    Image.fromarray(rgb).save(held, "JPEG", quality=80)
    rgb = np.asarray(Image.open(held))
    high, wide = (n // 2 for n in rgb.shape[:2])
    rgb = rgb[: 2 * high, : 2 * wide].reshape(high, 2, wide, 2, 3)
    return rgb.mean(axis=(1, 3)).round().astype(np.uint8).reshape(-1, 3)


@pytest.mark.parametrize("count", [0, 1, 2, 7, 499])
def test_few_pixels_are_too_few(count):
    some = rendered(MIXED, BLUE).reshape(-1, 3)[:count]
    with pytest.raises(NoStainsError, match="too little"):
        estimate_stains(some)


PIXELS = arrays.arrays(np.uint8, (6, 5, 3))


@given(rgb=PIXELS, base=PIXELS, lab=st.sampled_from([BLUE, PINK]))
def test_whatever_comes_out_can_be_shown(rgb, base, lab):
    mixed = np.concatenate([rendered(MIXED[::4, ::4], lab).reshape(-1, 3)])
    # Whatever is among the tissue, some of it many times.
    odd = np.repeat(base.reshape(-1, 3), 40, axis=0)
    try:
        stains = estimate_stains(np.concatenate([mixed, odd]))
    except NoStainsError:
        return
    out = stains.normalised(rgb)
    assert np.isfinite(out).all()
    assert out.min() >= 0
    assert out.max() <= 255
    planes = torch.from_numpy(rgb)[None].permute(0, 3, 1, 2).float()
    have = StainStep(stains)(planes)[0].permute(1, 2, 0).numpy()
    np.testing.assert_allclose(have, out, atol=0.05)


@given(
    rgb=PIXELS,
    numbers=arrays.arrays(np.float64, (400, 3), elements=st.floats(0, 255)),
)
def test_any_pixels_give_stains_or_are_refused(rgb, numbers):
    pixels = np.repeat(numbers.astype(np.uint8), 4, axis=0)
    try:
        stains = estimate_stains(pixels)
    except NoStainsError:
        return
    assert np.isfinite(stains.matrix).all()
    out = stains.normalised(rgb)
    assert np.isfinite(out).all()
    assert out.min() >= 0
    assert out.max() <= 255


# Slides

PATCH = {"patch_size": 64, "target_mpp": 1.0}


@pytest.fixture(scope="module")
def slide(tmp_path_factory):
    rgb = rendered(on_glass(amounts(1500, 1800)), BLUE)
    path = tmp_path_factory.mktemp("stained") / "s.tif"
    return open_slide(write_slide(path, rgb))


def test_a_slides_stains_come_from_its_tissue(slide):
    tissue = find_tissue(slide)
    grid = lay_grid(slide, tissue, **PATCH)
    rgb = sample_tissue(slide, tissue, grid)
    assert 10_000 < len(rgb) <= 96 * 64 * 64
    assert (rgb.min(axis=1) > 225).mean() < 0.02  # glass
    found = slide_stains(slide, tissue, grid)
    assert angles(found.vectors, BLUE).max() < 4
    again = slide_stains(open_slide(slide.path), find_tissue(slide), grid)
    np.testing.assert_array_equal(again.matrix, found.matrix)


def test_what_the_mask_leaves_out_is_not_looked_at(slide, tmp_path):
    """A green square among the tissue, as ink would be."""
    rgb = slide.read(0, 0, 0, *slide.dimensions).copy()
    rgb[600:900, 700:1000] = (60, 150, 80)
    inked = open_slide(write_slide(tmp_path / "ink.tif", rgb))
    clean = find_tissue(slide)
    mask = clean.mask.copy()
    x, y = clean.l0_scale_xy
    mask[int(600 / y) - 1 : int(900 / y) + 2, int(700 / x) - 1 : int(1000 / x) + 2] = 0
    tissue = Tissue(mask, clean.l0_scale_xy)
    grid = lay_grid(inked, tissue, min_tissue=0.05, **PATCH)
    seen = sample_tissue(inked, tissue, grid).astype(int)
    assert not (np.abs(seen - (60, 150, 80)).max(axis=1) < 8).any()
    found = slide_stains(inked, tissue, grid)
    assert angles(found.vectors, BLUE).max() < 4


def test_pixels_are_those_of_the_patches(slide):
    """Tissue at the top right alone: swapped axes would find none."""
    mask = np.zeros((150, 180), bool)
    mask[30:60, 110:150] = True
    tissue = Tissue(mask, (10.0, 10.0))
    grid = lay_grid(slide, tissue, patch_size=50, target_mpp=0.5, min_tissue=1.0)
    assert len(grid) == 48
    rgb = sample_tissue(slide, tissue, grid)
    whole = slide.read(0, 1100, 300, 400, 300).astype(float)
    means = whole.reshape(150, 2, 200, 2, 3).mean(axis=(1, 3)).round()
    # A patch of 50 pixels has 25 means a side: here all of them.
    assert len(rgb) == 150 * 200
    have, want = (np.sort(x.reshape(-1, 3), axis=0) for x in (rgb, means))
    np.testing.assert_array_equal(have, want)


def test_patches_of_any_size_and_place(slide):
    """Larger than the sample, of a pixel, between the pixels of a level."""
    tissue = find_tissue(slide)
    for patch in ((200, 0.5), (1, 1.0), (33, 0.77), (500, 1.0)):
        grid = lay_grid(slide, tissue, patch_size=patch[0], target_mpp=patch[1])
        rgb = sample_tissue(slide, tissue, grid)
        assert rgb.shape[1] == 3
        assert rgb.dtype == np.uint8
        assert 0 < len(rgb) <= 96 * 64 * 64
    nothing = Tissue(np.zeros_like(tissue.mask), tissue.l0_scale_xy)
    grid = lay_grid(slide, nothing, **PATCH)
    step, said, _ = stain_step(MACENKO, "s", slide, nothing, grid)
    assert step is None
    assert said == [
        "s is encoded in its own colours: too little of its tissue is stained."
    ]
    assert stain_step(NO_STAIN, "s", slide, tissue, grid) == (None, [], None)


STAINED = FOLDER / "slides" / "CMU-1-Small-Region.svs"
FLUORESCENT = FOLDER / "slides" / "test3-DAPI.ndpi"


@pytest.mark.parametrize(
    ("path", "shows_two"),
    [
        pytest.param(STAINED, True, marks=needs(STAINED)),
        pytest.param(FLUORESCENT, False, marks=needs(FLUORESCENT)),
    ],
)
def test_real_slides(path, shows_two):
    real = open_slide(path, 0.5)
    tissue = find_tissue(real)
    grid = lay_grid(real, tissue, patch_size=224, target_mpp=1.0)
    start = time.perf_counter()
    step, said, _ = stain_step(MACENKO, "s", real, tissue, grid)
    assert time.perf_counter() - start < 5
    assert (step is not None) is shows_two
    assert len(said) == (not shows_two)
