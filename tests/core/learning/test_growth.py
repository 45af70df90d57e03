"""Snapshots of a run: small, whole, the same after a stop, and without consequences."""

import numpy as np
import pytest
from safetensors.numpy import load_file
from scipy.spatial.distance import pdist

from spt_core.events import finish
from spt_core.insight.results import pseudonym
from spt_core.learning import growth
from spt_core.learning.cohort import open_cohort
from spt_core.learning.growth import Growth, two_directions
from spt_core.learning.growth_file import (
    MOST,
    aligned,
    read_snapshot,
    snapshot_file,
    snapshot_steps,
)
from spt_core.learning.settings import TrainSettings
from spt_core.learning.training import resume, train
from spt_core.tokens import read_labels
from tests.core.studies.benchmarks import write_benchmark_cohort


@pytest.fixture(scope="module")
def cohort(tmp_path_factory):
    folder = tmp_path_factory.mktemp("growth")
    return write_benchmark_cohort(folder, patients=10, slides_each=1, sites=2)


def settings(cohort, out, **changes):
    values = {
        "features": str(cohort / "features"),
        "labels": str(cohort / "labels.csv"),
        "objective": "classify",
        "out": str(out),
        "steps": 6,
        "batch_size": 5,
        "device": "cpu",
        "validate_epochs": 1,
    }
    return TrainSettings(**{**values, **changes})


@pytest.fixture(scope="module")
def run(cohort, tmp_path_factory):
    patch = pytest.MonkeyPatch()
    patch.setattr(growth, "BUDGET", 1.0)
    out = tmp_path_factory.mktemp("run") / "run"
    finish(train(settings(cohort, out)))
    patch.undo()
    return out


def test_a_run_leaves_snapshots_of_its_slides(run, cohort):
    steps = snapshot_steps(run)
    assert steps[0] == 0
    assert steps[-1] == 6
    labels = read_labels(cohort / "labels.csv")
    slides = open_cohort(cohort / "features", labels)
    for step in steps:
        found = read_snapshot(run, step)
        names = {pseudonym(slide.fingerprint()): slide for slide in slides}
        assert set(found.slides) == set(names)
        assert found.xy.shape == (len(slides), 2)
        said = [found.classes[number] for number in found.y]
        assert said == [names[one].label for one in found.slides]
        attended = names[found.slides[found.attended]]
        np.testing.assert_array_equal(found.p, attended.p)
        assert found.attention.mean() == pytest.approx(1, abs=0.01)
        content = snapshot_file(run, step).read_bytes()
        assert len(content) < 50_000
        assert not any(slide.name.encode() in content for slide in slides)


def test_weights_are_the_same_with_and_without(run, cohort, tmp_path, monkeypatch):
    monkeypatch.setattr(Growth, "take", lambda self, step: None)
    finish(train(settings(cohort, tmp_path / "none")))
    assert not snapshot_steps(tmp_path / "none")
    one, other = (
        load_file(folder / "last.safetensors") for folder in (run, tmp_path / "none")
    )
    assert one.keys() == other.keys()
    for name, weight in one.items():
        np.testing.assert_array_equal(weight, other[name])


def test_a_run_that_was_stopped_has_the_same(run, cohort, tmp_path, monkeypatch):
    monkeypatch.setattr(growth, "BUDGET", 1.0)
    out = tmp_path / "stopped"
    work = train(settings(cohort, out, checkpoint_steps=1))
    for event in work:
        if getattr(event, "done", 0) == 3:
            break
    work.close()
    finish(resume(out))
    one, other = (load_file(folder / "last.safetensors") for folder in (run, out))
    for name, weight in one.items():
        np.testing.assert_array_equal(weight, other[name])
    for step in snapshot_steps(run):
        np.testing.assert_array_equal(
            read_snapshot(out, step).xy, read_snapshot(run, step).xy
        )


def test_snapshots_are_few_and_within_their_time(run, tmp_path, monkeypatch):
    class Looked:
        seen = None

    made = Growth(tmp_path, Looked(), steps=1000)
    written = []
    monkeypatch.setattr(growth, "write_snapshot", lambda _run, one: written.append(one))
    monkeypatch.setattr(growth, "snapshot_steps", lambda _run: list(written))
    monkeypatch.setattr(Growth, "_snapshot", lambda self, step: step)
    made.monitor.seen = type("Seen", (), {"h": np.zeros((3, 4))})()
    monkeypatch.setattr(growth, "BUDGET", 1.0)
    for step in range(0, 1001, 5):
        made.take(step)
    assert MOST <= len(written) <= MOST + 2
    # Where they would take too long, only the first and the last are written.
    written.clear()
    made._spent = 1e9
    for step in range(0, 1001, 5):
        made.take(step)
    assert written == [0, 1000]


def test_a_full_disk_stops_nothing(tmp_path, monkeypatch, caplog):
    class Looked:
        seen = type("Seen", (), {"h": np.zeros((3, 4))})()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(growth, "write_snapshot", full)
    monkeypatch.setattr(Growth, "_snapshot", lambda self, step: step)
    Growth(tmp_path, Looked(), steps=10).take(0)
    assert "not written" in caplog.text


def test_places_keep_distances_and_turn_to_the_next(run):
    rng = np.random.default_rng(0)
    flat = rng.normal(size=(12, 2))
    h = np.concatenate([flat, np.full((12, 1), 50.0)], axis=1)
    unit = h / np.linalg.norm(h, axis=1, keepdims=True)
    np.testing.assert_allclose(pdist(two_directions(h)), pdist(unit), rtol=0.02)
    later = read_snapshot(run, 6)
    turn = np.array([[0, 1], [1, 0]])
    before = type(later)(**{**vars(later), "xy": later.xy @ turn})
    found = aligned(before, later)
    centred = later.xy - later.xy.mean(axis=0)
    np.testing.assert_allclose(found.xy, centred, atol=1e-5)
    (snapshot_file(run, 6)).write_bytes(b"broken")
    assert read_snapshot(run, 6) is None
