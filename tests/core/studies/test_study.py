"""A study leaves a model, an honest table and no names; and it always goes on."""

import csv
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from spt_core.cli import main
from spt_core.errors import InputError
from spt_core.events import Note, finish
from spt_core.insight.results import pseudonym
from spt_core.learning.cohort import open_cohort
from spt_core.learning.details import LearningDetails
from spt_core.learning.model_card import read_model_card
from spt_core.studies import cell_work
from spt_core.studies.bench import open_bench
from spt_core.studies.benchmark_methods import METHODS
from spt_core.studies.benchmark_settings import BenchmarkSettings
from spt_core.studies.cells import Cell
from spt_core.studies.study import study
from spt_core.studies.study_check import check_study
from spt_core.studies.study_finding import About, Rank
from spt_core.studies.study_folder import Request, Stage, StudyFolder
from spt_core.studies.study_folds import kept_divisions, read_folds
from spt_core.studies.study_measure import measure_study
from spt_core.studies.study_model import pretrain_settings, train_settings
from spt_core.studies.study_recorder import Recorder
from spt_core.studies.study_runs import choose_run, end_run, latest_run
from spt_core.studies.study_settings import Goal, StudySettings
from spt_core.studies.study_training_time import CohortSize, trainings
from spt_core.tokens import read_labels, write_tokens
from spt_core.training.run_folder import RunFolder
from tests.core.studies.benchmarks import quick_settings, write_benchmark_cohort
from tests.core.studies.study_cohorts import (
    painted_slides,
    study_of,
    until,
    wait_for,
    without_labels,
)
from tests.made_tokens import grid_tokens


