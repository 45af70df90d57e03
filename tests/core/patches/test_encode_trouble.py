"""Encoding, and whatever can go wrong with slides, memory, disks and encoders."""

import dataclasses
import itertools
import shutil
import subprocess
import sys
import threading

import numpy as np
import pytest
import tifffile
import torch

from spt_core import encode_slide, read_tokens
from spt_core.errors import InputError
from spt_core.events import Note, NoticeKind
from spt_core.patches import (
    EncodeSettings,
    SlideStarted,
    encode_slides,
    load_encoder,
    slide_tasks,
)
from tests.core.patches.conftest import make_slide, run_through


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
    events, result = run_through(
        encode_slide(slide_path, tmp_path, one_lane, encoder=encoder)
    )
    np.testing.assert_allclose(read_tokens(result.path).x, encoded[2].x, atol=1e-5)
    # The person hears of it, once.
    (note,) = [e for e in events if isinstance(e, Note)]
    assert note.kind == NoticeKind.SMALLER_BATCHES
    assert "smaller batches" in note.message
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
