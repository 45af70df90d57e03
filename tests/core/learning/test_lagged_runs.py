"""A run whose numbers are read some steps late, as on a GPU: the same in the end."""

import csv
import json
from functools import partial

import h5py
import pytest
import torch

from spt_core import load_model
from spt_core.events import Progress
from spt_core.learning.training import DivergedError, Epoch, resume, train
from spt_core.training import run as training_run
from spt_core.training.lagged import LaggedScalars
from tests.core.learning.runs import assert_bitwise, copied, stop_after, tiny
from tests.events import run_through as finish


@pytest.fixture(autouse=True)
def lagging(monkeypatch):
    slow = partial(LaggedScalars, every=4)
    monkeypatch.setattr(training_run, "LaggedScalars", slow)


def rows(run):
    with (run / "metrics.csv").open() as file:
        found = list(csv.DictReader(file))
    for row in found:
        del row["slides_per_second"]
    return found


def rarely(**changes):
    """Looked at and written at the end alone, so that nothing else asks for numbers."""
    return {"validate_epochs": 100, "checkpoint_steps": 1000, **changes}


def test_the_same_model_and_the_same_numbers(undisturbed, cohort, tmp_path):
    events, result = finish(train(tiny(cohort, tmp_path / "run")))
    assert_bitwise(result.last, undisturbed[1].last)
    assert rows(result.run) == rows(undisturbed[1].run)
    done = [event.done for event in events if isinstance(event, Progress)]
    assert done[:9] == list(range(1, 10))


def test_epochs_shorter_than_the_lag_are_all_recorded(cohort, tmp_path):
    one_step = tiny(cohort, tmp_path / "run", batch_size=18, epochs=7, **rarely())
    events, result = finish(train(one_step))
    assert [int(row["step"]) for row in rows(result.run)] == list(range(1, 8))
    assert sum(isinstance(event, Epoch) for event in events) == 7


@pytest.mark.parametrize("batch", [6, 18])
@pytest.mark.parametrize("stop", [1, 3, 4, 6])
def test_stopped_between_two_readings_and_resumed(cohort, tmp_path, batch, stop):
    settings = partial(tiny, cohort, batch_size=batch, epochs=9 * batch // 18)
    _, straight = finish(train(settings(tmp_path / "straight", **rarely())))
    stop_after(train(settings(tmp_path / "run", **rarely())), stop)
    state = json.loads((tmp_path / "run" / "state.json").read_text())
    assert state["step"] >= stop
    _, result = finish(resume(tmp_path / "run"))
    assert_bitwise(result.last, straight.last)
    assert rows(result.run) == rows(straight.run)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of numbers so large
def test_nan_that_is_read_late_has_harmed_nothing(cohort, tmp_path):
    folder = copied(cohort, tmp_path)
    with h5py.File(folder / "features" / "slide007.h5", "a") as file:
        file["features"][:] = 3e38  # a number, of which no other comes
    run = tiny(folder, tmp_path / "run", **rarely())
    with pytest.raises(DivergedError, match=r"(?s)in step \d of 9.*slide007"):
        finish(train(run))
    kept = load_model(tmp_path / "run" / "last.safetensors")
    assert all(torch.isfinite(w).all() for w in kept.encoder.parameters())
    state = json.loads((tmp_path / "run" / "state.json").read_text())
    assert state["status"] == "failed"
    with pytest.raises(DivergedError, match="slide007"):
        finish(resume(tmp_path / "run"))


def test_no_number_is_asked_for_in_between(cohort, tmp_path, monkeypatch):
    asked, all_of = [], LaggedScalars.all

    def counted(self):
        found = list(all_of(self))
        asked.append(len(found))
        return iter(found)

    monkeypatch.setattr(LaggedScalars, "all", counted)
    item = torch.Tensor.item

    def refused(self):
        raise AssertionError("a step waited for the device")

    run = tiny(cohort, tmp_path / "run", **rarely())
    events = train(run)
    monkeypatch.setattr(torch.Tensor, "item", refused)
    monkeypatch.setattr(torch.Tensor, "__float__", refused)
    for event in events:
        if isinstance(event, Progress) and event.done == 4:
            break
    monkeypatch.setattr(torch.Tensor, "item", item)
    monkeypatch.undo()
    events.close()
    assert asked[0] == 4
