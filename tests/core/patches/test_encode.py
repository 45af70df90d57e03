"""Encoding a slide: the file, going on after a stop, and whatever can go wrong."""

import dataclasses
import itertools
import os
import shutil
import subprocess
import sys
import threading
import time

import h5py
import numpy as np
import openslide
import pytest
import tifffile
import torch
from PIL import Image

from spt_core import encode_slide, read_tokens
from spt_core.errors import InputError
from spt_core.events import Note, Progress
from spt_core.patches import (
    EncodeSettings,
    PartialTokens,
    SlideStarted,
    encode_slides,
    load_encoder,
    slide_tasks,
)
from spt_core.patches.order import coarse_to_fine
from tests.core.patches.conftest import make_slide, run_through, tissue_picture


@pytest.fixture(scope="module")
def encoded(tmp_path_factory, slide_path):
    from tests.core.patches.conftest import SETTINGS

    out = tmp_path_factory.mktemp("features")
    events, result = run_through(encode_slide(slide_path, out, SETTINGS))
    return events, result, read_tokens(result.path)


def test_features_are_what_the_encoder_gives_for_each_patch(encoded, slide_path):
    """Compared with the plainest loop: openslide, PIL, float32, one at a time."""
    _, _, tokens = encoded
    encoder = load_encoder("small-random")
    step = tokens.facts.l0_patch_xy[0]
    with openslide.OpenSlide(slide_path) as slide:
        level = slide.get_best_level_for_downsample(step / 64)
        down = round(slide.level_downsamples[level])
        for i in range(0, len(tokens), 11):
            x, y = (int(n) for n in tokens.xy[i])
            region = slide.read_region((x, y), level, (step // down, step // down))
            patch = region.convert("RGB").resize((64, 64), Image.Resampling.BILINEAR)
            pixels = torch.from_numpy(np.array(patch))[None]
            with torch.inference_mode():
                want = encoder(pixels, 64)[0].numpy()
            np.testing.assert_allclose(tokens.x[i], want, atol=2e-3)


def test_events_tell_everything_once(encoded):
    events, result, tokens = encoded
    started = [e for e in events if isinstance(e, SlideStarted)]
    assert [(e.total, e.done) for e in started] == [(len(tokens), 0)]
    parts = [e.tokens for e in events if isinstance(e, PartialTokens)]
    p = np.concatenate([part.p for part in parts])
    x = np.concatenate([part.x for part in parts])
    order = np.lexsort((p[:, 1], p[:, 0]))
    np.testing.assert_array_equal(p[order], tokens.p)
    np.testing.assert_array_equal(x[order], tokens.x)
    assert all(part.facts.g_origin == tokens.facts.g_origin for part in parts)
    progress = [e for e in events if isinstance(e, Progress)]
    assert progress[-1].done == progress[-1].total == len(tokens) == result.patches


def test_the_file_is_the_one_of_the_contract(encoded, slide_path):
    """Read by plain h5py as TRIDENT documents it."""
    _, result, _ = encoded
    assert result.path.name == "TCGA-A1.01.svs-like.h5"
    assert [p.name for p in result.path.parent.iterdir()] == [result.path.name]
    with h5py.File(result.path) as file:
        coords, features = file["coords"], file["features"]
        assert features.dtype == np.float32
        assert features.shape == (result.patches, 64)
        assert coords.dtype == np.int64
        attributes = dict(coords.attrs)
        g_rc, xy = file["g_rc"][()], coords[()]
        own = dict(file.attrs)
    assert attributes["patch_size"] == 64
    assert attributes["patch_size_level0"] == 128
    assert attributes["level0_magnification"] == 20
    assert attributes["target_magnification"] == 10
    assert attributes["overlap"] == 0
    assert (attributes["level0_width"], attributes["level0_height"]) == (2600, 2200)
    np.testing.assert_array_equal(g_rc[:, ::-1] * 128, xy)
    assert (np.lexsort((g_rc[:, 1], g_rc[:, 0])) == np.arange(len(g_rc))).all()
    assert own["encoder"] == "small-random"
    assert len(own["encoder_sha256"]) == len(own["slide_fingerprint"]) == 64
    assert own["mpp"] == 1.0
    assert own["patch_um"] == 64.0
    assert own["stain"] == "none"
    assert own["grid_origin"].tolist() == g_rc.min(axis=0).tolist()


def test_closing_keeps_what_is_done_and_the_next_run_goes_on(
    slide_path, tmp_path, settings, encoded
):
    few = dataclasses.replace(settings, batch_size=16)
    events = encode_slide(slide_path, tmp_path, few)
    seen = 0
    for event in events:
        if isinstance(event, Progress):
            seen = event.done
            if seen >= 40:
                break
    start = time.perf_counter()
    events.close()
    assert time.perf_counter() - start < 10
    assert not (tmp_path / "TCGA-A1.01.svs-like.h5").exists()
    again, result = run_through(encode_slide(slide_path, tmp_path, settings))
    started = next(e for e in again if isinstance(e, SlideStarted))
    assert seen <= started.done < started.total
    first = next(e for e in again if isinstance(e, PartialTokens))
    assert len(first.tokens) == started.done
    fresh = sum(e.done > 0 for e in again if isinstance(e, Progress))
    assert fresh
    tokens, whole = read_tokens(result.path), encoded[2]
    np.testing.assert_array_equal(tokens.xy, whole.xy)
    np.testing.assert_allclose(tokens.x, whole.x, atol=1e-5)
    assert [p.name for p in tmp_path.iterdir()] == [result.path.name]


def test_threads_and_batches_change_nothing(slide_path, tmp_path, settings, encoded):
    other = dataclasses.replace(
        settings, batch_size=7, readers=3, lanes=3, threads=1, device="cpu"
    )
    before = set(threading.enumerate())
    _, result = run_through(encode_slide(slide_path, tmp_path, other))
    tokens = read_tokens(result.path)
    np.testing.assert_array_equal(tokens.xy, encoded[2].xy)
    np.testing.assert_allclose(tokens.x, encoded[2].x, atol=1e-5)
    assert set(threading.enumerate()) <= before


def test_patches_of_which_a_buffer_holds_few(
    slide_path, tmp_path, settings, encoded, monkeypatch
):
    """As patches of 2,000 pixels are: blocks are cut to what a buffer takes."""
    from spt_core.patches import ring

    # Three patches of the level that is read, whatever the batch.
    monkeypatch.setattr(ring, "_SLOT_BYTES", 3 * 64 * 64 * 3 + 1)
    _, result = run_through(encode_slide(slide_path, tmp_path, settings))
    tokens = read_tokens(result.path)
    np.testing.assert_array_equal(tokens.xy, encoded[2].xy)
    np.testing.assert_allclose(tokens.x, encoded[2].x, atol=1e-5)


def test_no_batch_overtakes_another(slide_path, tmp_path, settings, monkeypatch):
    """However slow one read is, tokens come in the order of coarse to fine."""
    from spt_core.patches import pipeline

    read, calls = pipeline.read_patches, itertools.count()

    def sometimes_slow(*args):
        if next(calls) % 7 == 0:
            time.sleep(0.1)
        return read(*args)

    monkeypatch.setattr(pipeline, "read_patches", sometimes_slow)
    one = dataclasses.replace(settings, batch_size=4, lanes=2, readers=4)
    events, result = run_through(encode_slide(slide_path, tmp_path, one))
    parts = [e.tokens for e in events if isinstance(e, PartialTokens)]
    came = np.concatenate([part.p for part in parts])
    p = read_tokens(result.path).p
    g_rc = p + read_tokens(result.path).facts.g_origin
    want = p[np.concatenate(list(coarse_to_fine(g_rc)))]
    np.testing.assert_array_equal(came, want)


def test_torch_keeps_its_threads_for_others(slide_path, tmp_path, settings):
    before = torch.get_num_threads()
    alone = dataclasses.replace(settings, lanes=2, threads=1)
    for event in encode_slide(slide_path, tmp_path, alone):
        assert torch.get_num_threads() == before
        if isinstance(event, Progress):
            break
    assert torch.get_num_threads() == before
    found = []
    thread = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert found == [before]


def test_closing_at_any_moment_leaves_no_lock(tmp_path, settings):
    """Between two slides as well: every log can be opened again at once."""
    paths = [make_slide(tmp_path / f"s{i}.tif", 900, 800, seed=i) for i in range(3)]
    tasks = slide_tasks(paths, tmp_path / "f")
    for moment in (0, 1, 2, 4, 7):
        events = encode_slides(tasks, dataclasses.replace(settings, batch_size=8))
        for i, _ in enumerate(events):
            if i == moment:
                break
        events.close()
    _, results = run_through(encode_slides(tasks, settings))
    assert {r.status for r in results} <= {"done", "skipped"}
    names = sorted(p.name for p in (tmp_path / "f").iterdir())
    assert names == ["s0.h5", "s1.h5", "s2.h5"]


def test_from_here_outwards(slide_path, tmp_path, settings):
    few = dataclasses.replace(settings, batch_size=16)
    events = encode_slide(slide_path, tmp_path, few, l0_from=(700, 1100))
    first = next(e for e in events if isinstance(e, PartialTokens))
    events.close()
    far = np.linalg.norm(first.tokens.xy + 64 - np.array([700, 1100]), axis=1)
    assert far.max() < 700


def test_a_finished_slide_is_skipped_in_milliseconds(
    slide_path, tmp_path, settings, encoded
):
    encoder = load_encoder("small-random")
    tasks = slide_tasks([slide_path], encoded[1].path.parent)
    times = []
    for _ in range(3):
        start = time.perf_counter()
        _, results = run_through(encode_slides(tasks, settings, encoder=encoder))
        times.append(time.perf_counter() - start)
        assert [r.status for r in results] == ["skipped"]
        assert results[0].patches == len(encoded[2])
    assert min(times) < 0.1


def test_other_settings_and_a_changed_slide_are_said(tmp_path, settings):
    path = make_slide(tmp_path / "s.tif", 1200, 1000)
    out = tmp_path / "f"
    run_through(encode_slide(path, out, settings))
    other = dataclasses.replace(settings, patch_size=50)
    with pytest.raises(InputError, match=r"patch size 64 there, 50 here.*--redo"):
        run_through(encode_slide(path, out, other))
    # Touched, but the same slide.
    os.utime(path, (1, 1))
    assert run_through(encode_slide(path, out, settings))[1].status == "skipped"
    make_slide(path, 1200, 1000, seed=9)
    with pytest.raises(InputError, match="the file has changed"):
        run_through(encode_slide(path, out, settings))
    redo = dataclasses.replace(other, redo=True)
    assert run_through(encode_slide(path, out, redo))[1].status == "done"
    assert read_tokens(out / "s.h5").facts.patch_size == 50


def without_mpp(path, seed=0):
    rgb = tissue_picture(1200, 1000, seed)
    tifffile.imwrite(path, rgb, tile=(256, 256), photometric="rgb")
    return path


@pytest.mark.parametrize("is_of_before", [False, True])
def test_a_corrected_pixel_size_is_not_skipped(tmp_path, settings, is_of_before):
    path = without_mpp(tmp_path / "s.tif")
    half, quarter = (
        dataclasses.replace(settings, slide_mpp=mpp) for mpp in (0.5, 0.25)
    )
    assert run_through(encode_slide(path, tmp_path, half))[1].status == "done"
    with h5py.File(tmp_path / "s.h5", "r+") as file:
        assert file.attrs["slide_mpp"].tolist() == [0.5, 0.5]
        if is_of_before:
            del file.attrs["slide_mpp"]
    for same in (half, settings):
        assert run_through(encode_slide(path, tmp_path, same))[1].status == "skipped"
    other = (
        "patch size level0 128 there, 256" if is_of_before else "mpp 0.5 there, 0.25"
    )
    with pytest.raises(InputError, match=f"other settings .*{other} here"):
        run_through(encode_slide(path, tmp_path, quarter))
    # The same from a table of the slides.
    (task,) = slide_tasks([path], tmp_path, {"s": 0.25})
    _, (result,) = run_through(encode_slides([task], half))
    assert (result.status, other in result.reason) == ("failed", True)
    redo = dataclasses.replace(quarter, redo=True)
    assert run_through(encode_slide(path, tmp_path, redo))[1].status == "done"
    assert read_tokens(tmp_path / "s.h5").facts.l0_patch_xy == (256, 256)


@pytest.mark.parametrize("is_of_before", [False, True])
def test_a_slide_that_says_its_pixel_size_is_skipped_whatever_is_given(
    tmp_path, settings, is_of_before
):
    path = make_slide(tmp_path / "s.tif", 900, 800)
    run_through(encode_slide(path, tmp_path, settings))
    if is_of_before:
        with h5py.File(tmp_path / "s.h5", "r+") as file:
            del file.attrs["slide_mpp"]
    other = dataclasses.replace(settings, slide_mpp=0.25)
    assert run_through(encode_slide(path, tmp_path, other))[1].status == "skipped"


def test_a_skip_opens_no_slide_where_the_same_pixel_size_is_given(
    tmp_path, settings, monkeypatch
):
    from spt_core.patches import job

    path = without_mpp(tmp_path / "s.tif")
    half = dataclasses.replace(settings, slide_mpp=0.5)
    run_through(encode_slide(path, tmp_path, half))
    monkeypatch.setattr(job, "open_slide", None)
    assert run_through(encode_slide(path, tmp_path, half))[1].status == "skipped"


def test_unfinished_work_of_another_pixel_size_is_not_mixed(tmp_path, settings):
    """Sizes so near to each other that the patches are the same rows of the grid."""
    path = without_mpp(tmp_path / "s.tif")
    some = dataclasses.replace(settings, slide_mpp=0.5, batch_size=4)
    events = encode_slide(path, tmp_path, some)
    next(e for e in events if isinstance(e, PartialTokens))
    events.close()
    near = dataclasses.replace(some, slide_mpp=0.501)
    with pytest.raises(InputError, match=r"unfinished work.*slide mpp"):
        run_through(encode_slide(path, tmp_path, near))


def test_unfinished_work_of_other_settings_is_not_mixed(tmp_path, settings):
    path = make_slide(tmp_path / "s.tif", 1800, 1500)
    few = dataclasses.replace(settings, batch_size=16)
    events = encode_slide(path, tmp_path, few)
    next(e for e in events if isinstance(e, PartialTokens))
    events.close()
    other = dataclasses.replace(settings, min_tissue=0.9)
    with pytest.raises(InputError, match=r"unfinished work.*min tissue"):
        run_through(encode_slide(path, tmp_path, other))
    redo = dataclasses.replace(other, redo=True)
    assert run_through(encode_slide(path, tmp_path, redo))[1].status == "done"


def test_one_patch_and_none(tmp_path, settings):
    rng = np.random.default_rng(0)
    rgb = np.clip(rng.normal((190, 120, 170), 30, (150, 150, 3)), 0, 255)
    tifffile.imwrite(
        tmp_path / "one.tif",
        rgb.astype(np.uint8),
        tile=(64, 64),
        photometric="rgb",
        resolution=(2e4, 2e4),
        resolutionunit="CENTIMETER",
    )
    _, result = run_through(encode_slide(tmp_path / "one.tif", tmp_path, settings))
    assert result.patches == 1
    assert read_tokens(result.path).p.tolist() == [[0, 0]]
    glass = np.clip(rng.normal(235, 1, (900, 900, 3)), 0, 255).astype(np.uint8)
    tifffile.imwrite(
        tmp_path / "glass.tif",
        glass,
        tile=(256, 256),
        photometric="rgb",
        resolution=(2e4, 2e4),
        resolutionunit="CENTIMETER",
    )
    with pytest.raises(InputError, match="no tissue was found"):
        run_through(encode_slide(tmp_path / "glass.tif", tmp_path, settings))
    large = dataclasses.replace(settings, patch_size=600)
    with pytest.raises(InputError, match="smaller than one patch"):
        run_through(encode_slide(tmp_path / "glass.tif", tmp_path, large))
    left = {p.name for p in tmp_path.iterdir()}
    assert left == {"one.tif", "one.h5", "glass.tif"}


def test_patches_that_cannot_be_decoded_are_left_out_and_said(tmp_path, settings):
    """A tile of level 0, while the level that shows the tissue is sound."""
    settings = dataclasses.replace(settings, target_mpp=0.5)
    path = make_slide(tmp_path / "s.tif", 1536, 1536, compression="jpeg")
    with tifffile.TiffFile(path) as tiff:
        page = tiff.pages[0]
        middle = len(page.dataoffsets) // 2 + 4
        offset, size = page.dataoffsets[middle], page.databytecounts[middle]
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(b"\0" * size)
    events, result = run_through(encode_slide(path, tmp_path, settings))
    notes = " ".join(e.message for e in events if isinstance(e, Note))
    assert "cannot be decoded and are left out" in notes
    whole = next(e for e in events if isinstance(e, SlideStarted)).total
    assert 16 <= whole - result.patches <= 36
    assert len(read_tokens(result.path)) == result.patches


def test_memory_that_does_not_suffice_halves_the_batch(
    slide_path, tmp_path, settings, encoded
):
    encoder = load_encoder("small-random")
    sizes = []

    class Hungry(torch.nn.Module):
        def __init__(self, module):
            super().__init__()
            self.module = module

        def forward(self, x):
            sizes.append(len(x))
            if len(x) > 5:
                raise torch.OutOfMemoryError("out of memory")
            return self.module(x)

    encoder.module = Hungry(encoder.module)
    one_lane = dataclasses.replace(settings, lanes=1)
    _, result = run_through(
        encode_slide(slide_path, tmp_path, one_lane, encoder=encoder)
    )
    np.testing.assert_allclose(read_tokens(result.path).x, encoded[2].x, atol=1e-5)
    # Halved until it fits, and never tried so large again.
    assert sizes.count(32) <= 1
    assert max(sizes[3:]) <= 4


@pytest.mark.parametrize("readers", [1, 3])
@pytest.mark.parametrize("after", [0, 5])
def test_a_reader_that_fails_stops_its_slide_only(
    tmp_path, settings, monkeypatch, caplog, readers, after
):
    from spt_core.patches import pipeline

    read, calls = pipeline.read_patches, itertools.count()

    def failing(slide, *args):
        if slide.path.name == "s1.tif" and next(calls) >= after:
            raise KeyError("a tile that nobody foresaw")
        return read(slide, *args)

    tasks = slide_tasks(
        [make_slide(tmp_path / f"s{i}.tif", 900, 800, seed=i) for i in range(3)],
        tmp_path / "f",
    )
    few = dataclasses.replace(settings, batch_size=4, readers=readers)
    with monkeypatch.context() as patched:
        patched.setattr(pipeline, "read_patches", failing)
        _, results = run_through(encode_slides(tasks, few))
    assert {r.name: r.status for r in results} == {
        "s0": "done",
        "s1": "failed",
        "s2": "done",
    }
    reason = next(r.reason for r in results if r.status == "failed")
    assert "KeyError: 'a tile that nobody foresaw'" in reason
    assert "cannot be read" in caplog.text
    # What was sound is there, and the slide can be finished.
    events, again = run_through(encode_slides(tasks, few))
    assert sorted(r.status for r in again) == ["done", "skipped", "skipped"]
    started = next(e for e in events if isinstance(e, SlideStarted))
    if after == 0 or readers == 1:
        assert (started.done > 0) == (after > 0)
    assert len(read_tokens(tmp_path / "f" / "s1.h5")) == started.total


def test_an_encoder_that_fails_raises_and_leaves_no_thread(
    slide_path, tmp_path, settings
):
    encoder = load_encoder("small-random")

    class Broken(torch.nn.Module):
        def forward(self, x):
            raise RuntimeError("a defect")

    encoder.module = Broken()
    before = threading.active_count()
    with pytest.raises(RuntimeError, match="a defect"):
        run_through(encode_slide(slide_path, tmp_path, settings, encoder=encoder))
    assert threading.active_count() == before
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform != "linux", reason="/sys is Linux's")
def test_an_output_that_cannot_be_written_is_a_sentence(slide_path, settings):
    with pytest.raises(InputError, match=r"cannot be written to.*another --out"):
        run_through(encode_slide(slide_path, "/sys/features", settings))


FULL = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))
from spt_core.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="limits are POSIX's")
def test_a_full_disk_is_a_sentence_and_the_rest_is_kept(slide_path, tmp_path):
    """The system refuses to let files grow beyond 40 kB."""
    arguments = ["encode", str(slide_path), "--out", str(tmp_path / "f")]
    arguments += ["--encoder", "small-random", "--patch-size", "64"]
    arguments += ["--target-mpp", "1", "--batch-size", "32"]
    full = subprocess.run(
        [sys.executable, "-c", FULL, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert full.returncode == 1
    assert "cannot be written" in full.stdout
    assert "What was written before is kept" in full.stdout
    assert "Traceback" not in full.stderr
    partial = tmp_path / "f" / "TCGA-A1.01.svs-like.h5.partial"
    assert 20_000 < partial.stat().st_size <= 40_000
    settings = EncodeSettings(
        encoder="small-random", patch_size=64, target_mpp=1.0, batch_size=32
    )
    events, result = run_through(encode_slide(slide_path, tmp_path / "f", settings))
    assert next(e for e in events if isinstance(e, SlideStarted)).done > 50
    assert result.status == "done"


def test_a_disk_that_is_full_at_the_end_stops_one_slide_only(
    tmp_path, settings, monkeypatch
):
    tasks = slide_tasks(
        [make_slide(tmp_path / f"s{i}.tif", 900, 800, seed=i) for i in range(2)],
        tmp_path / "f",
    )
    usage, calls = shutil.disk_usage, itertools.count()

    def full_at_first(path):
        found = usage(path)
        return found._replace(free=0) if next(calls) == 0 else found

    monkeypatch.setattr(shutil, "disk_usage", full_at_first)
    _, results = run_through(encode_slides(tasks, settings))
    assert [r.status for r in results] == ["failed", "done"]
    assert "No space left" in results[0].reason
    assert "What was written before is kept" in results[0].reason
    assert (tmp_path / "f" / "s0.h5.partial").stat().st_size > 1000
    events, again = run_through(encode_slides(tasks, settings))
    assert sorted(r.status for r in again) == ["done", "skipped"]
    started = next(e for e in events if isinstance(e, SlideStarted))
    assert started.done == started.total


def test_two_slides_of_one_name_stop_the_run(tmp_path):
    (tmp_path / "a").mkdir()
    with pytest.raises(InputError, match="Two slides are called s"):
        slide_tasks([tmp_path / "a" / "s.tif", tmp_path / "s.svs"], tmp_path)
