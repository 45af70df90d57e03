"""Whose an answer is, how long it stays, and what is kept of the user's choices."""

from pathlib import Path

import numpy as np
import pytest
from napari.utils.notifications import notification_manager
from qtpy.QtWidgets import QApplication, QMessageBox

from napari_spt.analysis.report_dialog import with_ending
from napari_spt.parts.engine import Message
from napari_spt.parts.post import post
from napari_spt.parts.settings import remember, remembered
from napari_spt.slides.open_command import recent_slides
from tests.made_slides import picture, write_tiff
from tests.plugin.dock_tools import known, open_slide, wait_ended

PATCHES = [(0, 0), (300, 200), (600, 400), (300, 600)]
STEP = (300, 200)


@pytest.fixture
def analysed(open_dock, tmp_path):
    """A dock over a slide that has been analysed."""
    viewer, dock = open_dock(show=True)
    write_tiff(tmp_path / "a.tif", picture(1200, 1000), levels=2)
    slide = open_slide(viewer, tmp_path / "a.tif")
    shown = known(viewer, dock, slide, PATCHES, STEP)
    shown.analysis.model = dock.model.path
    shown.analysis.model_name = dock.model.list.currentText()
    dock.follow()
    return viewer, dock, shown


@pytest.fixture
def asked(monkeypatch):
    """Questions that were sent, with whom to tell; none reaches the engine."""
    sent = {}

    def ask(do, callback, **facts):
        sent[do] = callback
        return len(sent)

    monkeypatch.setattr(post(), "ask", ask)
    return sent


def test_an_answer_says_of_which_model_it_is(analysed):
    _, dock, _ = analysed
    assert dock.answer_section.heading.text() == "<b>What the model says</b>"
    assert dock.analyse.text() == "Analyse again"
    dock.model.choose_none()
    assert "Demonstration model” said" in dock.answer_section.heading.text()
    assert dock.analyse.text() == "Map the tissue"


def test_a_slide_chosen_in_the_list_stays_chosen(open_dock, tmp_path):
    viewer, dock = open_dock()
    layers = []
    for name in ("a", "b"):
        write_tiff(tmp_path / f"{name}.tif", picture(1200, 1000), levels=2)
        layers.append(open_slide(viewer, tmp_path / f"{name}.tif"))
    dock.slide.setCurrentIndex(0)
    dock.slide.activated.emit(0)
    shown = known(viewer, dock, layers[0], PATCHES, STEP)
    assert dock.layer is layers[0]
    dock.fly_to(0)  # adds a layer
    assert dock.layer is layers[0]
    assert dock.shown is shown
    assert dock.strip.places


def test_what_was_found_stays_when_it_is_looked_for_again(analysed, asked):
    viewer, dock, shown = analysed
    count = len(viewer.layers)
    dock.analyse.click()
    again = dock.shown
    assert again is not shown
    assert again.analysis.is_open
    assert dock.reading.isVisible()
    asked["analyse"](Message(1, "cancelled", {}, {}))
    assert again.analysis.state == "cancelled"
    assert "stays" in dock.trouble.text()
    assert dock.reading.isVisible()
    assert dock.strip.places
    assert len(viewer.layers) == count
    assert dock.analyse.text() == "Go on"


def test_work_beside_the_window_fails_by_one_sentence(analysed, qtbot, tmp_path):
    _, dock, _ = analysed
    notification_manager.records.clear()
    dock.work.write_report(tmp_path / "a.tif" / "report.html")  # a file is no folder
    qtbot.waitUntil(lambda: dock.export.isEnabled(), timeout=20_000)
    said = [note.message for note in notification_manager.records]
    assert len(said) == 1
    assert said[0].startswith("The report cannot be written: ")


def test_a_drawing_does_not_end_the_check(analysed, asked, tmp_path):
    _, dock, shown = analysed
    shown.analysis.features = tmp_path / "kept.h5"
    dock.follow()
    assert not dock.questions.check.isEnabled()
    assert "cleared" in dock.questions.why_not.text()
    shown.analysis.features.touch()
    dock.follow()
    questions = dock.questions
    questions.check.click()
    assert not questions.check.isEnabled()
    questions.without.setChecked(True)
    square = np.array([[100.0, 100.0], [100.0, 300.0], [300.0, 300.0], [300.0, 100.0]])
    questions._drawing.add_polygons(square)
    before = {"probabilities": [0.8, 0.2]}
    facts = {"before": before, "after": {"probabilities": [0.5, 0.5]}, "removed": 3}
    facts["classes"] = ["one kind", "another"]
    asked["what_if"](Message(2, "done", facts, {}))
    assert "80 % to 50 %" in questions.answer.text()
    asked["faithfulness"](Message(1, "done", {"class_name": "x", "area": 0.2}, {}))
    assert questions.check.isEnabled()
    assert "80 % to 50 %" in questions.answer.text()  # of what is drawn
    questions._drawing.selected_data = {0}
    questions._drawing.remove_selected()
    assert questions.answer.isHidden()  # nothing is drawn any more
    dock.viewer.layers.remove(questions._drawing)
    assert not questions.without.isChecked()


def test_other_settings_are_kept_without_an_analysis(open_dock, qtbot):
    _, dock = open_dock()
    dock.advanced.batch.setValue(17)
    qtbot.waitUntil(
        lambda: remembered("advanced", {}).get("batch") == 17, timeout=5_000
    )


@pytest.mark.parametrize(
    ("name", "ending", "made"),
    [
        ("report.tif", ".ome.tif", "report.ome.tif"),
        ("report.ome.tif", ".ome.tif", "report.ome.tif"),
        ("a.b", ".png", "a.b.png"),
        ("report.html", ".geojson", "report.geojson"),
    ],
)
def test_a_report_has_the_ending_of_its_format(name, ending, made):
    assert with_ending(Path("x") / name, ending) == Path("x") / made


def test_opening_a_slide_from_the_dock_asks_nothing(open_dock, tmp_path, qtbot):
    """A small picture that napari's own reader would take, as well."""
    _, dock = open_dock(show=True)
    remember("asked_default_reader", False)
    write_tiff(tmp_path / "small.tif", picture(1200, 1000), mpp_xy=(0.5, 0.5))
    dock.open_button.click()
    dock.dialog.filesSelected.emit([str(tmp_path / "small.tif")])
    dock.dialog.close()
    qtbot.waitUntil(lambda: dock.layer is not None, timeout=10_000)
    boxes = [w for w in QApplication.topLevelWidgets() if isinstance(w, QMessageBox)]
    assert not any(box.isVisible() for box in boxes)
    assert dock.analyse.isEnabled()
    assert recent_slides()


def test_without_a_model_it_says_what_it_does(open_dock, sample, qtbot):
    viewer, dock = open_dock(show=True)
    open_slide(viewer, sample)
    dock.model.choose_none()
    dock.analyse.click()
    wait_ended(qtbot, dock)
    shown = dock.shown
    if not shown.kinds:
        assert dock.running.isVisible()
        assert "alike" in dock.progress.text()
    qtbot.waitUntil(lambda: bool(shown.kinds), timeout=60_000)
    assert not dock.running.isVisible()
