"""What is done already, and what is to be done anew."""

import dataclasses
import os
import time

import h5py
import numpy as np
import pytest
import tifffile

from spt_core import encode_slide, read_tokens
from spt_core.errors import InputError
from spt_core.patches import (
    PartialTokens,
    SlideStarted,
    encode_slides,
    load_encoder,
    slide_tasks,
)
from tests.core.patches.conftest import make_slide, run_through, tissue_picture


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


class TwoWays:
    """Computes one way or the other; the two differ in the last digits."""

    def __init__(self, best, known):
        self.inner = load_encoder("small-random")
        self.card, self.sha256 = self.inner.card, self.inner.sha256
        self.best, self.known = best, known

    def to(self, device):
        return self

    def way(self, patches):
        return self.best

    def knows(self, way):
        return way in self.known

    def __call__(self, pixels, size, stain, way):
        x = self.inner(pixels, size, stain)
        return x if way == "torch" else x * (1 + 2**-20)


@pytest.mark.parametrize("knows_it", [True, False])
def test_a_slide_goes_on_in_the_way_it_was_begun_or_is_begun_again(
    tmp_path, settings, caplog, knows_it
):
    path = make_slide(tmp_path / "s.tif", 1200, 1000)
    begun = TwoWays("graph", ("torch", "graph"))
    other = TwoWays("torch", ("torch", "graph") if knows_it else ("torch",))
    some = dataclasses.replace(settings, batch_size=4)
    events = encode_slide(path, tmp_path / "cut", some, encoder=begun)
    next(e for e in events if isinstance(e, PartialTokens))
    events.close()
    events, result = run_through(
        encode_slide(path, tmp_path / "cut", some, encoder=other)
    )
    whole = begun if knows_it else other
    _, want = run_through(encode_slide(path, tmp_path / "whole", some, encoder=whole))
    have, want = read_tokens(result.path), read_tokens(want.path)
    assert np.array_equal(have.x, want.x)
    assert ("begun again" in caplog.text) is not knows_it
    (started,) = (e for e in events if isinstance(e, SlideStarted))
    assert (started.done > 0) is knows_it
