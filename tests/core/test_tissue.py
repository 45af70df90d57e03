"""Tissue against truth: on made pictures of every hard kind, and on sample slides."""

import numpy as np
import pytest
import tifffile
from PIL import Image, ImageDraw, ImageFilter
from scipy import ndimage

from spt_core import open_slide
from spt_core.sample import truth_paths, write_sample_cohort, write_sample_slide
from spt_core.slides.overview import Overview, read_overview
from spt_core.slides.tissue import find_tissue, tissue_mask
from tests.made_slides import write_tiff
from tests.slides_folder import FOLDER, needs

SIDE = 700
WHITE, GREY, PINK = (243, 243, 243), (205, 206, 204), (232, 214, 229)


def blob(side=SIDE, seed=0, cover=0.3):
    rng = np.random.default_rng(seed)
    field = ndimage.gaussian_filter(rng.normal(size=(100, 100)), 100 / 12)
    picture = Image.fromarray(field.astype(np.float32)).resize((side, side))
    return np.asarray(picture) > np.quantile(field, 1 - cover)


def stained(truth, glass, *, strength=1.0, seed=1):
    """H&E-like texture on the truth, scanner noise everywhere."""
    rng = np.random.default_rng(seed)
    shape = truth.shape
    eosin = 0.35 + 0.12 * ndimage.gaussian_filter(rng.normal(size=shape), 1.5) * 4
    nuclei = np.clip(ndimage.gaussian_filter(rng.normal(size=shape), 1) * 6 - 1, 0, 2)
    inside = ndimage.gaussian_filter(truth.astype(float), 0.7)
    od = eosin[..., None] * (0.1, 0.95, 0.4) + nuclei[..., None] * (0.6, 0.7, 0.3)
    rgb = np.asarray(glass) * np.exp(-strength * od * inside[..., None])
    return rgb + rng.normal(0, 1.2, (*shape, 1)) + rng.normal(0, 0.6, (*shape, 3))


def find(rgb, um_pixel=8.0):
    rgb = np.clip(np.round(rgb), 0, 255).astype(np.uint8)
    nothing = np.zeros(rgb.shape[:2], bool)
    return tissue_mask(Overview(rgb, nothing, nothing, (1.0, 1.0), um_pixel))


def iou(a, b):
    return (a & b).sum() / (a | b).sum()


def stroke(rgb, colour, points, width=14):
    """Draw a pen stroke as ink: it multiplies the light."""
    layer = Image.new("L", rgb.shape[1::-1], 0)
    ImageDraw.Draw(layer).line(points, fill=235, width=width, joint="curve")
    amount = np.asarray(layer.filter(ImageFilter.GaussianBlur(2)), float) / 255
    return rgb * np.exp(np.log(np.asarray(colour) / 255) * amount[..., None])


@pytest.mark.parametrize("glass", [WHITE, GREY, PINK])
@pytest.mark.parametrize("strength", [0.25, 1.0])
def test_stained_tissue_on_any_glass(glass, strength):
    truth = blob()
    assert iou(find(stained(truth, glass, strength=strength)), truth) > 0.93


def test_glass_whose_colour_drifts_and_runs():
    """Vignetting, and eosin that ran out of the tissue into the glass."""
    truth = blob(seed=3)
    y, x = np.mgrid[:SIDE, :SIDE] / SIDE - 0.5
    rgb = stained(truth, PINK) * (1 - 0.35 * (x * x + y * y))[..., None]
    near = ndimage.gaussian_filter(np.roll(truth, 60, axis=1).astype(float), 30)
    rgb *= np.exp(-near[..., None] * (0.0, 0.16, 0.08))
    assert iou(find(rgb), truth) > 0.9


@pytest.mark.parametrize(
    "colour", [(20, 40, 160), (20, 120, 60), (15, 15, 20), (210, 30, 40)]
)
def test_pen_is_left_out(colour):
    truth = blob(seed=5, cover=0.15)
    clear = ~ndimage.binary_dilation(truth, iterations=25)
    rgb = stroke(
        stained(truth, WHITE), colour, [(30, 40), (300, 90), (660, 60), (650, 640)]
    )
    found = find(rgb)
    assert iou(found & ~clear, truth & ~clear) > 0.85
    assert found[clear].mean() < 0.002


def test_bubbles_dust_and_smudges_are_left_out():
    truth = blob(seed=7, cover=0.2)
    rgb = stained(truth, GREY)
    layer = Image.new("L", (SIDE, SIDE), 0)
    draw = ImageDraw.Draw(layer)
    draw.ellipse((20, 20, 260, 200), outline=180, width=5)
    rng = np.random.default_rng(0)
    for x, y in rng.uniform(0, SIDE, (60, 2)):
        r = rng.uniform(1, 5)
        draw.ellipse((x - r, y - r, x + r, y + r), fill=160)
    amount = np.asarray(layer.filter(ImageFilter.GaussianBlur(1)), float) / 255
    smudge = np.zeros((SIDE, SIDE))
    smudge[600, 600] = 1
    amount += 0.4 * ndimage.gaussian_filter(smudge, 20) * 2500
    rgb = rgb * (1 - 0.7 * np.clip(amount, 0, 1))[..., None]
    assert iou(find(rgb), truth) > 0.93


