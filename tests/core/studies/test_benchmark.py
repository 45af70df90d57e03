"""A benchmark asks what was not learned, and loses nothing."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch
from sklearn.metrics import balanced_accuracy_score

from spt_core.cli import main
from spt_core.errors import InputError
from spt_core.events import Note, finish
from spt_core.files import held_by_one
from spt_core.learning.batches import SlidePlan
from spt_core.learning.cohort import open_cohort
from spt_core.learning.task import Epoch
from spt_core.learning.views import ViewSettings
from spt_core.studies import cell_runners, cell_work
from spt_core.studies.bench import open_bench
from spt_core.studies.benchmark import benchmark, gather
from spt_core.studies.benchmark_methods import ABLATIONS, METHODS
from spt_core.studies.benchmark_settings import BenchmarkSettings
from spt_core.studies.cell_runners import CellEvent, run_cells
from spt_core.studies.cells import Cell, CellFolder
from spt_core.studies.embeddings import pooling_model
from spt_core.studies.evaluation import evaluate
from spt_core.studies.study_model import train_settings
from spt_core.studies.study_settings import StudySettings
from spt_core.tokens import read_labels
from tests.core.studies.benchmarks import quick_settings, write_benchmark_cohort


@pytest.fixture(scope="module")
def cohort(tmp_path_factory):
    return write_benchmark_cohort(tmp_path_factory.mktemp("cohort"))


@pytest.fixture(scope="module")
def done(cohort, tmp_path_factory):
    """A benchmark with all that is measured, and its folder."""
    out = tmp_path_factory.mktemp("done")
    settings = quick_settings(cohort, out, seeds=2, permute_labels=True, mlp=True)
    return finish(benchmark(settings)), out


def test_pooling_scores_as_evaluate_says(cohort, done):
    """Two ways to one number: the folds and the neighbours are the same."""
    found, _ = done
    labels = read_labels(cohort / "labels.csv")
    other = finish(evaluate("mean", cohort / "features", labels, folds=3))
    theirs = other.row("kNN").values["accuracy"]
    ours = row_of(found, "mean", "kNN").values["accuracy"]
    assert ours.mean == pytest.approx(theirs.mean, abs=1e-12)
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=1e-12)


def test_scores_are_those_of_the_predictions(done):
    found, _ = done
    for row in found.rows:
        each = []
        for run in row.runs:
            predicted = run.shares.argmax(axis=1)
            for fold in np.unique(run.fold):
                at = run.fold == fold
                each.append(balanced_accuracy_score(run.y[at], predicted[at]))
        assert row.values["accuracy"].mean == pytest.approx(np.mean(each), abs=1e-12)


def test_the_lines_of_a_table(done):
    found, out = done
    probes = {(row.line.method, row.line.probe) for row in found.rows}
    assert {("mean", "kNN"), ("mean", "linear"), ("mean", "MLP")} <= probes
    assert ("abmil", "own classifier") in probes
    assert ("mean", "own classifier") not in probes
    assert row_of(found, "mean", "kNN").difference is None
    ours = row_of(found, "abmil", "kNN")
    assert ours.difference is not None
    assert ours.difference.p_holm >= ours.difference.p
    assert ours.cells == 3 * 2
    assert ours.missing == 0
    assert ours.site_knn is not None
    assert 0 <= ours.site_knn.mean <= 1
    assert ours.patient_values is not None
    names = {path.name for path in (out / "report").iterdir()}
    assert {"report.html", "results.json", "splits.json", "predictions.csv"} <= names


def test_no_patient_is_named_in_the_report(done):
    _, out = done
    for path in (out / "report").iterdir():
        assert b"Jane" not in path.read_bytes(), path.name


def test_permuted_labels_teach_nothing(done):
    """The mean over permutations is near chance, slightly below in small folds."""
    found, _ = done
    assert {(c.line.method, c.line.probe) for c in found.controls} >= {
        ("mean", "kNN"),
        ("mean", "linear"),
        ("abmil", "own classifier"),
    }
    for control in found.controls:
        if len(control.scores) < 2:
            continue
        assert control.chance == 0.5
        assert control.low <= np.mean(control.scores) <= control.high
        assert abs(np.mean(control.scores) - 0.5) < 0.12
    assert row_of(found, "mean", "kNN").values["accuracy"].mean > 0.8


def test_models_see_no_slide_that_they_are_asked_about(cohort, tmp_path, monkeypatch):
    settings = quick_settings(
        cohort, tmp_path, methods=("ssspt-simclr", "classify", "suspt")
    )
    bench = open_bench(settings)
    seen = []

    def watched(train_settings, *, cohort):
        seen.append(cohort)
        raise InputError("enough")
        yield

    monkeypatch.setattr(cell_work, "train", watched)
    patients = np.array(bench.cohort.patients())
    for cell in bench.cells():
        if not METHODS[cell.method].learns:
            continue
        with pytest.raises(InputError, match="enough"):
            finish(cell_work.do_cell(bench, cell))
        part, division = seen[-1], bench.division(cell)
        asked = set(patients[division.test])
        assert asked.isdisjoint(part.patients())
        assert len(part) == len(division.train) + len(division.val)
        if METHODS[cell.method].uses_labels:
            assert {slide.split for slide in part} == {"train", "val"}
        else:  # nothing of the labels reaches it
            assert {slide.split for slide in part} == {"train"}
            assert {slide.label for slide in part} == {None}


def test_unlabelled_slides_are_learned_from_if_asked(tmp_path, monkeypatch):
    folder = write_benchmark_cohort(tmp_path / "cohort", unlabelled=4)
    seen = []

    def watched(train_settings, *, cohort):
        seen.append({slide.name for slide in cohort})
        raise InputError("enough")
        yield

    monkeypatch.setattr(cell_work, "train", watched)
    for unlabelled in (False, True):
        settings = quick_settings(folder, tmp_path / "out", unlabelled=unlabelled)
        bench = open_bench(settings)
        name = next(iter(bench.cohorts))
        with pytest.raises(InputError, match="enough"):
            finish(cell_work.do_cell(bench, Cell(name, "ssspt-simclr", 0, 0, 0)))
        assert any(slide.startswith("u") for slide in seen[-1]) is unlabelled
        said = any("unlabelled slides too" in remark for remark in bench.remarks)
        assert said is unlabelled


def test_a_failed_cell_is_a_row_that_says_why(cohort, tmp_path, monkeypatch):
    settings = quick_settings(cohort, tmp_path)
    real = cell_work.train

    def failing(train_settings, *, cohort):
        if train_settings.objective == "classify":
            raise InputError("There is no more of it.")
        return (yield from real(train_settings, cohort=cohort))

    monkeypatch.setattr(cell_work, "train", failing)
    found = finish(benchmark(settings))
    assert {row.line.method for row in found.rows} == {"mean", "ssspt-simclr"}
    assert len(found.failed) == 3
    assert row_of(found, "ssspt-simclr", "kNN").difference is not None
    assert all(one.why == "There is no more of it." for one in found.failed)
    assert "There is no more of it." in (tmp_path / "report/report.html").read_text()
    # The failed cells alone are done the next time.
    monkeypatch.setattr(cell_work, "train", real)
    bench = open_bench(settings)
    before = {c: os.stat(bench.folder.result(c)).st_mtime_ns for c in finished(bench)}
    again = finish(benchmark(settings))
    assert not again.failed
    assert {c: os.stat(bench.folder.result(c)).st_mtime_ns for c in before} == before


def test_a_lost_fold_is_not_compared(cohort, tmp_path):
    settings = quick_settings(cohort, tmp_path, methods=("mean", "max"))
    finish(benchmark(settings))
    bench = open_bench(settings)
    cells = bench.cells()
    lost = next(cell for cell in cells if cell.method == "max" and cell.fold == 1)
    bench.folder.result(lost).unlink()
    row = row_of(gather(bench, cells), "max", "kNN")
    assert (row.cells, row.missing, row.difference) == (2, 1, None)


def test_unlabelled_slides_do_not_shift_the_folds(tmp_path):
    """They stand first in the folder, and in no part of a fold."""
    folder = write_benchmark_cohort(tmp_path / "c", unlabelled=3, name="a{:02d}")
    settings = quick_settings(folder, tmp_path / "o", methods=("mean",))
    found = finish(benchmark(replace(settings, include_slide_name=True)))
    assert row_of(found, "mean", "kNN").values["accuracy"].mean > 0.8
    splits = (tmp_path / "o/report/splits.json").read_text()
    assert "a00" not in splits
    assert all(name in splits for name in found.names)


def finished(bench):
    return [cell for cell in bench.cells() if bench.folder.is_done(cell)]


def test_cells_of_other_settings_are_not_mixed(cohort, done):
    _, out = done
    settings = BenchmarkSettings.read(out / "benchmark.yaml")
    with pytest.raises(InputError, match="cells of other settings"):
        finish(benchmark(replace(settings, steps=9)))


def test_a_cell_of_something_else_is_a_sentence(cohort, tmp_path):
    settings = quick_settings(cohort, tmp_path, methods=("mean", "max"))
    finish(benchmark(settings))
    bench = open_bench(settings)
    first, second, *_ = bench.cells()
    good, found = bench.result(first), bench.folder.result(first)
    for wrong in (
        {"asked": good.asked[::-1]},
        {"h": good.h[:-1]},
        {"shares": {"kNN": good.shares["kNN"] * np.nan}},
        {"shares": {"kNN": good.shares["kNN"][:, :-1]}},
        {"site_shares": np.array(3)},
        {"facts": {**good.facts, "train_seconds": "x"}},
    ):
        bench.folder.write(first, replace(good, **wrong))
        with pytest.raises(InputError, match="Remove it; the cell is done again"):
            bench.result(first)
    shutil.copyfile(bench.folder.result(second), found)
    with pytest.raises(InputError, match="another cell's"):
        bench.result(first)


def test_methods_can_be_added(cohort, done):
    found, out = done
    settings = BenchmarkSettings.read(out / "benchmark.yaml")
    more = replace(settings, methods=(*settings.methods, "max"), seeds=1)
    again = finish(benchmark(more))
    assert row_of(again, "max", "kNN").missing == 0
    # The others were not done again.
    assert row_of(again, "mean", "kNN").runs[0].shares == pytest.approx(
        row_of(found, "mean", "kNN").runs[0].shares, abs=0
    )


def test_one_process_at_a_time(cohort, tmp_path):
    with held_by_one(tmp_path / ".lock"), pytest.raises(InputError, match="Another"):
        finish(benchmark(quick_settings(cohort, tmp_path)))


@pytest.mark.slow
def test_several_processes_find_the_same(cohort, tmp_path):
    said = {"one": [], "two": []}
    one = finish(
        benchmark(quick_settings(cohort, tmp_path / "one", steps=2)), said["one"].append
    )
    two = finish(
        benchmark(quick_settings(cohort, tmp_path / "two", steps=2, workers=2)),
        said["two"].append,
    )
    # They tell the same, too, as plain data.
    epochs = {
        name: sorted(
            (event.cell, event.event["step"] if name == "two" else event.event.step)
            for event in events
            if isinstance(event, CellEvent)
            and (name == "one" or event.event["event"] == "epoch")
            and (name == "two" or isinstance(event.event, Epoch))
        )
        for name, events in said.items()
    }
    assert epochs["one"] == epochs["two"] != []
    for ours, theirs in zip(one.rows, two.rows, strict=True):
        assert ours.line == theirs.line
        for a, b in zip(ours.runs, theirs.runs, strict=True):
            np.testing.assert_allclose(a.shares, b.shares, atol=1e-6)


def test_labels_changed_before_a_process_reads_them_are_not_mixed_in(cohort, tmp_path):
    labels = tmp_path / "labels.csv"
    before = (cohort / "labels.csv").read_text()
    labels.write_text(before)
    settings = quick_settings(
        cohort, tmp_path, labels=str(labels), methods=("mean", "max"), workers=2
    )
    bench = open_bench(settings)
    labels.write_text(before.replace(",a,", ",b,", 1))
    found = finish(benchmark(settings, bench=bench))
    assert "labels were changed" in found.failed[0].why
    assert len(found.failed) == len(bench.cells())
    # Put back, what failed is done.
    labels.write_text(before)
    assert not finish(benchmark(settings)).failed


def test_a_cluster_shares_the_cells_out(cohort, tmp_path):
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=1, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster:
        settings = quick_settings(
            cohort,
            tmp_path,
            methods=("mean", "max"),
            scheduler=cluster.scheduler_address,
        )
        found = finish(benchmark(settings))
    assert not found.failed
    assert row_of(found, "max", "linear").missing == 0


def test_a_process_lost_twice_costs_its_own_cell_alone(monkeypatch):
    class Pool:  # whose processes die of the cell "bad"
        is_broken, _processes = False, None

        def __init__(self, *_, **__):
            pass

        def submit(self, do, plain, folder, cell, told):
            if self.is_broken:
                raise BrokenProcessPool
            future = Future()
            self.is_broken = cell == "bad"
            if self.is_broken:
                future.set_exception(BrokenProcessPool())
            else:
                future.set_result(cell_runners.CellDone(cell, 0.0))
            return future

        def shutdown(self, **_):
            pass

    failed = []
    folder = SimpleNamespace(write_failure=lambda cell, why: failed.append(cell))
    settings = BenchmarkSettings(features=("f=x",), labels="l.csv", out="out")
    bench = SimpleNamespace(settings=settings, folder=folder)
    monkeypatch.setattr(cell_runners, "ProcessPoolExecutor", Pool)
    cells = ["a", "bad", "b", "c"]
    events = list(cell_runners._in_processes(bench, cells, 2))
    done = [one.cell for one in events if isinstance(one, cell_runners.CellDone)]
    assert failed == ["bad"]
    assert sorted(done) == sorted(cells)


def test_a_lost_scheduler_fails_no_cell(monkeypatch):
    """What it did not come to is no cell's fault: the run stops with a sentence."""
    lost = MagicMock(status="cancelled")
    client = MagicMock(status="connecting")
    client.submit.return_value = lost
    client.cancel.side_effect = OSError("gone")
    monkeypatch.setattr(cell_runners, "connect", lambda *_: client)
    monkeypatch.setattr("distributed.as_completed", lambda futures: [lost])
    settings = BenchmarkSettings(features=("f=x",), labels="l.csv", out="out")
    bench = SimpleNamespace(settings=settings, folder=CellFolder(Path("cells"), {}))
    with pytest.raises(InputError, match="tls://h:1 was lost"):
        list(cell_runners._on_cluster(bench, ["a"], "tls://h:1"))


