"""The supervised baselines see whole slides, as far as memory allows."""

from dataclasses import replace

import pytest

from spt_core.events import Note
from spt_core.insight.windows import windows_like_training
from spt_core.learning import bags
from spt_core.learning.batches import SlidePlan
from spt_core.learning.model_card import read_model_card
from spt_core.learning.training import resume, train
from spt_core.learning.views import ViewSettings
from tests.core.learning.runs import assert_bitwise, stop_after, tiny
from tests.events import run_through as finish

TOKENS, DIM = 900, 32


@pytest.fixture
def lengths(monkeypatch):
    """How many tokens the views of all batches have."""
    seen, make = [], SlidePlan.make

    def watched(self, step):
        batch = make(self, step)
        for chunk in batch.chunks:
            seen.extend(chunk.inputs[-1].sum(dim=1).tolist())
        return batch

    monkeypatch.setattr(SlidePlan, "make", watched)
    return seen


def baseline(cohort, out, model="abmil", **changes):
    plain = tiny(cohort, out, "classify", model=model, architecture={}, epochs=1)
    return replace(plain, **changes)


def said(events):
    return " ".join(event.message for event in events if isinstance(event, Note))


@pytest.mark.parametrize("model", ["abmil", "mean", "max"])
def test_whole_slides_by_default(cohort, tmp_path, lengths, model):
    events, result = finish(train(baseline(cohort, tmp_path / "run", model)))
    assert set(lengths) == {TOKENS}
    assert f"{model} sees whole slides, of up to 900 tokens" in said(events)
    views = read_model_card(result.best).views
    assert not views.crop
    assert not views.mask


def room_for(monkeypatch, tokens):
    """Memory for so many tokens of 32 floats in a batch."""
    enough = tokens * (bags.AHEAD + 1) * 4 * DIM
    monkeypatch.setattr(bags, "CPU_WORKING_BYTES", enough)


def test_a_limit_by_memory_is_said_and_kept(cohort, tmp_path, lengths, monkeypatch):
    room_for(monkeypatch, 6 * 200)
    events, result = finish(train(baseline(cohort, tmp_path / "run")))
    assert set(lengths) == {200}
    assert "at most 200 tokens of a slide" in said(events)
    assert "18 of 18 slides have more" in said(events)
    views = read_model_card(result.best).views
    assert (views.crop, views.mask, views.max_tokens) == (False, True, 200)
    assert windows_like_training(views).fewest == 2  # as without a limit


def test_a_resumed_run_keeps_its_limit(cohort, tmp_path, lengths, monkeypatch):
    room_for(monkeypatch, 6 * 200)
    _, straight = finish(train(baseline(cohort, tmp_path / "straight")))
    stop_after(train(baseline(cohort, tmp_path / "run")), 2)
    room_for(monkeypatch, 6 * 100)
    _, result = finish(resume(tmp_path / "run"))
    assert set(lengths) == {200}
    assert_bitwise(result.last, straight.last)


def test_own_views_are_left_as_they_are(cohort, tmp_path, lengths):
    own = ViewSettings(max_tokens=50)
    events, result = finish(train(baseline(cohort, tmp_path / "run", views=own)))
    assert max(lengths) <= 50
    assert "whole slides" not in said(events)
    assert read_model_card(result.best).views == replace(own, views=1)


def test_a_slide_whose_places_are_moved_is_whole(cohort, tmp_path, lengths):
    moved = ViewSettings(turn=True, shift=16)
    _, result = finish(train(baseline(cohort, tmp_path / "run", views=moved)))
    assert set(lengths) == {TOKENS}
    views = read_model_card(result.best).views
    assert views == replace(moved, views=1, crop=False, mask=False)


def test_the_transformer_learns_from_crops(cohort, tmp_path, lengths):
    finish(train(tiny(cohort, tmp_path / "run", "classify", epochs=1)))
    assert max(lengths) <= 64


def test_a_baseline_to_start_from_is_known(cohort, tmp_path, lengths):
    _, first = finish(train(baseline(cohort, tmp_path / "first")))
    lengths.clear()
    tuned = tiny(cohort, tmp_path / "run", "classify", init=str(first.last), epochs=1)
    finish(train(tuned))
    assert set(lengths) == {TOKENS}
