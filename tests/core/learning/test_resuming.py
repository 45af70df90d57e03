"""A run that was stopped, killed or cancelled goes on as if nothing had happened."""

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from spt_core import load_model
from spt_core.errors import InputError
from spt_core.events import Progress
from spt_core.learning.settings import TrainSettings
from spt_core.learning.training import resume, train
from tests.core.learning.runs import (
    assert_bitwise,
    copied,
    stop_after,
    tiny,
)
from tests.events import run_through as finish


def test_the_same_seed_gives_the_same_model(undisturbed, cohort, tmp_path):
    _, again = finish(train(tiny(cohort, tmp_path / "again")))
    assert_bitwise(again.last, undisturbed[1].last)
    assert_bitwise(again.best, undisturbed[1].best)
    _, other = finish(train(tiny(cohort, tmp_path / "other", seed=1)))
    with pytest.raises(AssertionError):
        assert_bitwise(other.last, undisturbed[1].last)


@pytest.mark.parametrize("stop_after", [1, 4, 6])
def test_a_cancelled_run_goes_on_to_the_same_weights(
    undisturbed, cohort, tmp_path, stop_after
):
    events = train(tiny(cohort, tmp_path / "run"))
    for event in events:
        if isinstance(event, Progress) and event.done == stop_after:
            break
    events.close()
    state = json.loads((tmp_path / "run" / "state.json").read_text())
    assert (state["status"], state["step"]) == ("stopped", stop_after)
    seen, result = finish(resume(tmp_path / "run"))
    first = next(event for event in seen if isinstance(event, Progress))
    assert first.done == stop_after + 1  # nothing was lost
    assert_bitwise(result.last, undisturbed[1].last)
    assert_bitwise(result.best, undisturbed[1].best)
    with (tmp_path / "run" / "metrics.csv").open() as file:
        resumed = list(csv.DictReader(file))
    with (undisturbed[1].run / "metrics.csv").open() as file:
        straight = list(csv.DictReader(file))
    for one, other in zip(resumed, straight, strict=True):
        assert one["loss"] == other["loss"]
        assert one["knn"] == other["knn"]


def test_a_run_does_not_go_on_with_other_slides(cohort, tmp_path):
    here = copied(cohort, tmp_path)
    stop_after(train(tiny(here, tmp_path / "run", labels=None)), 4)
    one = here / "features" / "slide003.h5"
    one.rename(tmp_path / "kept.h5")
    with pytest.raises(InputError, match="not those that the run"):
        finish(resume(tmp_path / "run"))
    shutil.copy(here / "features" / "slide004.h5", one)  # as many, but another
    with pytest.raises(InputError, match="not those that the run"):
        finish(resume(tmp_path / "run"))
    shutil.copy(tmp_path / "kept.h5", one)
    assert finish(resume(tmp_path / "run"))[1].steps == 9


def test_a_run_does_not_go_on_with_other_labels(cohort, tmp_path):
    here = copied(cohort, tmp_path)
    table = here / "labels.csv"
    before = table.read_text()
    stop_after(train(tiny(here, tmp_path / "run", "classify")), 4)
    first, *rows = before.splitlines()
    labels = [row.split(",")[1] for row in rows]
    other = next(label for label in labels if label != labels[0])
    rows[0] = rows[0].replace(f",{labels[0]}", f",{other}")
    table.write_text("\n".join([first, *rows]) + "\n")
    with pytest.raises(InputError, match="labels or the split are others"):
        finish(resume(tmp_path / "run"))
    table.write_text(before)
    assert finish(resume(tmp_path / "run"))[1].steps == 9


def test_a_run_that_does_not_say_its_slides_goes_on(cohort, tmp_path):
    """As those of older versions."""
    here = copied(cohort, tmp_path)
    stop_after(train(tiny(here, tmp_path / "run", labels=None)), 4)
    path = tmp_path / "run" / "checkpoint.pt"
    saved = torch.load(path, weights_only=True)
    assert saved.pop("material")
    torch.save(saved, path)
    assert finish(resume(tmp_path / "run"))[1].steps == 9


@pytest.mark.parametrize("objective", ["byol", "vicreg", "supcon", "classify"])
def test_every_objective_goes_on_to_the_same_weights(cohort, tmp_path, objective):
    kept = {"objective": objective, "epochs": 2}
    _, straight = finish(train(tiny(cohort, tmp_path / "straight", **kept)))
    events = train(tiny(cohort, tmp_path / "run", **kept))
    for event in events:
        if isinstance(event, Progress) and event.done == 3:
            break
    events.close()
    _, result = finish(resume(tmp_path / "run"))
    assert_bitwise(result.last, straight.last)
    model = load_model(result.last)
    if objective in ("supcon", "classify"):
        assert model.classes == ["a", "b", "c"]
        assert model.logits(torch.randn(5, 16)).shape == (5, 3)


def start_command(cohort, out, *more, epochs=400):
    command = [
        *(sys.executable, "-m", "spt_core", "train", str(cohort / "features")),
        *("--labels", str(cohort / "labels.csv"), "--objective", "simclr"),
        *("--out", str(out), "--model", "small", "--dim", "16", "--heads", "2"),
        *("--epochs", str(epochs), "--batch-size", "6", "--device", "cpu"),
        *("--checkpoint-steps", "2", "--validate-epochs", "1000", "--json", *more),
    ]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        preexec_fn=None if os.name == "nt" else hear_interrupts,
    )


def hear_interrupts():
    # A shell's background jobs, and so their children, ignore Ctrl-C.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def wait_for_step(process, step):
    for line in process.stdout:
        event = json.loads(line)
        if event["event"] == "progress" and event["done"] >= step:
            return event["done"]
    raise AssertionError(process.stderr.read())


def test_kill_loses_at_most_the_steps_since_the_checkpoint(cohort, tmp_path):
    process = start_command(cohort, tmp_path / "run")
    done = wait_for_step(process, 5)
    process.kill()
    process.communicate()
    settings = TrainSettings.read(tmp_path / "run" / "config.yaml")
    events = resume(tmp_path / "run")
    first = next(event for event in events if isinstance(event, Progress))
    events.close()
    assert first.done >= done - 2
    # from here on the same as never killed: run both to a common step
    _assert_same_checkpoint(settings, tmp_path, step=first.done + 3)


def _assert_same_checkpoint(settings, tmp_path, step):
    straight = replace(settings, out=str(tmp_path / "straight"))
    for events in (resume(tmp_path / "run"), train(straight)):
        for event in events:
            if isinstance(event, Progress) and event.done == step:
                break
        events.close()
    one, other = (
        torch.load(tmp_path / name / "checkpoint.pt", weights_only=True)
        for name in ("run", "straight")
    )
    assert one["step"] == other["step"] == step
    for name, tensor in one["encoder"].items():
        assert torch.equal(tensor, other["encoder"][name]), name


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGINT for a child")
def test_ctrl_c_keeps_what_is_done(cohort, tmp_path):
    process = start_command(cohort, tmp_path / "run")
    wait_for_step(process, 3)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "Stopped." in errors
    assert "Traceback" not in errors
    state = json.loads((tmp_path / "run" / "state.json").read_text())
    assert state["status"] == "stopped"
    events = resume(tmp_path / "run")
    first = next(event for event in events if isinstance(event, Progress))
    events.close()
    assert first.done >= state["step"] - 2