def test_sites_are_left_out_whole(cohort, tmp_path):
    settings = quick_settings(cohort, tmp_path, methods=("mean",), leave_site_out=True)
    bench = open_bench(settings)
    sites = np.array([slide.site for slide in bench.cohort])
    assert len(bench.divisions.folds) == 3
    for one in bench.divisions.folds:
        learned = set(sites[[*one.train, *one.val]])
        assert learned.isdisjoint(sites[one.test])
    assert not finish(benchmark(settings)).failed


def test_a_scanner_that_is_learned_is_seen(tmp_path):
    """Sites as loud as this are what neighbours agree on."""
    folder = write_benchmark_cohort(tmp_path / "c", site_signal=6.0, signal=0.5)
    asked = quick_settings(folder, tmp_path / "out", methods=("mean",))
    found = finish(benchmark(replace(asked, standardise="no")))
    row = row_of(found, "mean", "kNN")
    assert row.site_knn.mean > 0.95 > row.values["accuracy"].mean
    assert "site" in (tmp_path / "out/report/report.html").read_text()
    # By default its trace is taken out, of pooling too, and the report says so.
    usual = finish(benchmark(replace(asked, out=str(tmp_path / "usual"))))
    assert row_of(usual, "mean", "kNN").site_knn.mean < 0.6
    assert any("standardised per site" in remark for remark in usual.remarks)


