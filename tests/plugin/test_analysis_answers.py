"""Whose an answer is, how long it stays, and what is kept of the user's choices."""

from pathlib import Path

import numpy as np
import pytest
from napari.utils.notifications import notification_manager
from qtpy.QtWidgets import QApplication, QMessageBox

from napari_spt.analysis.slide_analysis import Change, Phase
from napari_spt.parts.post import post
from napari_spt.parts.settings import remember, remembered
from napari_spt.slides.recent import recent_slides
from spt_core.engine.protocol import (
    Analyse,
    AskWithout,
    Cancelled,
    CheckFaithfulness,
    FaithfulnessChecked,
    WithoutAnswered,
)
from spt_core.insight.exporting import FORMATS
from spt_core.insight.results import Faithfulness, WhatIf
from tests.made_slides import picture, write_tiff
from tests.plugin.dock_tools import (
    SLOW,
    known,
    open_slide,
    prediction,
    sent,
    wait_ended,
)

PATCHES = [(0, 0), (300, 200), (600, 400), (300, 600)]
STEP = (300, 200)


@pytest.fixture
def analysed(open_dock, tmp_path):
    """A dock over a slide that has been analysed."""
    viewer, dock = open_dock(show=True)
    write_tiff(tmp_path / "a.tif", picture(1200, 1000), levels=2)
    slide = open_slide(viewer, tmp_path / "a.tif")
    return viewer, dock, known(dock, slide, PATCHES, STEP, tmp_path)


@pytest.fixture
def asked(monkeypatch):
    """Who asked, by the kind of request; none reaches the engine."""
    callbacks = {}

    def ask(request, callback, *, user):
        callbacks[type(request)] = callback
        return len(callbacks)

    monkeypatch.setattr(post(), "ask", ask)
    return callbacks


def test_an_answer_says_of_which_model_it_is(analysed):
    _, dock, _ = analysed
    assert dock.answer.heading.text() == "<b>What the model says</b>"
    assert dock.run.analyse.text() == "Analyse"
    dock.model.choose_none()
    assert "Demonstration model” said" in dock.answer.heading.text()
    assert dock.run.analyse.text() == "Map the tissue"


def test_a_slide_chosen_in_the_list_stays_chosen(open_dock, tmp_path):
    viewer, dock = open_dock()
    layers = []
    for name in ("a", "b"):
        write_tiff(tmp_path / f"{name}.tif", picture(1200, 1000), levels=2)
        layers.append(open_slide(viewer, tmp_path / f"{name}.tif"))
    dock.slide.list.setCurrentIndex(0)
    dock.slide.list.activated.emit(0)
    analysis = known(dock, layers[0], PATCHES, STEP, tmp_path)
    assert dock.state.layer is layers[0]
    dock.regions.strip.go(0)  # adds a layer
    assert dock.state.layer is layers[0]
    assert dock.state.analysis is analysis
    assert dock.regions.strip.places


def test_what_was_found_stays_when_it_is_looked_for_again(analysed, asked, tmp_path):
    viewer, dock, analysis = analysed
    count = len(viewer.layers)
    dock.run.analyse.click()
    again = dock.state.analysis
    assert again is not analysis
    assert again.is_open
    assert dock.answer.isVisible()
    asked[Analyse](sent(Cancelled(), tmp_path))
    assert again.phase == Phase.CANCELLED
    assert "stays" in dock.run.trouble.text()
    assert dock.answer.isVisible()
    assert dock.regions.strip.places
    assert len(viewer.layers) == count
    assert dock.run.analyse.text() == "Analyse"


def test_work_beside_the_window_fails_by_one_sentence(analysed, qtbot, tmp_path):
    _, dock, _ = analysed
    notification_manager.records.clear()
    dock.export.write(tmp_path / "a.tif" / "report.html")  # a file is no folder
    qtbot.waitUntil(lambda: dock.export.export.isEnabled(), timeout=20_000)
    said = [note.message for note in notification_manager.records]
    assert len(said) == 1
    assert said[0].startswith("The report cannot be written: ")


def test_a_drawing_does_not_end_the_check(analysed, asked, tmp_path):
    _, dock, analysis = analysed
    questions = dock.questions
    assert not questions.check.isEnabled()
    assert "cleared" in questions.why_not.text()
    analysis.features.touch()
    dock.state.tell(analysis, Change.FEATURES)
    questions.check.click()
    assert not questions.check.isEnabled()
    questions.without.setChecked(True)
    drawn = questions._drawing.layer
    square = np.array([[100.0, 100.0], [100.0, 300.0], [300.0, 300.0], [300.0, 100.0]])
    drawn.add_polygons(square)
    after = prediction(PATCHES[3:], STEP, probabilities=(0.5, 0.5))
    without = WhatIf(analysis.prediction, after, 3)
    removed = np.array([True, True, True, False])
    asked[AskWithout](sent(WithoutAnswered(without, removed), tmp_path))
    assert "80 % to 50 %" in questions.answer.text()
    assert dock.answer.bars.bars["another"].other == pytest.approx(0.5)
    shares = np.linspace(1, 0, 5)
    found = Faithfulness("x", 1 - shares, shares, shares, shares, 4, False)
    asked[CheckFaithfulness](sent(FaithfulnessChecked(found), tmp_path))
    assert questions.check.isEnabled()
    assert "80 % to 50 %" in questions.answer.text()  # of what is drawn
    drawn.selected_data = {0}
    drawn.remove_selected()
    assert questions.answer.isHidden()  # nothing is drawn any more
    assert dock.answer.bars.bars["another"].other is None
    dock.viewer.layers.remove(drawn)
    assert not questions.without.isChecked()


def test_other_settings_are_kept_without_an_analysis(open_dock, qtbot):
    _, dock = open_dock()
    dock.advanced.open()
    dock.advanced.encoding["batch_size"].native.setValue(17)
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
    chosen = next(one for one in FORMATS if ending in one.endings)
    assert chosen.with_ending(Path("x") / name) == Path("x") / made


def test_opening_a_slide_from_the_dock_asks_nothing(open_dock, tmp_path, qtbot):
    """A small picture that napari's own reader would take, as well."""
    _, dock = open_dock(show=True)
    remember("asked_default_reader", False)
    write_tiff(tmp_path / "small.tif", picture(1200, 1000), mpp_xy=(0.5, 0.5))
    dock.slide.open_button.click()
    dock.slide.dialog.filesSelected.emit([str(tmp_path / "small.tif")])
    dock.slide.dialog.close()
    qtbot.waitUntil(lambda: dock.state.layer is not None, timeout=10_000)
    boxes = [w for w in QApplication.topLevelWidgets() if isinstance(w, QMessageBox)]
    assert not any(box.isVisible() for box in boxes)
    assert dock.run.analyse.isEnabled()
    assert recent_slides()


def test_without_a_model_it_says_what_it_does(open_dock, sample, qtbot):
    viewer, dock = open_dock(show=True)
    open_slide(viewer, sample)
    dock.model.choose_none()
    dock.run.analyse.click()
    wait_ended(qtbot, dock)
    analysis = dock.state.analysis
    if analysis.tissue_map is None:
        assert dock.run.running.isVisible()
        assert "alike" in dock.run.progress.text()
    qtbot.waitUntil(lambda: analysis.tissue_map is not None, timeout=SLOW)
    assert not dock.run.running.isVisible()