def test_a_slide_full_of_tissue_and_one_without_any():
    full = np.ones((SIDE, SIDE), bool)
    assert find(stained(full, WHITE)).mean() > 0.99
    almost = full.copy()
    almost[:40, :100] = False
    assert iou(find(stained(almost, PINK)), almost) > 0.97
    assert not find(stained(~full, PINK)).any()
    assert not find(np.full((SIDE, SIDE, 3), 255)).any()


def test_white_that_the_scanner_cut_off_is_glass():
    truth = blob(seed=9)
    rgb = np.clip(stained(truth, WHITE) * 1.08, 0, 255).round().astype(np.uint8)
    rgb[~ndimage.binary_dilation(truth, iterations=3)] = 255
    white = rgb.min(axis=-1) == 255
    nothing = np.zeros_like(white)
    found = tissue_mask(Overview(rgb, white, nothing, (1.0, 1.0), 8.0))
    assert iou(found, truth) > 0.93


def test_black_padding_makes_no_dark_slide():
    truth = np.zeros((SIDE, SIDE), bool)
    truth[:300, :300] = blob(300, seed=21)
    rgb = np.clip(stained(truth, WHITE), 0, 255).astype(np.uint8)
    padding = np.ones_like(truth)
    padding[:300, :300] = False
    rgb[padding] = 0
    nothing = np.zeros_like(truth)
    found = tissue_mask(Overview(rgb, padding, nothing, (1.0, 1.0), 8.0))
    assert iou(found, truth) > 0.9


def test_without_colour_structure_decides():
    truth = blob(seed=11)
    rgb = stained(truth, WHITE).mean(axis=-1, keepdims=True).repeat(3, axis=-1)
    assert iou(find(rgb), truth) > 0.9


def test_fat_is_tissue_and_its_lumens_no_holes():
    """Clear cells of 80 µm behind thin membranes, joined to stroma."""
    truth = blob(seed=13, cover=0.4)
    rng = np.random.default_rng(2)
    points = rng.uniform(0, SIDE, (5000, 2))
    from scipy.spatial import cKDTree

    y, x = np.mgrid[:SIDE, :SIDE]
    near, _ = cKDTree(points).query(np.stack([y, x], axis=-1), k=2)
    membrane = np.exp(-(((near[..., 1] - near[..., 0]) / 1.2) ** 2)) * truth
    rgb = np.asarray(PINK) * np.exp(-0.35 * membrane[..., None] * (0.2, 0.95, 0.5))
    rgb = rgb + rng.normal(0, 1.2, rgb.shape)
    assert iou(find(rgb), truth) > 0.9


@pytest.mark.parametrize("background", [0, 6, 20])
def test_fluorescence_on_dark(background):
    truth = blob(seed=15, cover=0.4)
    rng = np.random.default_rng(4)
    nuclei = ndimage.gaussian_filter(
        (rng.random(truth.shape) < 0.02).astype(float), 1.5
    )
    glow = background + truth * (8 + 0.4 * background + 2500 * nuclei * 0.6)
    counted = rng.poisson(np.clip(glow, 0, 250))
    rgb = np.stack([np.zeros_like(counted), np.zeros_like(counted), counted], axis=-1)
    assert iou(find(rgb, 2.0), truth) > 0.9


@pytest.mark.parametrize("cover", [0.3, 0.85])
@pytest.mark.parametrize("asked", [None, "A,C,D", "B"])
def test_channels_stretched_to_any_brightness_lie_on_dark(tmp_path, cover, asked):
    """Much of such a slide is as bright as a stained one's glass."""
    truth = blob(seed=3, cover=cover)
    rng = np.random.default_rng(0)
    noise = ndimage.gaussian_filter(rng.normal(size=(4, *truth.shape)), (0, 2, 2))
    glow = truth * (2000 + 3000 * np.abs(noise / noise.std()))
    dyes = (300 + glow + rng.normal(0, 20, glow.shape)).astype(np.uint16)
    path = tmp_path / "dyes.ome.tif"
    about = {"axes": "CYX", "PhysicalSizeX": 4.0, "PhysicalSizeY": 4.0}
    about["Channel"] = {"Name": ["A", "B", "C", "D"]}
    tifffile.imwrite(path, dyes, metadata=about, ome=True, tile=(256, 256))
    tissue = find_tissue(open_slide(path, channels=asked))
    seen = Image.fromarray(truth).resize(tissue.mask.shape[::-1])
    assert iou(tissue.mask, np.asarray(seen)) > 0.9