def test_slides_are_kept_apart_alike_in_every_fold(tmp_path):
    """As in a study's last training, also where a fold leaves fewer slides of a site"""
    folder = write_benchmark_cohort(tmp_path / "c", patients=16, slides_each=1, sites=2)
    asked = quick_settings(folder, tmp_path / "out", methods=("ssspt-simclr",))
    bench = open_bench(asked)
    assert len(bench.cohort) == 16
    found = [one for one in bench.cells() if one.method == "ssspt-simclr"]
    assert {bench.train_settings(one).negatives for one in found} == {"site"}
    goal = StudySettings(slides="slides", out="out", goal="pretrain", model="small")
    last = train_settings(goal, folder, tmp_path, 1, bench.cohort)
    assert (last.standardise, last.negatives) == ("site", "site")


def test_statistics_of_sites_are_of_the_fold(tmp_path):
    """Of the slides that are learned from; of a site left out, of its own."""
    folder = write_benchmark_cohort(tmp_path / "c", site_signal=6.0)
    settings = quick_settings(folder, tmp_path / "out", methods=("mean",))
    for by_site in (False, True):
        bench = open_bench(replace(settings, leave_site_out=by_site))
        cell = bench.cells()[0]
        cohort, division = bench.cohort, bench.division(cell)
        learned = {*division.train.tolist(), *division.val.tolist()}
        by = cell_work._of_training(bench, cell, cohort.class_numbers())
        model = pooling_model("mean", cohort).standardised_by(by)
        for slide in cell_work.seen_by(model, cohort):
            same = {i for i, one in enumerate(cohort) if one.site == slide.site}
            measured = (same & learned) or same
            assert (not same & learned) == (by_site and slide.site not in by.scales)
            x = np.concatenate([cohort[i].stored() for i in sorted(measured)])
            want = (slide.stored() - x.mean(0)) / x.std(0)
            np.testing.assert_allclose(slide.tokens(), want, atol=2e-3)


