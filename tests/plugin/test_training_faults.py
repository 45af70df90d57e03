"""What may happen to a study that runs: a sentence in the dock, and nothing is lost."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from qtpy.QtCore import Qt
from qtpy.QtWidgets import QPushButton
from safetensors.numpy import load_file

from napari_spt.training.reading import Phase
from spt_core.studies.study_folder import StudyFolder
from spt_core.studies.study_runs import latest_run
from tests.core.studies.benchmarks import write_benchmark_cohort
from tests.plugin.test_training_dock import open_train  # noqa: F401

MINUTES = 60_000
QUICK = {"steps": 300, "pretrain_steps": 20, "folds": 2, "workers": 1, "device": "cpu"}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def cohort(tmp_path):
    folder = tmp_path / "cohort"
    return write_benchmark_cohort(folder, patients=8, slides_each=1, sites=2)


def begin(dock, cohort, out, qtbot):
    """Start a study by its button, and wait until it learns."""
    dock.draft.set(features=str(cohort / "features"), out=str(out), advanced=QUICK)
    dock.data.take_labels(str(cohort / "labels.csv"))
    dock.goal.buttons["classify"].click()
    qtbot.waitUntil(dock.start.isEnabled, timeout=MINUTES)
    dock.start.click()
    qtbot.waitUntil(lambda: learns(dock), timeout=2 * MINUTES)


def learns(dock):
    look = dock.run.last
    return look is not None and look.phase is Phase.RUNNING and bool(look.trainings)


def ends(dock, qtbot, *phases):
    qtbot.waitUntil(lambda: dock.run.last.phase in phases, timeout=5 * MINUTES)


def undisturbed(cohort, out):
    """The same study by the command, in one go."""
    words = [sys.executable, "-m", "spt_core", "study", str(out), "--goal", "classify"]
    words += ["--features", str(cohort / "features")]
    words += ["--labels", str(cohort / "labels.csv")]
    for name, value in QUICK.items():
        words += [f"--{name.replace('_', '-')}", str(value)]
    subprocess.run(words, check=True, stderr=subprocess.DEVNULL, timeout=600)
    return StudyFolder(out)


def same_model(ours, theirs):
    ours, theirs = load_file(ours.model), load_file(theirs.model)
    assert ours.keys() == theirs.keys()
    for name in ours:
        np.testing.assert_array_equal(ours[name], theirs[name])


WINDOW = """
import sys, time
import napari
from qtpy.QtWidgets import QApplication
from tests.plugin.test_training_faults import QUICK, learns

features, labels, out = sys.argv[1:]
viewer = napari.Viewer()
_, dock = viewer.window.add_plugin_dock_widget("napari-spt", "Train")
dock.draft.set(features=features, out=out, advanced=QUICK)
dock.data.take_labels(labels)
dock.goal.buttons["classify"].click()
said = False
while True:
    QApplication.processEvents()
    time.sleep(0.01)
    if dock.start.isEnabled() and dock.study is None:
        dock.start.click()
    if learns(dock) and not said:
        said = True
        print("learns", flush=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_napari_is_killed_and_the_study_goes_on(open_train, cohort, tmp_path, qtbot):  # noqa: F811
    out = tmp_path / "study"
    words = [sys.executable, "-c", WINDOW, str(cohort / "features")]
    words += [str(cohort / "labels.csv"), str(out)]
    root = Path(__file__).parents[2]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=root) as window:
        assert window.stdout.readline().strip() == "learns"
        window.send_signal(signal.SIGKILL)
    folder = StudyFolder(out)
    assert folder.is_held()  # it outlives the window
    # Another window finds it; now the study itself is killed.
    _, dock = open_train(show=True)
    assert dock.study == out
    qtbot.waitUntil(lambda: learns(dock), timeout=MINUTES)
    pid = dock.run.last.state.pid
    os.kill(pid, signal.SIGKILL)
    ends(dock, qtbot, Phase.LOST)
    assert "Nothing is lost" in dock.run.says.text()
    dock.run.go_on.click()
    ends(dock, qtbot, Phase.FINISHED)
    assert dock.tabs.current == "Result"
    same_model(folder, undisturbed(cohort, tmp_path / "whole"))
    # Nobody is left.
    qtbot.waitUntil(lambda: not dock.queue.is_served(), timeout=MINUTES)
    assert not folder.is_held()


def press(button, qtbot):
    qtbot.waitUntil(lambda: button.isVisible() and button.isEnabled(), timeout=MINUTES)
    qtbot.mouseClick(button, Qt.MouseButton.LeftButton)


def choose(button, action, qtbot):
    """Open a button's menu, and press one of its lines."""
    press(button, qtbot)
    menu = button.menu()
    qtbot.waitUntil(menu.isVisible, timeout=MINUTES)
    place = menu.actionGeometry(action).center()
    qtbot.mouseClick(menu, Qt.MouseButton.LeftButton, pos=place)


