"""Encoding a slide: the file, and going on after a stop."""

import dataclasses
import itertools
import pickle
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
from spt_core.events import Progress
from spt_core.patches import (
    PartialTokens,
    SlideStarted,
    encode_slides,
    load_encoder,
    slide_tasks,
)
from spt_core.patches.order import coarse_to_fine
from spt_core.slides.grid import TooCoarseError
from tests.core.patches.conftest import make_slide, run_through


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
    assert own["scanner"].split()[-2:] == ["0.500", "um"]
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


def test_why_a_slide_failed_survives_the_way_from_a_worker(tmp_path, settings):
    path = make_slide(tmp_path / "s.tif", 600, 500)
    coarse = dataclasses.replace(settings, target_mpp=0.1)
    _, (result,) = run_through(
        encode_slides(slide_tasks([path], tmp_path / "f"), coarse)
    )
    error = pickle.loads(pickle.dumps(result)).error
    assert isinstance(error, TooCoarseError)
    assert (str(error), error.target_mpp) == (result.reason, 0.1)
    assert error.mpp == pytest.approx(0.5)