@pytest.fixture(scope="module")
def cohort(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cohort")
    return write_benchmark_cohort(folder, patients=24, slides_each=1, sites=2)


@pytest.fixture(scope="module")
def done(cohort, tmp_path_factory):
    """A finished study and its folder."""
    out = tmp_path_factory.mktemp("study")
    return finish(study(study_of(cohort, out))), StudyFolder(out)


# what it leaves


def test_settings_are_written_and_read(tmp_path, cohort):
    settings = study_of(cohort, tmp_path, steps=7)
    settings = replace(settings, encode=replace(settings.encode, weights=Path("w.pth")))
    settings.write(tmp_path / "study.yaml")
    assert StudySettings.read(tmp_path / "study.yaml") == settings
    with pytest.raises(InputError, match="Unknown settings: stepps"):
        StudySettings.from_plain({**settings.plain(), "stepps": 3})
    with pytest.raises(InputError, match="learns from labels"):
        replace(settings, labels=None)
    with pytest.raises(InputError, match="--init"):
        replace(settings, goal=Goal.FINETUNE.value)


def test_details_reach_every_training(cohort, tmp_path):
    """In the folds, before them, and of the model that is handed over."""
    given = {
        "pretraining": "byol", "temperature": 0.2, "vicreg_weights": (5.0, 4.0, 3.0),
        "momentum": 0.9, "head": "paper", "weight_decay": 0.1, "warm_up": 0.25,
    }  # fmt: skip
    settings = study_of(cohort, tmp_path / "study", "both")
    usual = settings.recipe()
    settings = replace(settings, details=LearningDetails(**given))
    assert settings.recipe() != usual
    settings.write(tmp_path / "study.yaml")
    assert StudySettings.read(tmp_path / "study.yaml") == settings
    given.pop("pretraining")

    def taken(training):
        return {name: getattr(training, name) for name in given}

    quick = quick_settings(
        cohort, tmp_path, methods=("pretrained-classify",), details=settings.details
    )
    quick.write(tmp_path / "benchmark.yaml")
    bench = open_bench(BenchmarkSettings.read(tmp_path / "benchmark.yaml"))
    cell = Cell(quick.named_features()[0][0], "pretrained-classify", 0, 0, 0)
    before, own = bench.pretrain_settings(cell), bench.train_settings(cell)
    whole = (settings, cohort / "features", tmp_path, 4, bench.cohort)
    first, last = pretrain_settings(*whole), train_settings(*whole)
    assert [one.objective for one in (before, first)] == ["byol", "byol"]
    assert [one.objective for one in (own, last)] == ["classify", "classify"]
    assert all(taken(one) == given for one in (before, own, first, last))
    assert replace(settings, goal="pretrain").method == "ssspt-byol"


def test_what_a_study_leaves(cohort, done):
    result, folder = done
    assert result.status == "finished"
    state = folder.state()
    assert (state.status, state.stage, state.run) == ("finished", "report", 1)
    assert state.stages == ("check", "evaluate", "train", "report")
    for name in ("study.yaml", "README.md", "report/RESULT.md", "report/report.html"):
        assert (folder.path / name).is_file(), name
    # Trained on all slides, by as many steps as the folds chose, in whole epochs of 3.
    training = read_model_card(folder.model).training
    assert training.slides == 24
    bench = open_bench(
        BenchmarkSettings.read(folder.run(1) / "evaluation/benchmark.yaml")
    )
    best = [
        bench.folder.read(cell).facts["best_step"]
        for cell in bench.cells()
        if cell.method == "classify"
    ]
    assert training.steps == -(-statistics.median_low(best) // 3) * 3
    assert f"best steps of the folds: {min(best)}" in " ".join(result.says)


def test_the_result_is_the_benchmarks(done):
    _, folder = done
    ours = json.loads((folder.report / "result.json").read_text())
    theirs = json.loads((folder.report / "results.json").read_text())
    rows = {(row["method"], row["probe"]): row for row in theirs["rows"]}
    assert [row["method"] for row in ours["rows"]] == [
        "classify",
        "mean",
        "max",
        "abmil",
    ]
    for row in ours["rows"]:
        whole = rows[row["method"], row["probe"]]["values"]["accuracy"]
        assert (row["mean"], row["low"], row["high"]) == (
            whole["mean"],
            whole["low"],
            whole["high"],
        )
    first = ours["comparisons"][0]
    difference = rows["classify", "own classifier"]["difference"]
    for name in ("mean", "low", "high", "p"):
        assert first["difference"][name] == difference[name]
    assert "averaging patches" in ours["says"][0]
    assert "24 patients, 2 folds." in ours["says"][0]


def test_no_patient_is_named(done):
    _, folder = done
    files = [path for path in folder.path.rglob("*") if path.is_file()]
    assert len(files) > 20
    for path in files:
        assert b"Jane" not in path.read_bytes(), path.name


def test_events_can_be_read_along(done):
    _, folder = done
    events, end = folder.read_events()
    kinds = {one["event"] for one in events}
    assert {"stage", "note", "epoch", "progress", "end"} <= kinds
    assert any(one.get("cell") for one in events if one["event"] == "epoch")
    with folder.events.open("ab") as file:
        file.write(b'{"event": "cut')
    assert folder.read_events(end) == ([], end)
    Recorder(folder, [Stage.CHECK]).take(Note("Of Jane3."))  # begins its own line
    more, _ = folder.read_events(end)
    assert [one["message"] for one in more] == ["Of Jane3."]


def test_names_in_sentences_are_hidden(tmp_path):
    folder = StudyFolder(tmp_path)
    recorder = Recorder(folder, [Stage.CHECK])
    recorder.may_speak = False  # the labels are not read yet
    recorder.take(Note("Patient Jane Doe is in two."))
    recorder.hide(["Jane Doe", "Jane", "7"])
    recorder.take(Note("Jane Doe, Jane_1 and 7 slides."))
    recorder.write(message="Jane")
    before, after = (one["message"] for one in folder.read_events()[0])
    assert "Jane" not in before
    assert after == "(a patient), (a patient)_1 and 7 slides."
    assert folder.state().message == "(a patient)"


def test_run_again_nothing_is_done_again(cohort, done):
    _, folder = done
    before = folder.model.stat().st_mtime_ns
    again = finish(study(study_of(cohort, folder.path)))
    assert again.says == ("Nothing is new since run 1.",)
    assert folder.model.stat().st_mtime_ns == before


def test_without_labels_nothing_is_claimed(cohort, tmp_path):
    result = finish(study(without_labels(cohort, tmp_path)))
    assert "Nothing is claimed" in result.says[0]
    assert not (tmp_path / "report/report.html").exists()
    card = read_model_card(result.model)
    assert card.metrics.knn is None
    assert (card.training.slides, card.training.steps) == (24, 4)


# both, in one method


def test_pretraining_in_a_fold_sees_no_asked_slide(cohort, tmp_path, monkeypatch):
    bench = open_bench(
        quick_settings(
            cohort, tmp_path, methods=("pretrained-classify",), pretrain_steps=4
        )
    )
    name, seen = next(iter(bench.cohorts)), []
    real = cell_work.train

    def watched(settings, *, cohort):
        seen.append((settings, cohort))
        return (yield from real(settings, cohort=cohort))

    monkeypatch.setattr(cell_work, "train", watched)
    cell = Cell(name, "pretrained-classify", 0, 1, 0)
    found = finish(cell_work.do_cell(bench, cell))
    (before, unlabelled), (after, labelled) = seen
    division = bench.division(cell)
    asked = {bench.cohort[int(i)].name for i in division.test}
    for part in (unlabelled, labelled):
        assert asked.isdisjoint(slide.name for slide in part)
        assert len(part) == len(division.train) + len(division.val)
    assert (before.objective, after.objective) == ("simclr", "classify")
    assert {slide.label for slide in unlabelled} == {None}
    assert {slide.split for slide in labelled} == {"train", "val"}
    assert after.init == str(Path(before.out) / "last.safetensors")
    assert "own classifier" in found.shares


def test_a_model_that_knows_the_labels_is_refused(cohort, done, tmp_path):
    _, folder = done
    settings = study_of(cohort, tmp_path, "finetune", init=str(folder.model))
    with pytest.raises(InputError, match="learned from the labels of 24"):
        finish(study(settings))
    assert folder.key() == StudyFolder(tmp_path).key()  # patients stay known


# slides that come later


def add_patients(folder, kinds, start=50):
    rng = np.random.default_rng(5)
    with (folder / "labels.csv").open("a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        for number, kind in enumerate(kinds, start=start):
            tokens = grid_tokens(
                rng.normal(size=(25, 16)),
                name=f"n{number}",
                slide_fingerprint=f"n{number}",
            )
            write_tokens(folder / "features" / f"n{number}.h5", tokens)
            writer.writerow((f"n{number}", kind, f"Jane{number}", "site0"))


def opened(folder):
    return open_cohort(folder / "features", read_labels(folder / "labels.csv"))


def test_a_begun_run_keeps_its_slides_and_patients_their_fold(tmp_path):
    cohort = write_benchmark_cohort(tmp_path / "c", patients=10, slides_each=2)
    folder = StudyFolder(tmp_path / "study")
    first = choose_run(folder, opened(cohort), "settings")
    divisions = kept_divisions(folder, first.cohort, 3, 0)
    before = read_folds(folder, 3)
    assert len(before) == 10
    asked = {
        first.cohort[int(i)].patient: one.fold
        for one in divisions.folds
        for i in one.test
    }
    add_patients(cohort, "aabb")
    again = choose_run(folder, opened(cohort), "settings")
    assert (again.run.number, len(again.cohort)) == (1, 20)
    assert "4 slides came after run 1" in again.notes[0]
    end_run(folder, again.run, "finished")
    next_one = choose_run(folder, opened(cohort), "settings")
    assert (next_one.run.number, len(next_one.cohort)) == (2, 24)
    later = kept_divisions(folder, next_one.cohort, 3, 0)
    folds = {
        next_one.cohort[int(i)].patient: one.fold
        for one in later.folds
        for i in one.test
    }
    assert {name: folds[name] for name in asked} == asked
    kept = read_folds(folder, 3)
    assert {name: kept[name] for name in before} == before
    assert len(kept) == 14
    for kind in "ab":  # the new ones went where few of their class were
        of_class = {s.patient for s in next_one.cohort if s.label == kind}
        counts = np.bincount([folds[name] for name in of_class], minlength=3)
        assert counts.max() - counts.min() <= 1


def test_other_labels_or_settings_begin_another_run(tmp_path):
    cohort = write_benchmark_cohort(tmp_path / "c", patients=6, slides_each=1)
    folder = StudyFolder(tmp_path / "study")
    choose_run(folder, opened(cohort), "settings")
    other = choose_run(folder, opened(cohort), "others")
    assert other.run.number == 2
    assert "the settings are others" in other.notes[0]
    labels = cohort / "labels.csv"
    labels.write_text(labels.read_text().replace("s00-0,a", "s00-0,b"))
    third = choose_run(folder, opened(cohort), "others")
    assert third.run.number == 3
    assert "labels are others" in third.notes[0]


# requests


def asked(cohort, out, request):
    """The result of a study that is asked something in its first steps."""
    folder = StudyFolder(out)
    events = study(without_labels(cohort, out, steps=4000))
    until(events, "train", folder)
    folder.ask(request)
    began = time.monotonic()
    result = finish(events)
    return result, folder, time.monotonic() - began


def test_pause_and_go_on(cohort, tmp_path):
    result, folder, seconds = asked(cohort, tmp_path, Request.PAUSE)
    assert seconds < 3
    assert (result.status, result.model) == ("paused", None)
    state = folder.state()
    assert (state.status, state.request) == ("paused", "pause")
    assert folder.request() is None
    assert (folder.run(1) / "model/checkpoint.pt").exists()
    assert not folder.is_held()
    last, _, _ = asked(cohort, tmp_path, Request.KEEP_LAST)
    assert (last.status, last.run) == ("stopped", 1)


@pytest.mark.parametrize("kept", ["best", "last"])
def test_stop_and_keep(cohort, tmp_path, kept):
    result, folder, _ = asked(cohort, tmp_path, f"stop-keep-{kept}")
    assert result.status == folder.state().status == "stopped"
    assert 0 < read_model_card(result.model).metrics.step < 4000
    assert f"stopped on request, and the {kept} model" in " ".join(result.says)
    model = folder.run(1) / f"model/{kept}.safetensors"
    assert result.model.read_bytes() == model.read_bytes()


def test_discard(cohort, tmp_path):
    result, folder, seconds = asked(cohort, tmp_path, Request.DISCARD)
    assert seconds < 3
    assert result.status == "discarded"
    assert not folder.run(1).exists()
    assert not folder.model.exists()


@pytest.mark.parametrize("left_as", ["paused", "running"])
@pytest.mark.parametrize("kept", ["best", "last"])
def test_left_it_is_stopped_and_kept_by_command(cohort, tmp_path, kept, left_as):
    """Paused or killed: no step is taken, the last checkpoint is what is kept."""
    _, folder, _ = asked(cohort, tmp_path, Request.PAUSE)
    folder.write_state(replace(folder.state(), status=left_as))
    run = RunFolder(folder.run(1) / "model")
    saved = torch.load(run.checkpoint, weights_only=True)
    at, weights = saved["step"], saved["encoder"]
    if kept == "best" and 0 < saved["best"][1] < at:
        at, best = saved["best"][1], load_file(run.best)
        weights = {name: torch.from_numpy(best[f"encoder.{name}"]) for name in weights}
    assert main(["study", str(tmp_path), "--request", f"stop-keep-{kept}"]) == 0
    assert folder.state().status == "stopped"
    assert f"took {saved['step']} steps" in (folder.report / "RESULT.md").read_text()
    assert read_model_card(folder.model).metrics.step == at
    ours = load_file(folder.model)
    for name, weight in weights.items():
        np.testing.assert_array_equal(ours[f"encoder.{name}"], weight.numpy())


def test_left_it_is_discarded_by_command(cohort, tmp_path, capsys):
    _, folder, _ = asked(cohort, tmp_path, Request.PAUSE)
    assert main(["study", str(tmp_path), "--request", "pause"]) == 1
    assert "No study runs" in capsys.readouterr().err
    assert main(["study", str(tmp_path), "--request", "discard"]) == 0
    assert "Run 1 was removed" in capsys.readouterr().out
    assert folder.state().status == "discarded"
    assert not folder.run(1).exists()


def test_left_before_its_model_there_is_none_to_keep(cohort, tmp_path, capsys):
    folder = StudyFolder(tmp_path)
    events = study(without_labels(cohort, tmp_path))
    next(events)
    events.close()
    assert main(["study", str(tmp_path), "--request", "stop-keep-last"]) == 0
    assert "no model to keep yet" in capsys.readouterr().out
    assert folder.state().status == "stopped"


def test_what_is_finished_is_not_discarded(done, capsys):
    _, folder = done
    assert main(["study", str(folder.path), "--request", "discard"]) == 1
    assert "is finished" in capsys.readouterr().err
    assert folder.state().status == "finished"


def test_left_with_other_slides_nothing_is_handed_over(cohort, tmp_path, capsys):
    """What it learned from cannot be told any more; discarding it still can be."""
    mine = shutil.copytree(cohort, tmp_path / "cohort")
    _, folder, _ = asked(mine, tmp_path / "out", Request.PAUSE)
    sorted((mine / "features").glob("*.h5"))[0].unlink()
    out = str(folder.path)
    assert main(["study", out, "--request", "stop-keep-last"]) == 1
    assert "slides of before are gone: 1" in capsys.readouterr().err
    assert folder.state().status == "failed"
    assert latest_run(folder).status == "begun"
    assert main(["study", out, "--request", "discard"]) == 0


def test_stopped_before_it_comes_to_its_model_again(cohort, tmp_path):
    """A study that goes on hands over what it had, from whatever stage."""
    _, folder, _ = asked(cohort, tmp_path, Request.PAUSE)
    events = study(without_labels(cohort, tmp_path, steps=4000))
    next(events)
    assert folder.state().stage == "check"
    folder.ask(Request.KEEP_LAST)
    wait_for(lambda: folder.state().request)
    saved = torch.load(folder.run(1) / "model/checkpoint.pt", weights_only=True)
    assert finish(events).status == "stopped"
    assert read_model_card(folder.model).metrics.step == saved["step"]


def test_a_step_that_does_not_end_is_broken_off(tmp_path):
    """By the process of a command, which does nothing else."""
    code = f"""
import time
from spt_core.studies.study_folder import Stage, StudyFolder
from spt_core.studies.study_recorder import Recorder
from spt_core.studies.study_requests import Watch

folder = StudyFolder({str(tmp_path)!r})
with folder.held():
    recorder = Recorder(folder, [Stage.EVALUATE])
    say = lambda result: print("said:", result.status, flush=True)
    with Watch(folder, recorder, hard_after=0.5, say=say):
        folder.ask("pause")
        time.sleep(60)
"""
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], timeout=50, stdout=-1)
    assert time.monotonic() - began < 40
    assert (done.returncode, done.stdout.strip()) == (0, b"said: paused")
    folder = StudyFolder(tmp_path)
    assert folder.state().status == "paused"
    assert folder.request() is None
    assert not folder.is_held()


def test_closing_keeps_all(cohort, tmp_path):
    folder = StudyFolder(tmp_path)
    events = study(without_labels(cohort, tmp_path, steps=4000))
    until(events, "train", folder)
    with pytest.raises(InputError, match="Another process"):
        finish(study(without_labels(cohort, tmp_path)))
    events.close()
    assert folder.state().status == "paused"
    assert (folder.run(1) / "model/checkpoint.pt").exists()


# killed


@pytest.mark.slow
def test_killed_and_gone_on_with_it_is_the_same(cohort, done, tmp_path):
    """Bitwise the same model, and the same table, as of a study never stopped."""
    _, whole = done
    process = by_command(cohort, tmp_path)
    folder = StudyFolder(tmp_path)
    deadline = time.monotonic() + 120
    while not list(folder.runs.glob("1/evaluation/cells/abmil*.npz")):
        assert process.poll() is None, "it ended before it was killed"
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert folder.state().status == "running"
    assert not folder.model.exists()
    assert by_command(cohort, tmp_path).wait(120) == 0
    ours, theirs = load_file(folder.model), load_file(whole.model)
    assert ours.keys() == theirs.keys()
    for name in ours:
        np.testing.assert_array_equal(ours[name], theirs[name])
    for name in ("result.json", "predictions.csv"):
        ours, theirs = (one.report / name for one in (folder, whole))
        assert ours.read_text() == theirs.read_text()


def by_command(cohort, out):
    words = [sys.executable, "-m", "spt_core", "study", str(out), "--goal", "classify"]
    words += ["--features", str(cohort / "features"), "--folds", "2", "--steps", "4"]
    words += ["--labels", str(cohort / "labels.csv"), "--pretrain-steps", "4"]
    words += ["--workers", "1", "--device", "cpu"]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(words, env=env, stderr=subprocess.DEVNULL)


# what is found before


def finding(settings, about, rank):
    found = check_study(settings)
    order = list(Rank)
    assert [order.index(one.rank) for one in found] == sorted(
        order.index(one.rank) for one in found
    )
    (one,) = (one for one in found if (one.about, one.rank) == (about, rank))
    if rank is not Rank.FINE:
        assert one.do
    return one.says


def rewritten(cohort, folder, change):
    """The same features with other labels."""
    path = folder / "labels.csv"
    lines = (cohort / "labels.csv").read_text(encoding="utf-8").splitlines()
    rows = list(csv.DictReader(lines))
    for number, row in enumerate(rows):
        change(number, row)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return study_of(cohort, folder / "out", labels=str(path))


def test_a_good_cohort_is_fine(cohort, tmp_path):
    settings = study_of(cohort, tmp_path)
    assert "a 12, b 12" in finding(settings, About.CLASSES, Rank.FINE)
    assert "24 slides" in finding(settings, About.FEATURES, Rank.FINE)
    assert "2 sites" in finding(settings, About.SITES, Rank.FINE)
    assert "24 patients" in finding(settings, About.PATIENTS, Rank.DOUBTFUL)
    assert not [one for one in check_study(settings) if one.rank is Rank.STOPS]


def test_classes_too_small_for_folds_stop(cohort, tmp_path):
    settings = replace(study_of(cohort, tmp_path), folds=13)
    assert "a has 12" in finding(settings, About.FOLDS, Rank.STOPS)
    with pytest.raises(InputError, match="Too few patients for 13 folds"):
        finish(study(settings))
    assert StudyFolder(tmp_path).state().status == "failed"


@pytest.mark.parametrize(
    ("change", "about", "rank", "says"),
    [
        (lambda n, row: row.update(label="a"), About.CLASSES, Rank.STOPS, "one class"),
        (
            lambda n, row: row.update(slide=f"x{n}"),
            About.LABELS,
            Rank.STOPS,
            "None of the slides has a label",
        ),
        (
            lambda n, row: row.update(patient="", slide=row["slide"]),
            About.PATIENTS,
            Rank.DOUBTFUL,
            "24 slides are not known",
        ),
        (
            lambda n, row: row.update(site=f"of {row['label']}"),
            About.SITES,
            Rank.DOUBTFUL,
            "Every site has one class only",
        ),
        (
            lambda n, row: row.update(site="t" if n % 4 == 3 else "s"),
            About.SITES,
            Rank.DOUBTFUL,
            "All slides of a are of one site",
        ),
        (
            lambda n, row: row.update(label="" if n == 3 else row["label"]),
            About.LABELS,
            Rank.DOUBTFUL,
            "1 of 24 slides have no label",
        ),
        (
            lambda n, row: row.update(label=row["label"] if n < 16 else ""),
            About.FOLDS,
            Rank.DOUBTFUL,
            "fewer than 5 patients to learn from",
        ),
        (
            lambda n, row: row.update(split="train"),
            About.FOLDS,
            Rank.STOPS,
            "no labelled slide of it is 'test'",
        ),
        (
            lambda n, row: row.update(split=["train", "test"][n // 2 % 2]),
            About.FOLDS,
            Rank.FINE,
            "test 12, train 12 slides",
        ),
        (
            lambda n, row: row.update(split=["train", "test"][n % 2], patient="Jane"),
            About.LABELS,
            Rank.STOPS,
            "patient Jane is in test and train",
        ),
    ],
)
def test_findings_of_labels(cohort, tmp_path, change, about, rank, says):
    assert says in finding(rewritten(cohort, tmp_path, change), about, rank)


def test_labels_that_cannot_be_used_are_not_quoted(cohort, tmp_path):
    def change(number, row):
        row.update(split=["train", "test"][number % 2], patient="Jane")

    settings = rewritten(cohort, tmp_path, change)
    with pytest.raises(InputError, match="Jane"):
        finish(study(settings))
    for path in Path(settings.out).iterdir():
        if path.is_file():
            assert b"Jane" not in path.read_bytes(), path.name


def test_findings_of_files(cohort, tmp_path):
    settings = study_of(cohort, tmp_path / "out")
    gone = replace(settings, labels=str(tmp_path / "none.csv"))
    assert "There is no" in finding(gone, About.LABELS, Rank.STOPS)
    empty = replace(settings, features=str(tmp_path))
    assert "no feature files" in finding(empty, About.FEATURES, Rank.STOPS)
    none = replace(settings, features=None, slides=str(tmp_path / "none"))
    assert "There is no" in finding(none, About.SLIDES, Rank.STOPS)
    (tmp_path / "slides").mkdir()
    (tmp_path / "slides/broken.svs").write_bytes(b"nothing")
    broken = replace(none, slides=str(tmp_path / "slides"))
    assert "None of the 1 slides" in finding(broken, About.SLIDES, Rank.STOPS)
    start = replace(settings, goal="finetune", init=str(cohort / "labels.csv"))
    assert finding(start, About.START, Rank.STOPS)
    patches = replace(broken, goal="patches", patch_arch="resnet34", labels=None)
    assert "no ImageNet weights" in finding(patches, About.START, Rank.STOPS)
    own = replace(patches, patch_arch="mobilenetv2")
    assert not [one for one in check_study(own) if one.about is About.START]
    other = shutil.copytree(cohort / "features", tmp_path / "mixed")
    tokens = grid_tokens(np.zeros((4, 16)), name="s00-0", encoder="another")
    write_tokens(other / "s00-0.h5", tokens)
    mixed = replace(settings, features=str(other))
    assert "another encoder" in finding(mixed, About.FEATURES, Rank.STOPS)


# from slides, by the command


def test_from_slides_to_a_model(slides, painted, tmp_path, capsys):
    words = ["study", str(tmp_path / "out"), "--goal", "pretrain"]
    words += ["--slides", str(slides), "--steps", "2", "--device", "cpu"]
    assert main([*words, "--check"]) == 0
    said = capsys.readouterr().out
    assert "2 slides were found and can be read" in said
    assert "Pixels are 0.5 µm" in said
    assert "2 slides are to be encoded, about" in said
    assert main(words) == 0
    assert "Nothing is claimed" in capsys.readouterr().out
    folder = StudyFolder(tmp_path / "out")
    assert len(list(folder.features.glob("*.h5"))) == 2
    assert read_model_card(folder.model).training.slides == 2
    listed = (folder.run(1) / "slides.txt").read_text().split()
    cohort = open_cohort(folder.features)
    assert listed == sorted(pseudonym(slide.fingerprint()) for slide in cohort)
    assert main(["study", str(folder.path), "--check"]) == 0
    assert "2 of 2 slides are encoded already" in capsys.readouterr().out
    assert main(["study", str(folder.path)]) == 0
    assert "Nothing is new since run 1." in capsys.readouterr().out
    # A slide that comes later is read, and joins the next run.
    before = {one.name: one.stat().st_mtime_ns for one in folder.features.glob("*.h5")}
    later = painted_slides(painted)[2]
    os.link(later, slides / later.name)
    assert main(["study", str(folder.path)]) == 0
    assert (folder.state().run, len(list(folder.features.glob("*.h5")))) == (2, 3)
    for name, when in before.items():
        assert (folder.features / name).stat().st_mtime_ns == when
    assert read_model_card(folder.model).training.slides == 3


def test_the_time_of_all_trainings_is_measured(cohort, tmp_path):
    (one,) = measure_study(study_of(cohort, tmp_path / "out"))
    assert (one.rank, one.about) == (Rank.FINE, About.TIME)
    assert "Learning takes about" in one.says
    assert "The study is done about" in one.says
    assert not (tmp_path / "out").exists()  # nothing of it is kept
    # More steps take longer; so many that it is doubtful are said.
    (long,) = measure_study(study_of(cohort, tmp_path / "out", steps=10**7))
    assert long.rank is Rank.DOUBTFUL
    patches = study_of(cohort, tmp_path / "out", "patches", slides=str(tmp_path))
    assert "as soon as it runs" in measure_study(patches)[0].says


@pytest.mark.parametrize("goal", ["pretrain", "classify", "both"])
@pytest.mark.parametrize("once", [False, True])
def test_all_trainings_are_counted(cohort, tmp_path, goal, once):
    """Those of the folds are the benchmark's own cells."""
    settings = study_of(cohort, tmp_path, goal, pretrain_once=once, seeds=2)
    whole = open_cohort(cohort / "features", read_labels(cohort / "labels.csv"))
    size = CohortSize(24, 24, 25, whole.dim)
    counted = Counter()
    for one, _, times in trainings(settings, size, whole, tmp_path):
        counted[one.model or one.objective] += times
    own = "classify" if settings.method == "finetune" else settings.method
    quick = quick_settings(
        cohort, tmp_path / "b", methods=(own, "abmil"), folds=2, seeds=2
    )
    expected = Counter()
    for cell in open_bench(quick).cells():
        method = METHODS[cell.method]
        if method.pretraining:
            expected[method.pretraining] += 1
        if method.learns:
            expected[method.model or method.objective] += 1
    # And the model that is handed over.
    expected["classify" if goal != "pretrain" else "simclr"] += 1
    if goal == "both":
        expected["simclr"] += 1
    assert counted == expected


def test_wrong_usage_is_said(tmp_path, capsys):
    out = str(tmp_path / "none")
    assert main(["study", out]) == 1
    assert "no study yet" in capsys.readouterr().err
    assert main(["study", out, "--slides", "x"]) == 1
    assert "--goal" in capsys.readouterr().err
    assert main(["study", out, "--request", "pause"]) == 1
    assert "No study runs" in capsys.readouterr().err