def test_what_is_paused_is_kept_or_discarded_at_once(
    open_train,  # noqa: F811
    cohort,
    tmp_path,
    qtbot,
):
    _, dock = open_train(show=True)
    folder = StudyFolder(tmp_path / "study")
    begin(dock, cohort, folder.path, qtbot)
    qtbot.waitUntil(lambda: dock.run.last.state.stage == "train", timeout=2 * MINUTES)
    press(dock.run.pause, qtbot)
    ends(dock, qtbot, Phase.PAUSED)
    run = folder.run(1)
    assert (run / "model/checkpoint.pt").exists()
    learned = [one for one in folder.read_events()[0] if one["event"] == "epoch"]
    choose(dock.run.stop, dock.run.keep_last, qtbot)
    assert "Stopping…" in dock.run.stands.text()
    qtbot.wait(1200)  # still, while the process that does it begins
    assert "Stopping…" in dock.run.stands.text()
    ends(dock, qtbot, Phase.STOPPED)
    assert dock.tabs.current == "Result"
    assert folder.model.read_bytes() == (run / "model/last.safetensors").read_bytes()
    after = [one for one in folder.read_events()[0] if one["event"] == "epoch"]
    assert after == learned  # no step was taken for it
    # It goes on, is paused again, and is removed.
    dock.tabs.choose("Run")
    press(dock.run.go_on, qtbot)
    qtbot.waitUntil(lambda: dock.run.last.phase is Phase.RUNNING, timeout=2 * MINUTES)
    press(dock.run.pause, qtbot)
    ends(dock, qtbot, Phase.PAUSED)
    press(dock.run.discard, qtbot)
    (sure,) = (
        one
        for one in dock.run.question.findChildren(QPushButton)
        if one.text() == "Discard"
    )
    press(sure, qtbot)
    began = time.monotonic()
    qtbot.waitUntil(lambda: dock.run.last.phase is Phase.DISCARDED, timeout=MINUTES)
    assert time.monotonic() - began < 3
    assert "Run 1 was removed" in dock.run.says.text()
    assert not run.exists()
    assert not dock.run.discard.isVisible()
    qtbot.waitUntil(lambda: not dock.queue.is_served(), timeout=MINUTES)
    assert not folder.is_held()


def test_a_slide_deleted_meanwhile_is_not_missed(open_train, cohort, tmp_path, qtbot):  # noqa: F811
    """A begun run has its slides; what is gone is gone for the next."""
    whole = undisturbed(cohort, tmp_path / "whole")
    _, dock = open_train(show=True)
    begin(dock, cohort, tmp_path / "study", qtbot)
    (cohort / "features/s03-0.h5").unlink()
    ends(dock, qtbot, Phase.FINISHED)
    same_model(StudyFolder(tmp_path / "study"), whole)


def test_labels_edited_meanwhile_do_not_mix(open_train, cohort, tmp_path, qtbot):  # noqa: F811
    """A begun run keeps the labels it began with."""
    labels = cohort / "labels.csv"
    whole = undisturbed(cohort, tmp_path / "whole")
    _, dock = open_train(show=True)
    begin(dock, cohort, tmp_path / "study", qtbot)
    labels.write_text(labels.read_text().replace(",a,", ",c,", 1))
    ends(dock, qtbot, Phase.FINISHED)
    same_model(StudyFolder(tmp_path / "study"), whole)


def test_a_run_goes_on_where_its_labels_are_back(open_train, cohort, tmp_path, qtbot):  # noqa: F811
    """Paused, changed, put back: the same run; without that another one, and a word."""
    labels = cohort / "labels.csv"
    before = labels.read_text()
    whole = undisturbed(cohort, tmp_path / "whole")
    _, dock = open_train(show=True)
    begin(dock, cohort, tmp_path / "study", qtbot)
    dock.run.pause.click()
    ends(dock, qtbot, Phase.PAUSED)
    labels.write_text(before.replace(",a,", ",c,", 1))
    dock.run.go_on.click()
    ends(dock, qtbot, Phase.FAILED)  # a class of one slide
    assert "Traceback" not in dock.run.says.text()
    labels.write_text(before)
    dock.run.go_on.click()
    ends(dock, qtbot, Phase.FINISHED)
    study = StudyFolder(tmp_path / "study")
    assert latest_run(study).number == 1
    same_model(study, whole)


@pytest.fixture
def small_disk(tmp_path):
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64m", "none", str(place)]
    if sys.platform != "linux" or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a small disk to fill: only root may mount one, on Linux")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_disk_is_told_and_gone_on_with(
    open_train,  # noqa: F811
    cohort,
    small_disk,
    tmp_path,
    qtbot,
):
    out = small_disk / "study"
    _, dock = open_train(show=True)
    begin(dock, cohort, out, qtbot)
    filler = small_disk / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1 << 16))
        except OSError:
            pass
    ends(dock, qtbot, Phase.FAILED, Phase.LOST)
    qtbot.waitUntil(lambda: "disk is full" in dock.run.says.text(), timeout=MINUTES)
    filler.unlink()
    time.sleep(1)
    dock.run.go_on.click()
    ends(dock, qtbot, Phase.FINISHED)
    same_model(StudyFolder(out), undisturbed(cohort, tmp_path / "whole"))
