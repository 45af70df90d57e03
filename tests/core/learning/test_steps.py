"""Runs are as long as their steps say, and small cohorts get enough of them."""

import pytest

from spt_core.errors import InputError
from spt_core.events import Note
from spt_core.learning.settings import (
    LEAST_STEPS,
    LEAST_STEPS_WITH_LABELS,
    TrainSettings,
)
from spt_core.learning.training import train
from tests.core.learning.runs import tiny


def resolved(slides, objective="simclr", **changes):
    settings = TrainSettings("x", objective, "run", labels="y", **changes)
    return settings.resolved(slides, on_cpu=True)


def steps(settings, slides):
    return settings.epochs * max(1, slides // settings.batch_size)


@pytest.mark.parametrize(
    "objective", ["simclr", "vicreg", "byol", "supcon", "classify"]
)
@pytest.mark.parametrize("slides", [2, 20, 36, 120, 3000])
def test_every_cohort_gets_enough_steps(slides, objective):
    supervised = objective in ("supcon", "classify")
    least = LEAST_STEPS_WITH_LABELS if supervised else LEAST_STEPS
    assert steps(resolved(slides, objective), slides) >= least


def test_large_cohorts_take_the_papers_epochs():
    assert resolved(3000).epochs == 800
    assert resolved(3000, "classify").epochs == 100


def test_what_is_asked_for_is_taken():
    assert resolved(36, epochs=5).epochs == 5
    assert resolved(36, steps=200).epochs == 200  # one batch
    of_seven = resolved(70, steps=30, batch_size=10)
    assert of_seven.epochs == 5  # 35 steps: the last epoch is finished
    assert of_seven.steps is None  # so that it can be resolved again
    assert of_seven.resolved(70, on_cpu=True) == of_seven
    with pytest.raises(InputError, match="epochs or of steps, not both"):
        resolved(36, epochs=3, steps=7)


def test_a_run_opens_with_its_steps(cohort, tmp_path):
    run = tiny(cohort, tmp_path / "run", epochs=None, steps=7)
    events = train(run)
    said = [next(events) for _ in range(2)]
    events.close()
    assert all(isinstance(one, Note) for one in said)
    text = " ".join(one.message for one in said)
    assert "9 steps (3 epochs of 3) on cpu" in text