def test_an_unreadable_part_is_said_and_the_rest_is_found(tmp_path):
    truth = blob(1300, seed=17)
    path = tmp_path / "s.tif"
    rgb = np.clip(stained(truth, WHITE), 0, 255).astype(np.uint8)
    write_tiff(path, rgb, levels=1, mpp_xy=(8.0, 8.0))
    with tifffile.TiffFile(path) as tiff:
        offset, size = tiff.pages[0].dataoffsets[0], tiff.pages[0].databytecounts[0]
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(b"\xff" * size)
    tissue = find_tissue(open_slide(path))
    assert "cannot be decoded" in tissue.notes[0]
    assert tissue.mask.shape == truth.shape
    assert not tissue.mask[:256, :256].any()
    truth = truth.copy()
    truth[:300, :300] = False
    assert iou(tissue.mask, truth) > 0.9


def test_a_slide_too_large_to_be_read_whole_is_sampled(tmp_path, monkeypatch):
    truth = blob(1024, seed=19).repeat(4, axis=0).repeat(4, axis=1)
    rgb = np.clip(stained(truth[::4, ::4], WHITE), 0, 255).astype(np.uint8)
    path = tmp_path / "one level.tif"
    whole = rgb.repeat(4, axis=0).repeat(4, axis=1)
    write_tiff(path, whole, levels=1, tile=64, mpp_xy=(2.0, 2.0))
    monkeypatch.setattr("spt_core.slides.overview._WHOLE_PIXELS", 2**22)
    slide = open_slide(path)
    tissue = find_tissue(slide)
    rows, cols = tissue.mask.shape
    scale = tissue.l0_scale_xy
    y = ((np.arange(rows) + 0.5) * scale[1]).astype(int).clip(max=4095)
    x = ((np.arange(cols) + 0.5) * scale[0]).astype(int).clip(max=4095)
    assert iou(tissue.mask, truth[y[:, None], x]) > 0.85


@needs(FOLDER / "sections")
@pytest.mark.parametrize("name", ["C2", "C3", "C4", "C5"])
def test_real_sections_on_pink_glass(name):
    """Outlines drawn by eye, in parts of the slide's width and height."""
    outline = {
        "C2": [(0.196, 0.63), (0.755, 0.33), (0.855, 0.66), (0.66, 0.825)],
        "C3": [(0.065, 0.31), (0.67, 0.107), (0.71, 0.45), (0.485, 0.575)],
        "C4": [(0.055, 0.455), (0.63, 0.185), (0.72, 0.515), (0.515, 0.66)],
        "C5": [(0.04, 0.41), (0.615, 0.135), (0.71, 0.45), (0.505, 0.605)],
    }[name]
    slide = open_slide(FOLDER / "sections" / f"her2st_{name}.tif")
    mask = find_tissue(slide).mask
    truth = Image.new("1", mask.shape[::-1])
    ImageDraw.Draw(truth).polygon(
        [(x * mask.shape[1], y * mask.shape[0]) for x, y in outline], fill=1
    )
    assert iou(mask, np.asarray(truth)) > 0.85


def test_the_overview_is_the_slide_reduced(tmp_path):
    rgb = np.clip(stained(blob(1500), WHITE), 0, 255).astype(np.uint8)
    path = tmp_path / "s.tif"
    write_tiff(path, rgb, levels=2, compression="deflate", mpp_xy=(4.0, 4.0))
    overview = read_overview(open_slide(path))
    scale = overview.l0_scale_xy[0]
    assert overview.um_pixel == pytest.approx(4 * scale)
    shape = (round(1500 / scale),) * 2
    expected = np.asarray(Image.fromarray(rgb).resize(shape, Image.Resampling.BOX))
    difference = np.abs(overview.rgb.astype(int) - expected)
    assert difference.mean() < 8


def against_truth(path):
    with Image.open(truth_paths(path)[0]) as picture:
        truth = np.asarray(picture) > 0
    mask = find_tissue(open_slide(path)).mask
    picture = Image.fromarray(truth).resize(mask.shape[::-1], Image.Resampling.NEAREST)
    return iou(mask, np.asarray(picture))


@pytest.mark.parametrize("seed", [2])
def test_sample_slides_have_their_tissue_found(seed, tmp_path):
    path = tmp_path / "s.tif"
    kind = ["glandular", "small-cell", "large-cell"][seed % 3]
    for _ in write_sample_slide(path, kind=kind, size=4096, seed=seed, workers=1):
        pass
    assert against_truth(path) > 0.9


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_cohort_of_sample_slides_has_its_tissue_found(tmp_path):
    for _ in write_sample_cohort(tmp_path / "c", slides=9, size=6144, seed=5):
        pass
    found = {path.name: against_truth(path) for path in tmp_path.glob("c/*.tif")}
    assert len(found) == 9
    assert min(found.values()) > 0.9, found
