"""Sample slides: readable, the same for the same seed, true to their truth mask."""

import hashlib
import itertools
import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import openslide
import psutil
import pytest
import tifffile
from PIL import Image
from scipy import ndimage

from spt_core.errors import InputError
from spt_core.events import Progress
from spt_core.sample import (
    TUMOURS,
    TissueClass,
    sample_slide,
    truth_paths,
    write_sample_slide,
)
from spt_core.sample.layout import SCALE, SlideSpec, plan
from spt_core.sample.painting import BLOCK, MARGIN, Painter, painter
from spt_core.sample.slide_file import level_sizes
from spt_core.sample.stain import make_site
from tests.events import run_through
from tests.processes import resident_bytes


@pytest.fixture(scope="module")
def slide_path(tmp_path_factory) -> Path:
    # Not a multiple of anything, so that every kind of edge is there.
    path = tmp_path_factory.mktemp("sample") / "one.tif"
    size = (4500, 4097)
    return run_through(
        write_sample_slide(path, kind="large-cell", size=size, seed=3, workers=1)
    )[1]


@pytest.fixture(scope="module")
def mask(slide_path) -> np.ndarray:
    return np.asarray(Image.open(truth_paths(slide_path)[0]))


def spec(seed=3, kind="large-cell", size=4096, marks=True) -> SlideSpec:
    site = make_site("site-a", 0.5, np.random.default_rng(1))
    return SlideSpec(size, size, kind, site, seed, marks)


def test_openslide_reads_every_level(slide_path):
    with openslide.OpenSlide(slide_path) as slide:
        assert slide.level_dimensions == tuple(level_sizes(4500, 4097))
        assert float(slide.properties["openslide.mpp-x"]) == pytest.approx(0.5)
        assert float(slide.properties["openslide.mpp-y"]) == pytest.approx(0.5)
        for level, (w, h) in enumerate(slide.level_dimensions):
            pixels = np.asarray(slide.read_region((0, 0), level, (w, h)))
            assert (pixels[..., 3] == 255).all()
            # Bright glass in the corner, tissue somewhere.
            assert pixels[:4, :4, :3].min() > 215
            assert np.quantile(pixels[..., 1], 0.1) < 190


