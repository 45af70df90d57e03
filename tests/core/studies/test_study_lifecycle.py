"""A study at work leaves nobody behind, however it ends, and is heard at once."""

import shutil
import subprocess
import sys
import time
from dataclasses import replace

import psutil
import pytest
import torch
from safetensors.torch import load_file

from spt_core.engine.study_queue import StudyQueue, serve_apart
from spt_core.errors import InputError
from spt_core.events import Note, finish
from spt_core.learning.model_card import read_model_card
from spt_core.patches.job import NotWrittenError
from spt_core.patches.settings import SlideResult
from spt_core.studies import study_stages
from spt_core.studies.study import study
from spt_core.studies.study_folder import Request, StudyFolder
from spt_core.studies.study_runs import latest_run
from spt_core.training.run_folder import RunFolder
from tests.core.studies.benchmarks import write_benchmark_cohort
from tests.core.studies.study_cohorts import of_slides, study_of, wait_for
from tests.processes import is_running, kill

# A request is in effect within three seconds, and seen within one.
HEARD, IN_EFFECT = 1.0, 3.0
# What looks for its parent's end.
GONE = 12.0
LONG = 200_000


@pytest.fixture(scope="module")
def cohort(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cohort")
    return write_benchmark_cohort(folder, patients=12, slides_each=1, sites=2)


@pytest.fixture
def queue(tmp_path):
    """Nobody of it is left after the test, also where the test fails."""
    queue = StudyQueue(tmp_path / "studies.json")
    yield queue
    for one in queue.studies():
        queue.leave(one.folder.path)
        state = one.folder.state()
        if state is not None and one.folder.is_held():
            kill(state.pid)


def at_work(queue, settings, stage):
    """A study in a process of its own that has come to a stage, and its processes."""
    folder = StudyFolder(settings.out)
    folder.begin(settings)
    queue.add(folder.path)
    serve_apart(queue)

    def is_there():
        state = folder.state()
        return state is not None and state.stage == stage and folder.is_held()

    wait_for(is_there, 120)
    events = ("patchepoch", "epoch", "progress", "validation")
    wait_for(
        lambda: any(
            one["stage"] == stage and one["event"] in events
            for one in folder.read_events()[0]
        ),
        120,
    )
    study = psutil.Process(folder.state().pid)
    return folder, [study.pid, *(one.pid for one in study.children(recursive=True))]


def is_left(pids):
    return [pid for pid in pids if is_running(pid)]


@pytest.fixture
def many_slides(painted, slides):
    """Copies of a painted slide, to be read for a while."""
    first = sorted(slides.iterdir())[0]
    for number in range(40):
        shutil.copyfile(first, slides / f"copy{number}.tif")
    return slides


@pytest.fixture(params=["encode", "evaluate", "train"])
def busy(request, queue, cohort, tmp_path):
    """A study in each of its long stages; where it can, in several processes."""
    stage, out = request.param, tmp_path / "study"
    if stage == "encode":
        settings = of_slides(request.getfixturevalue("many_slides"), out)
    elif stage == "evaluate":
        settings = study_of(cohort, out, steps=LONG, workers=2)
    else:
        settings = study_of(cohort, out, "pretrain", labels=None, steps=LONG)
    folder, pids = at_work(queue, settings, stage)
    assert stage == "train" or len(pids) > 1
    return folder, pids


@pytest.mark.slow
def test_killed_it_leaves_nobody(busy, queue):
    folder, pids = busy
    kill(pids[0])
    wait_for(lambda: not is_left(pids), GONE)
    wait_for(lambda: not queue.is_served(), GONE)
    assert not folder.is_held()
    assert folder.state().status == "running"  # nobody could say otherwise
    assert folder.request() is None


@pytest.mark.slow
@pytest.mark.parametrize("request_", [Request.PAUSE, Request.DISCARD])
def test_asked_it_ends_in_three_seconds(busy, queue, request_):
    folder, pids = busy
    run = folder.state().run
    began = time.monotonic()
    folder.ask(request_)
    wait_for(lambda: folder.state().request, HEARD)
    wait_for(lambda: not folder.is_held(), 20)
    took = time.monotonic() - began
    wait_for(lambda: not is_left(pids), GONE)
    assert (
        folder.state().status == {"pause": "paused", "discard": "discarded"}[request_]
    )
    assert folder.request() is None
    if run and request_ is Request.DISCARD:
        assert not (folder.run(run) / "run.json").exists()
    # Half a second is for the poll and for a machine that does other things too.
    assert took < IN_EFFECT + 0.5


# A study whose steps do not end after the fifth, or from the first on; each step before
# leaves a checkpoint.
ENDLESS = """
import sys, time
from pathlib import Path
from spt_core.events import finish
from spt_core.studies.study import study
from spt_core.studies.study_settings import StudySettings
from spt_core.training.checkpoint_clock import CheckpointClock
from spt_core.training.run import TrainingRun

CheckpointClock.due = lambda self, step: True
quick = TrainingRun._set_gradients

def endless(run, batch):
    if run.step == int(sys.argv[2]):
        (Path(sys.argv[1]) / "endless").touch()
        time.sleep(100)
    quick(run, batch)

TrainingRun._set_gradients = endless
if __name__ == "__main__":
    settings = StudySettings.read(Path(sys.argv[1]) / "study.yaml")
    finish(study(settings, hard_after=0.5))
"""


def in_a_step_that_does_not_end(cohort, out, step):
    """The folder of a study, and the process that is in the step."""
    folder = StudyFolder(out)
    folder.begin(study_of(cohort, out, "pretrain", labels=None, steps=20))
    process = subprocess.Popen([sys.executable, "-c", ENDLESS, str(out), str(step)])
    wait_for((out / "endless").exists, 120)
    return folder, process


def broken_off(folder, process, request_):
    """Ask, and wait until the process is gone and what it leaves to do is done."""
    began = time.monotonic()
    folder.ask(request_)
    wait_for(lambda: folder.state().status == "stopping", HEARD)
    assert process.wait(20) == 0
    assert time.monotonic() - began < IN_EFFECT
    wait_for(lambda: folder.state().status != "stopping", 60)
    wait_for(lambda: not folder.is_held(), 20)
    assert folder.request() is None


def same_weights(model, weights):
    ours = load_file(model)
    assert weights
    for name, weight in weights.items():
        torch.testing.assert_close(ours[f"encoder.{name}"], weight, rtol=0, atol=0)


@pytest.mark.slow
@pytest.mark.parametrize("kept", ["best", "last"])
def test_stopped_in_a_step_that_does_not_end_it_keeps_the_checkpoint(
    cohort, tmp_path, kept
):
    folder, process = in_a_step_that_does_not_end(cohort, tmp_path / "out", step=5)
    run = RunFolder(folder.run(1) / "model")
    saved = torch.load(run.checkpoint, weights_only=True)
    weights, step = saved["encoder"], saved["step"]
    assert step == 5
    if kept == "best" and 0 < saved["best"][1] < 5:
        step, best = saved["best"][1], load_file(run.best)
        weights = {name: best[f"encoder.{name}"] for name in weights}
    broken_off(folder, process, f"stop-keep-{kept}")
    state = folder.state()
    assert (state.status, state.request) == ("stopped", f"stop-keep-{kept}")
    assert latest_run(folder).status == "stopped"
    assert read_model_card(folder.model).metrics.step == step
    same_weights(folder.model, weights)
    said = (folder.report / "RESULT.md").read_text()
    assert f"took 5 steps. It was stopped on request, and the {kept} model" in said
    # Gone on with, it ends where one that was never stopped does.
    whole = study_of(cohort, tmp_path / "whole", "pretrain", labels=None, steps=20)
    finish(study(whole))
    finish(study(replace(whole, out=str(folder.path))))
    same_model = load_file(StudyFolder(whole.out).model)
    for name, weight in load_file(folder.model).items():
        torch.testing.assert_close(weight, same_model[name], rtol=0, atol=0)


@pytest.mark.slow
def test_stopped_in_a_first_step_that_does_not_end_there_is_no_model(cohort, tmp_path):
    folder, process = in_a_step_that_does_not_end(cohort, tmp_path / "out", step=0)
    broken_off(folder, process, "stop-keep-last")
    state = folder.state()
    assert state.status == "stopped"
    assert "There was no model to keep yet" in state.message
    assert not folder.model.exists()


@pytest.mark.slow
def test_when_one_is_killed_the_next_begins(cohort, queue, tmp_path):
    after = StudyFolder(tmp_path / "after")
    after.begin(study_of(cohort, after.path, "pretrain", labels=None, steps=2))
    first = study_of(cohort, tmp_path / "first", "pretrain", labels=None, steps=LONG)
    folder, pids = at_work(queue, first, "train")
    queue.add(after.path)
    kill(pids[0])
    wait_for(lambda: after.state() and after.state().status == "finished", 120)
    assert folder.state().status == "running"
    assert after.model.exists()
    wait_for(lambda: not queue.is_served(), GONE)


@pytest.mark.slow
def test_the_process_that_starts_studies_is_killed(cohort, queue, tmp_path):
    """What it started goes on to its end; what waits begins when it is asked again."""
    after = StudyFolder(tmp_path / "after")
    after.begin(study_of(cohort, after.path, "pretrain", labels=None, steps=2))
    first = study_of(cohort, tmp_path / "first", "pretrain", labels=None, steps=400)
    folder, pids = at_work(queue, first, "train")
    queue.add(after.path)
    kill(psutil.Process(pids[0]).ppid())
    wait_for(lambda: not queue.is_served(), GONE)
    assert is_running(pids[0])
    wait_for(lambda: folder.state().status == "finished", 120)
    assert len(queue.waiting()) == 2  # nobody was there to take notice
    assert after.state() is None
    serve_apart(queue)
    wait_for(lambda: after.state() and after.state().status == "finished", 120)
    wait_for(lambda: not queue.is_served(), GONE)
    assert queue.waiting() == []
    assert "Nothing is new" in folder.state().message


@pytest.mark.slow
def test_labels_edited_before_processes_read_them(cohort, tmp_path):
    """Nothing is mixed: it stops with a sentence, and goes on where they are back."""
    labels = tmp_path / "labels.csv"
    before = (cohort / "labels.csv").read_text()
    labels.write_text(before)
    settings = study_of(cohort, tmp_path / "out", workers=2, labels=str(labels))
    events = study(settings)
    for event in events:
        if isinstance(event, Note) and "at the same time" in event.message:
            labels.write_text(before.replace(",a,", ",b,", 1))
            break
    with pytest.raises(InputError, match="Slides or labels were changed") as raised:
        finish(events)
    assert "No model was made." in str(raised.value)
    assert StudyFolder(settings.out).state().status == "failed"
    labels.write_text(before)
    result = finish(study(settings))
    assert (result.status, result.run) == ("finished", 1)


def test_features_that_cannot_be_written_stop_it(slides, tmp_path, monkeypatch):
    """A full disk is not a slide's fault: none is left out for it."""
    full = NotWrittenError("the features of s cannot be written: No space left.", "x")

    def encode(tasks, _how):
        yield SlideResult(tasks[0].name, "failed", reason=str(full), error=full)
        raise AssertionError("it went on")

    monkeypatch.setattr(study_stages, "encode_in_processes", encode)
    with pytest.raises(InputError, match="No space left"):
        finish(study(of_slides(slides, tmp_path / "out")))
    state = StudyFolder(tmp_path / "out").state()
    assert (state.status, state.stage) == ("failed", "encode")
    assert "No space left" in state.message


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="a limit of files' sizes")
def test_a_disk_that_is_full_while_slides_are_read(slides, tmp_path):
    """The same of the command, in whose processes no file may grow beyond a little."""
    import resource

    words = [sys.executable, "-m", "spt_core", "study", str(tmp_path / "out")]
    words += ["--goal", "pretrain", "--slides", str(slides), "--steps", "2"]
    words += ["--device", "cpu"]

    def limited():
        resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, resource.RLIM_INFINITY))

    done = subprocess.run(
        words, preexec_fn=limited, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 1
    assert "cannot be written" in done.stderr
    assert "Traceback" not in done.stderr
    folder = StudyFolder(tmp_path / "out")
    assert folder.state().status == "failed"
    assert subprocess.run(words, capture_output=True, timeout=200).returncode == 0
    assert folder.state().status == "finished"
    assert len(list(folder.features.glob("*.h5"))) == 2
