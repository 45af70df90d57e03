"""What is in memory changes while training; nothing depends on when it is read."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from spt_core.events import Progress
from spt_core.patches.encoder_card import read_encoder_card
from spt_core.patches.training import resume_patches, train_patches
from spt_core.patches.training.plan import PatchPlan
from spt_core.patches.training.window import Window, held_in
from tests.core.patches.conftest import make_slide
from tests.core.patches_training.made_tiles import SIDE, write_tiles
from tests.core.patches_training.test_pool import opened, settings_for
from tests.core.patches_training.test_train_patches import assert_bitwise, quick
from tests.events import run_through as finish

CPU = torch.device("cpu")
ROOM = 40 * SIDE * SIDE * 3 / 1e9  # of 96 tiles


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_tiles(tmp_path_factory.mktemp("made") / "data")


@pytest.fixture(scope="module")
def slide(tmp_path_factory):
    return make_slide(tmp_path_factory.mktemp("slide") / "one.tif", 1500, 1400)


@pytest.mark.parametrize(("total", "held", "share"), [(10, 4, 0.25), (7, 6, 0.5)])
def test_a_window_sees_all_equally_often_and_none_twice(total, held, share):
    window = Window.of(total, held, share)
    seen = np.zeros(total, int)
    before = window.at(0)
    for epoch in range(total):
        now = window.at(epoch)
        assert len(set(now.tolist())) == held
        assert (now != before).sum() in (0, window.fresh)
        assert set(now.tolist()) <= set(range(window.used(epoch)))
        seen[now] += 1
        before = now
    assert seen.min() == seen.max()
    assert Window.of(5, 9, 0.5) == Window(5, 5, 0)


def test_any_window_fits_in_memory():
    sizes = [5, 1, 1, 1, 5, 5]
    assert held_in(sizes, 18) == 6
    assert held_in(sizes, 11) == 2  # 5, 5, 5 do not fit, around the end
    assert held_in([], 0) == 0


def test_a_slide_shows_new_patches_in_every_epoch(slide):
    settings = settings_for(
        slide.parent, sources=(str(slide),), tables=(), patches_per_slide=20,
        refresh=0.25,
    )  # fmt: skip
    source, _ = opened(settings)
    first = source.at(0).tiles
    pools = [source.at(epoch) for epoch in range(4)]
    for one, other in pairwise(pools):
        pairs = zip(one.tiles, other.tiles, strict=True)
        assert sum(not np.array_equal(a, b) for a, b in pairs) == 5
        assert np.array_equal(one.item, other.item)
    assert len({tile.tobytes() for pool in pools for tile in pool.tiles}) == 35
    # from another epoch, or from a new start: the same
    again, _ = opened(settings)
    for one, other in zip(again.at(3).tiles, pools[3].tiles, strict=True):
        assert np.array_equal(one, other)
    for one, other in zip(source.at(0).tiles, first, strict=True):
        assert np.array_equal(one, other)
    kept, _ = opened(replace(settings, refresh=0.0))
    assert not kept.is_renewed


def test_tiles_beyond_memory_take_turns(folder):
    source, notes = opened(settings_for(folder, memory_gb=ROOM, refresh=0.25))
    # what is read ahead has its place in the same memory
    assert len(source.at(0)) == 32
    assert source.at(0).nbytes * 1.25 <= ROOM * 1e9
    assert "64 tiles and patches are left out at a time" in notes[-1]
    seen = [set(source.at(epoch).item.tolist()) for epoch in range(9)]
    assert [len(a - b) for a, b in pairwise(seen)] == [8] * 8
    assert set().union(*seen) == set(range(96))
    assert len(source.fingerprints(0)) == 32
    assert len(source.fingerprints(2)) == 48
    for pool in (source.at(5),):  # whose they are stays true
        assert np.array_equal(source.whose[pool.item, 0], pool.patient)
        assert np.array_equal(source.whose[pool.item, 1], pool.slide)


@pytest.mark.parametrize("method", ["simclr", "hidisc"])
def test_a_stopped_run_goes_on_with_the_patches_of_its_epoch(
    folder, slide, tmp_path, method
):
    settings = quick(
        folder, tmp_path / "whole", sources=(str(folder / "tiles"), str(slide)),
        method=method, memory_gb=ROOM, patches_per_slide=12, refresh=0.3, epochs=4,
        batch_size=16,
    )  # fmt: skip
    _, whole = finish(train_patches(settings))
    events = train_patches(replace(settings, out=str(tmp_path / "parts")))
    for event in events:
        if isinstance(event, Progress) and "loss" in event.message and event.done == 5:
            break
    events.close()
    _, parts = finish(resume_patches(tmp_path / "parts"))
    assert_bitwise(parts.encoder, whole.encoder)
    cards = [read_encoder_card(one.encoder) for one in (whole, parts)]
    assert cards[0].training.slide_fingerprints == cards[1].training.slide_fingerprints
    kept = replace(settings, out=str(tmp_path / "kept"), refresh=0.0)
    _, other = finish(train_patches(kept))
    with pytest.raises(AssertionError):
        assert_bitwise(other.encoder, whole.encoder)


def test_views_do_not_depend_on_the_number_of_threads(folder):
    settings = settings_for(folder, batch_size=30)
    source, _ = opened(settings)
    threads = torch.get_num_threads()
    made = []
    for workers in (1, 3):
        plan = PatchPlan(source, replace(settings, workers=workers), 30, CPU)
        made.append(torch.cat([chunk.inputs[0] for chunk in plan.make(2).chunks]))
    assert torch.equal(*made)
    assert torch.get_num_threads() == threads