def test_an_ablation_shares_cells_with_the_method(cohort, tmp_path):
    settings = quick_settings(
        cohort, tmp_path, methods=("ssspt-simclr",), ablations=("transformations",)
    )
    bench = open_bench(settings)
    cells = bench.cells()
    # Six variants, the last of which is the method itself; and the baseline.
    assert len(cells) == 3 * (1 + 1 + 5)
    assert len(ABLATIONS["transformations"].variants) == 6


@pytest.mark.slow
def test_killed_often_the_table_is_the_same(cohort, tmp_path):
    """A study's cells are killed once in the quick tests."""
    assert_survives_kills(cohort, tmp_path, kills=15)


def assert_survives_kills(cohort, folder, kills):
    rng = random.Random(4)
    changes = {"steps": 30, "methods": ("mean", "ssspt-simclr", "classify")}
    whole = quick_settings(cohort, folder / "whole", **changes)
    began = time.monotonic()
    run_command(whole, folder).wait(300)
    seconds = time.monotonic() - began
    killed = replace(whole, out=str(folder / "killed"))
    done = 0
    while done < kills:
        process = run_command(killed, folder)
        try:
            process.wait(rng.uniform(2.0, max(3.0, seconds)))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            done += 1
            continue
        break  # it is through
    assert run_command(killed, folder).wait(300) == 0
    assert table_of(folder / "killed") == table_of(folder / "whole")


