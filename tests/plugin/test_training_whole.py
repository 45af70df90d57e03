"""By clicks alone from sample slides to a model that is used; kills on the way."""

import os
import signal
import sys

import pytest

from napari_spt.analysis.desk import desk_of
from spt_core.sample.cohort import write_sample_cohort
from tests.core.studies.benchmarks import write_benchmark_cohort
from tests.plugin.test_training_dock import open_train  # noqa: F401

MINUTES = 60_000


class Clicks:
    """Clicks what can be clicked, and counts."""

    def __init__(self, made, qtbot):
        self.count, self.qtbot = made, qtbot

    def __call__(self, button):
        self.qtbot.waitUntil(lambda: button.isEnabled() and button.isVisible())
        button.click()
        self.count += 1


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_from_sample_slides_to_a_model_in_ten_clicks(
    open_train,  # noqa: F811
    engine,
    tmp_path,
    monkeypatch,
    qtbot,
):
    folder = tmp_path / "sample-cohort"
    monkeypatch.setenv("NAPARI_SPT_SAMPLE", str(folder))
    for _ in write_sample_cohort(folder, slides=18, size=4096, sites=3, seed=1):
        pass
    viewer, dock = open_train(show=True)
    click = Clicks(3, qtbot)  # Plugins > Slide Pre-trained Transformers > Train
    click(dock.data.sample)
    qtbot.waitUntil(lambda: dock.start.isEnabled(), timeout=5 * MINUTES)
    click(dock.start)
    assert dock.tabs.current == "Run"
    qtbot.waitUntil(lambda: dock.tabs.current == "Result", timeout=40 * MINUTES)
    assert dock.study.parent == tmp_path
    click(dock.result.use_model)
    model = dock.study / "model.safetensors"
    qtbot.waitUntil(lambda: desk_of(viewer).dock is not None, timeout=MINUTES)
    analysis = desk_of(viewer).dock
    assert analysis.state.model == model
    viewer.open(str(folder / "sample-001.tif"), plugin="napari-spt")
    click.count += 3  # Open slide…, the file, Open
    click(analysis.run.analyse)
    qtbot.waitUntil(
        lambda: (
            analysis.state.analysis is not None and not analysis.state.analysis.is_open
        ),
        timeout=5 * MINUTES,
    )
    assert analysis.state.analysis.prediction is not None
    assert click.count <= 10


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_killed_told_and_gone_on_with(open_train, tmp_path, qtbot):  # noqa: F811
    cohort = write_benchmark_cohort(tmp_path, patients=6, slides_each=1, sites=2)
    viewer, dock = open_train(show=True)
    dock.draft.set(
        features=str(cohort / "features"),
        out=str(tmp_path / "study"),
        advanced={"steps": 120, "device": "cpu"},
    )
    qtbot.waitUntil(lambda: dock.start.isEnabled(), timeout=MINUTES)
    dock.start.click()
    qtbot.waitUntil(
        lambda: dock.run.last is not None and dock.run.last.training is not None,
        timeout=2 * MINUTES,
    )
    os.kill(dock.run.last.state.pid, signal.SIGKILL)
    qtbot.waitUntil(lambda: "broken off" in dock.run.stands.text(), timeout=MINUTES)
    # The window is closed and opened: it offers to go on.
    viewer.window.remove_dock_widget(dock)
    _, again = open_train(viewer)
    qtbot.waitUntil(lambda: again.run.go_on.isVisibleTo(again.run), timeout=MINUTES)
    again.run.go_on.click()
    assert "Starting…" in again.run.stands.text()
    qtbot.waitUntil(lambda: "Finished" in again.run.stands.text(), timeout=5 * MINUTES)
    assert (tmp_path / "study/model.safetensors").exists()
    assert again.tabs.current == "Result"