def test_each_level_is_the_one_below_halved(slide_path):
    with tifffile.TiffFile(slide_path) as tiff:
        levels = [page.asarray().astype(float) for page in tiff.pages]
    for below, level in itertools.pairwise(levels):
        h, w = below.shape[0] // 2, below.shape[1] // 2
        halved = below[: 2 * h, : 2 * w].reshape(h, 2, w, 2, 3).mean((1, 3))
        # JPEG loses a little twice; a shift of one pixel gives over 6.
        assert np.abs(halved - level[:h, :w]).mean() < 3.5


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bytes_whatever_the_workers(tmp_path, slide_path):
    again = tmp_path / "again.tif"
    size = (4500, 4097)
    run_through(
        write_sample_slide(again, kind="large-cell", size=size, seed=3, workers=2)
    )
    assert _digest(again) == _digest(slide_path)
    for ours, first in zip(truth_paths(again), truth_paths(slide_path), strict=True):
        if ours.suffix == ".png":
            assert _digest(ours) == _digest(first)
    assert plan(spec(seed=4)).classes.tobytes() != plan(spec(seed=3)).classes.tobytes()


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_truth_says_what_its_values_mean(slide_path, mask):
    mask_path, classes_path = truth_paths(slide_path)
    assert mask_path.name == "one.truth.png"
    facts = json.loads(classes_path.read_text())
    assert facts["scale"] == SCALE
    assert facts["um_per_pixel"] == SCALE * 0.5
    assert mask.shape == (-(-4097 // SCALE), -(-4500 // SCALE))
    assert {c["value"] for c in facts["classes"]} >= set(np.unique(mask).tolist())
    assert [c["name"] for c in facts["classes"] if c["tumour"]] == list(TUMOURS)
    for c in facts["classes"][1:]:
        true = (mask == c["value"]).sum() / (mask > 0).sum()
        assert c["fraction_of_tissue"] == pytest.approx(true, abs=1e-5)
    # Nothing opens the mask as a slide.
    assert openslide.OpenSlide.detect_format(mask_path) is None


def test_the_mask_lies_on_the_tissue(slide_path, mask):
    with tifffile.TiffFile(slide_path) as tiff:
        green = tiff.pages[0].asarray()[..., 1].astype(float)
    rows, cols = green.shape[0] // SCALE, green.shape[1] // SCALE
    cells = green[: rows * SCALE, : cols * SCALE].reshape(rows, SCALE, cols, SCALE)
    # Fat is white: only its walls tell it from glass.
    dark = cells.min((1, 3)) < 190
    tissue = mask[:rows, :cols] > 0
    inner = ndimage.binary_erosion(tissue, iterations=4)
    outer = ~ndimage.binary_dilation(tissue, iterations=4)
    assert dark[inner].mean() > 0.8
    assert dark[outer].mean() < 0.1
    best = _overlap(dark, tissue, 0, 0)
    for dy, dx in ((6, 0), (-6, 0), (0, 6), (0, -6)):
        assert _overlap(dark, tissue, dy, dx) < best


def _overlap(a: np.ndarray, b: np.ndarray, dy: int, dx: int) -> float:
    return float((np.roll(a, (dy, dx), (0, 1)) == b).mean())


def test_nuclei_are_denser_in_tumour_than_in_stroma(slide_path, mask):
    with tifffile.TiffFile(slide_path) as tiff:
        rgb = tiff.pages[0].asarray().astype(float)
    # Red light is what hematoxylin takes and eosin leaves.
    nucleus = rgb[..., 0] < 0.72 * np.quantile(rgb[..., 0], 0.95)
    share = {}
    for tissue in (TissueClass.LARGE_CELL, TissueClass.STROMA):
        inside = ndimage.binary_erosion(mask == tissue, iterations=2)
        where = np.kron(inside, np.ones((SCALE, SCALE), bool))[:4097, :4500]
        share[tissue] = nucleus[where].mean()
    assert share[TissueClass.LARGE_CELL] > 2 * share[TissueClass.STROMA]


@pytest.mark.parametrize("kind", TUMOURS)
def test_tumour_is_a_minority_and_of_one_kind(kind):
    for seed in range(4):
        classes = plan(spec(seed, kind)).classes
        share = (classes == TUMOURS[kind]).sum() / (classes > 0).sum()
        assert 0.05 < share < 0.3
        assert not np.isin(classes, [v for k, v in TUMOURS.items() if k != kind]).any()


def test_the_plan_without_its_tumour_does_not_depend_on_the_kind():
    plans = [plan(spec(5, kind)).classes for kind in TUMOURS]
    for kind, classes in zip(TUMOURS, plans, strict=True):
        classes[classes == TUMOURS[kind]] = TissueClass.GLANDULAR
    assert (plans[0] == plans[1]).all()
    assert (plans[0] == plans[2]).all()


@pytest.mark.parametrize("kind", TUMOURS)
def test_neighbouring_blocks_paint_their_border_alike(kind):
    """A block painted half a block aside must agree where both paint."""
    brush = painter(spec(3, kind))
    rows, cols = np.nonzero(brush.layout.classes == TUMOURS[kind])
    row, col = sorted(zip(rows.tolist(), cols.tolist(), strict=True))[len(rows) // 2]
    left, top = col * SCALE // BLOCK * BLOCK, row * SCALE // BLOCK * BLOCK
    plain = Painter(
        brush.spec,
        brush.layout,
        brush.tissue_colours,
        brush.red_colours,
        np.zeros_like(brush.grain),
    )
    half = BLOCK // 2
    one = plain.block(left, top)
    for dx, dy in ((half, 0), (0, half)):
        two = plain.block(left + dx, top + dy)
        a = one[dy:, dx:].astype(int)
        b = two[: BLOCK - dy, : BLOCK - dx].astype(int)
        # Stamps are added in another order: here and there the last bit of a sum, and
        # with it one or two grey levels, differs in a pixel. A seam would be more.
        differ = np.abs(a - b)
        assert differ.max() <= 2
        assert (differ > 0).mean() < 1e-4
    assert half > MARGIN


def test_progress_ends_complete_and_nothing_is_left_over(tmp_path):
    path = tmp_path / "new" / "slide.tif"
    events, found = run_through(write_sample_slide(path, size=4096, seed=9, workers=1))
    assert found == path
    assert all(isinstance(e, Progress) for e in events)
    assert events[-1].done == events[-1].total == 17
    names = {p.name for p in path.parent.iterdir()}
    assert names == {"slide.tif", "slide.truth.png", "slide.truth.json"}


def test_closing_the_generator_leaves_no_half_slide(tmp_path):
    path = tmp_path / "slide.tif"
    events = write_sample_slide(path, size=4096, seed=9, workers=1)
    next(events)
    events.close()
    assert not list(tmp_path.glob("*slide*.tif"))


def test_painting_does_not_run_the_users_script_again(tmp_path):
    """Such a script opens a napari window, and each process would open another."""
    script = tmp_path / "script.py"
    script.write_text(
        "print('window', flush=True)\n"
        "from spt_core.sample.slide_file import painters\n"
        "with painters(2) as pool:\n"
        "    print(pool.submit(abs, -2).result())\n"
    )
    done = subprocess.run(
        [sys.executable, script.name],
        cwd=tmp_path, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "window\n2\n"), done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_painters_end_with_who_began_them(tmp_path):
    """One that hands over what nobody takes would wait for ever."""
    script = tmp_path / "script.py"
    script.write_text(
        "import os, signal\n"
        "from spt_core.sample.slide_file import painters\n"
        "with painters(2) as pool:\n"
        "    print(pool.submit(os.getpid).result(), flush=True)\n"
        "    for _ in range(4): pool.submit(bytes, 30_000_000)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run(
        [sys.executable, script.name],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=120,
    )  # fmt: skip
    until = time.monotonic() + 30
    while psutil.pid_exists(int(done.stdout)) and time.monotonic() < until:
        time.sleep(0.1)
    assert not psutil.pid_exists(int(done.stdout))


def test_a_cached_sample_is_made_once(tmp_path):
    events, made = run_through(sample_slide(size=4096, cache=tmp_path, workers=1))
    assert events
    changed = made.stat().st_mtime_ns
    events, found = run_through(sample_slide(size=4096, cache=tmp_path, workers=1))
    assert found == made
    assert not events
    assert made.stat().st_mtime_ns == changed


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"kind": "benign"}, "choose glandular"),
        ({"size": 100}, "from 4,096"),
        ({"size": (4096, 10**6)}, "from 4,096"),
    ],
)
def test_wrong_wishes_are_refused_with_a_sentence(tmp_path, options, sentence):
    with pytest.raises(InputError, match=sentence):
        next(write_sample_slide(tmp_path / "a.tif", **options))
    with pytest.raises(InputError, match=r"must end in \.tif"):
        next(write_sample_slide(tmp_path / "a.svs"))


def test_sample_imports_without_torch():
    code = "import sys, spt_core.sample; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_memory_stays_below_one_gibibyte_at_60000_px(tmp_path):
    out = tmp_path / "big.tif"
    code = (
        "from spt_core.sample import write_sample_slide\n"
        "if __name__ == '__main__':\n"
        f"    for _ in write_sample_slide({str(out)!r}, size=60000, workers=2): pass\n"
    )
    script = tmp_path / "make.py"
    script.write_text(code)
    process = subprocess.Popen([sys.executable, str(script)])
    most = 0

    def watch() -> None:
        nonlocal most
        while process.poll() is None:
            most = max(most, resident_bytes(process.pid))
            time.sleep(0.2)

    watcher = threading.Thread(target=watch)
    watcher.start()
    assert process.wait() == 0
    watcher.join()
    assert most < 2**30
    with openslide.OpenSlide(out) as slide:
        assert slide.dimensions == (60000, 60000)