def run_command(settings, folder):
    config = folder / "asked.yaml"
    settings.write(config)
    return subprocess.Popen(
        [sys.executable, "-m", "spt_core", "benchmark", "--config", config],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def table_of(out):
    found = json.loads((out / "report/results.json").read_text(encoding="utf-8"))
    return [
        {name: value for name, value in row.items() if "second" not in name}
        for row in found["rows"]
    ]


def test_the_command(cohort, tmp_path, capsys):
    assert (
        main(
            ["benchmark", str(cohort / "features"), "--labels",
             str(cohort / "labels.csv"), "--methods", "mean", "max", "--folds", "3",
             "--workers", "1", "--device", "cpu", "--out", str(tmp_path)]
        )
        == 0
    )  # fmt: skip
    said = capsys.readouterr().out
    assert "max" in said
    assert "report.html" in said


def test_the_plan(cohort, capsys):
    assert (
        main(
            ["benchmark", str(cohort / "features"), "--labels",
             str(cohort / "labels.csv"), "--folds", "3", "--plan"]
        )
        == 0
    )  # fmt: skip
    assert "patients" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"methods": ("mean", "nope")}, "no method 'nope'"),
        ({"ablations": ("nope",)}, "no ablation 'nope'"),
        ({"features": ()}, "folder of feature files"),
        ({"splits": "x.json", "leave_site_out": True}, "not both"),
    ],
)
def test_settings_that_cannot_be(cohort, tmp_path, changes, words):
    with pytest.raises(InputError, match=words):
        replace(quick_settings(cohort, tmp_path), **changes)


def test_settings_survive_their_file(cohort, tmp_path):
    settings = quick_settings(cohort, tmp_path, ablations=("crop",))
    settings.write(tmp_path / "b.yaml")
    assert BenchmarkSettings.read(tmp_path / "b.yaml") == settings


def test_hipt_alone_starts_from_its_weights(cohort, tmp_path):
    settings = quick_settings(
        cohort, tmp_path, methods=("abmil", "hipt"), hipt_weights="w.safetensors"
    )
    bench = open_bench(settings)
    features = settings.named_features()[0][0]
    starts = {
        method: bench.train_settings(Cell(features, method, 0, 0, 0)).region_weights
        for method in ("abmil", "hipt")
    }
    assert starts == {"abmil": None, "hipt": "w.safetensors"}


def test_patients_unknown_is_said(tmp_path):
    folder = write_benchmark_cohort(tmp_path / "c")
    lines = (folder / "labels.csv").read_text().splitlines()
    kept = [",".join(line.split(",")[:2]) for line in lines]
    (folder / "labels.csv").write_text("\n".join(kept) + "\n")
    events = []
    settings = quick_settings(folder, tmp_path / "o", methods=("mean",))
    found = finish(benchmark(settings), events.append)
    said = [event.message for event in events if isinstance(event, Note)]
    assert any("patients are not known" in text for text in said)
    assert not found.is_patient_known
    assert row_of(found, "mean", "kNN").patient_values is None


def row_of(found, method, probe):
    return next(
        row
        for row in found.rows
        if (row.line.method, row.line.probe) == (method, probe)
    )


def test_run_cells_leaves_finished_ones_alone(cohort, done):
    _, out = done
    settings = BenchmarkSettings.read(out / "benchmark.yaml")
    bench = open_bench(settings)
    assert list(run_cells(bench, bench.cells())) == []


@pytest.mark.slow
def test_encoders_side_by_side_ablations_grades_and_given_folds(cohort, done, tmp_path):
    """All in one table: two sets of features, variants, kappa, a file of folds."""
    _, out = done
    other = write_benchmark_cohort(tmp_path / "other", signal=0.0)
    settings = quick_settings(
        cohort,
        tmp_path / "out",
        features=(f"good={cohort / 'features'}", f"blind={other / 'features'}"),
        methods=("mean",),
        ablations=("objective",),
        ordered=True,
        steps=1,
        splits=str(out / "report/splits.json"),
    )
    found = finish(benchmark(settings))
    assert not found.failed
    accuracy = {
        row.line.features: row.values["accuracy"].mean
        for row in found.rows
        if row.line.probe == "kNN"
    }
    assert accuracy["good"] > 0.8 > accuracy["blind"]
    assert all("kappa" in row.values for row in found.rows)
    (ablation,) = found.ablations
    variants = {(row.line.features, row.line.variant) for row in ablation.rows}
    assert variants == {
        (features, objective)
        for features in ("good", "blind")
        for objective in ("simclr", "vicreg", "byol")
    }
    before = open_bench(BenchmarkSettings.read(out / "benchmark.yaml")).divisions
    for ours, theirs in zip(found.divisions.folds, before.folds, strict=True):
        np.testing.assert_array_equal(ours.test, theirs.test)


def test_views_are_drawn_from_augmented_features(cohort, tmp_path):
    """Of two sets, all tokens of one being 100 and of the other 200."""
    own = open_cohort(cohort / "features")

    def filled(value):
        slides = [replace(s, x=np.full_like(s.tokens(), value)) for s in own]
        return replace(own, slides=slides)

    mixed = filled(100.0).with_augmented([filled(200.0)])
    plan = SlidePlan(mixed, ViewSettings(), 12, 0, torch.device("cpu"))
    seen = set()
    for step in range(plan.steps_per_epoch):
        for chunk in plan.make(step).chunks:
            x, _, mask = chunk.inputs
            for view, real in zip(x, mask, strict=True):
                values = set(view[real].flatten().tolist())
                assert len(values) == 1  # a view is of one set
                seen |= values
    assert seen == {100.0, 200.0}
    fewer = own.subset(range(3))
    with pytest.raises(InputError, match="augmented features are missing"):
        own.with_augmented([fewer])


def test_giga_ssl_learns_from_augmented_features(cohort, tmp_path):
    settings = quick_settings(
        cohort,
        tmp_path,
        methods=("giga-ssl",),
        augmented=(str(cohort / "features"),),
        steps=1,
    )
    bench = open_bench(settings)
    result = finish(cell_work.do_cell(bench, bench.cells()[-1]))
    assert result.facts["steps"] == 1
    views = bench.train_settings(bench.cells()[-1]).views
    assert (views.split, views.crop, views.max_tokens) == (False, False, 5)
