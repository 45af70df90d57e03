"""One dock: opening from it, its errors, closing and opening it again, its exports."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from napari._app_model import get_app_model
from napari.utils.notifications import notification_manager
from qtpy.QtCore import Qt
from qtpy.QtWidgets import QFileDialog

from napari_spt.analysis.slide_analysis import Change, Phase
from napari_spt.parts.dock_frame import frame_of
from napari_spt.parts.post import post
from napari_spt.parts.settings import remember, remembered
from napari_spt.slides.recent import recent_slides
from spt_core.engine.protocol import (
    AskWithout,
    CheckFaithfulness,
    FaithfulnessChecked,
    MapTissue,
    Predicted,
    WithoutAnswered,
)
from spt_core.insight.results import Faithfulness, WhatIf
from tests.made_slides import picture, write_svs, write_tiff
from tests.plugin.dock_tools import (
    begun,
    known,
    map_of,
    open_slide,
    prediction,
    sent,
    started,
    words_of,
)

PATCHES = [(0, 0), (300, 200), (600, 400), (300, 600)]
STEP = (300, 200)


def click(qtbot, button):
    qtbot.waitUntil(lambda: button.isVisible() and button.height() > 5)
    qtbot.mouseClick(button, Qt.MouseButton.LeftButton)


def made(folder, name="a.tif", **options):
    write_tiff(folder / name, picture(1200, 1000), levels=2, **options)
    return folder / name


def reopened(viewer):
    return viewer.window.add_plugin_dock_widget("napari-spt", "Slide analysis")[1]


@pytest.fixture
def asked(monkeypatch):
    """Who asked, by the kind of request; none reaches the engine."""
    callbacks, dropped = {}, []

    def ask(request, callback, *, user):
        callbacks[type(request)] = callback
        return len(callbacks)

    monkeypatch.setattr(post(), "ask", ask)
    monkeypatch.setattr(post(), "forget", dropped.append)
    monkeypatch.setattr(post(), "cancel", dropped.append)
    callbacks["dropped"] = dropped
    return callbacks


# Opening


def test_open_slide_and_recent_slides_are_always_there(open_dock, tmp_path, qtbot):
    viewer, dock = open_dock(show=True)
    opening = dock.slide.opening
    first, second = made(tmp_path), made(tmp_path, "b.tif")
    opening.fill()
    assert [one.text() for one in opening.menu.actions()] == ["None yet"]
    # As `napari a.tif` and dropping it on the window do.
    open_slide(viewer, first)
    assert recent_slides() == [str(first)]
    viewer.layers.clear()
    click(qtbot, dock.slide.open_button)
    assert isinstance(dock.slide.dialog, QFileDialog)
    dock.slide.dialog.filesSelected.emit([str(second)])
    dock.slide.dialog.close()
    qtbot.waitUntil(lambda: len(viewer.layers) == 1, timeout=10_000)
    assert dock.slide.open_button.isVisible()
    opening.menu.aboutToShow.emit()
    names = [one.text() for one in opening.menu.actions()]
    assert names == ["b.tif", "a.tif"]
    opening.menu.actions()[1].trigger()
    qtbot.waitUntil(lambda: len(viewer.layers) == 2, timeout=10_000)
    assert dock.state.layer is viewer.layers[1]
    # What is open already is shown, not opened again.
    opening.menu.actions()[0].trigger()
    qtbot.waitUntil(lambda: dock.state.layer is viewer.layers[0], timeout=10_000)
    assert len(viewer.layers) == 2
    qtbot.waitUntil(lambda: not opening.wait.isVisible(), timeout=5_000)


def test_our_docks_are_tabs_of_one_place(open_dock, qtbot):
    viewer, dock = open_dock()
    window = viewer.window._qt_window
    analysis = frame_of(dock)
    _, train = viewer.window.add_plugin_dock_widget("napari-spt", "Train")
    frame = frame_of(train)
    qtbot.waitUntil(lambda: frame in window.tabifiedDockWidgets(analysis))
    viewer.window.add_plugin_dock_widget("napari-spt", "Open slide…")
    qtbot.waitUntil(lambda: len(window.tabifiedDockWidgets(analysis)) == 2)


def test_opening_can_be_cancelled(open_dock, tmp_path, qtbot, monkeypatch):
    from threading import Event

    from napari_spt.slides import open_command

    viewer, dock = open_dock(show=True)
    goes_on, is_done, plain = Event(), Event(), open_command.open_slide

    def slow(path, **options):
        goes_on.wait(20)
        is_done.set()
        return plain(path, **options)

    monkeypatch.setattr(open_command, "open_slide", slow)
    opening = dock.slide.opening
    opening.open(str(made(tmp_path)))
    assert "Opening a.tif" in opening.waiting.text()
    click(qtbot, opening.cancel_button)
    assert not opening.wait.isVisible()
    goes_on.set()
    qtbot.waitUntil(is_done.is_set, timeout=5_000)
    qtbot.wait(300)
    assert len(viewer.layers) == 0


def test_errors_stand_in_the_dock_until_they_are_read(open_dock, tmp_path, qtbot):
    viewer, dock = open_dock(show=True)
    opening, trouble = dock.slide.opening, dock.slide.opening.trouble
    notification_manager.records.clear()
    write_svs(tmp_path / "whole.svs", picture(900, 700))
    data = (tmp_path / "whole.svs").read_bytes()
    long = tmp_path / f"{'a long name ' * 5}truncated.svs"
    long.write_bytes(data[:6])
    (tmp_path / "notes.svs").write_text("Dear colleague")
    (tmp_path / "alone.mrxs").write_bytes(data[:2000])
    assert not trouble.isVisible()
    opening.open(str(long))
    qtbot.waitUntil(trouble.isVisible, timeout=10_000)
    opening.open(str(tmp_path / "notes.svs"))
    qtbot.waitUntil(lambda: "notes.svs" in trouble.words.text(), timeout=10_000)
    words = trouble.words.text()
    assert words.startswith(f"<b>{long.name}</b>")
    assert "Copy it again" in words
    assert "a text file" in words
    assert str(tmp_path) not in words
    assert not any(raw in words for raw in ("Error", "unpack", "buffer", "Traceback"))
    # All of it can be read: the label is as high as its text.
    label = trouble.words
    qtbot.waitUntil(lambda: label.height() >= label.heightForWidth(label.width()))
    # Also of a file that is dropped, of which napari tells in its own way.
    with pytest.raises(ValueError, match="is empty"):
        viewer.open(str(_empty(tmp_path / "nothing.svs")), plugin="napari-spt")
    assert "nothing.svs" in trouble.words.text()
    assert notification_manager.records == []
    open_slide(viewer, made(tmp_path))
    assert trouble.isVisible()
    click(qtbot, trouble.read)
    assert not trouble.isVisible()


def _empty(path):
    path.touch()
    return path


def test_without_a_dock_errors_are_told_by_name(make_napari_viewer, tmp_path, qtbot):
    from napari_spt.slides.open_command import open_slides

    viewer = make_napari_viewer()
    notification_manager.records.clear()
    open_slides(viewer, [_empty(tmp_path / "nothing.svs")], offers=False)
    qtbot.waitUntil(lambda: bool(notification_manager.records), timeout=10_000)
    assert notification_manager.records[0].message.startswith("nothing.svs is empty")


def test_a_slide_that_is_incomplete_says_so_in_the_dock(open_dock, tmp_path):
    viewer, dock = open_dock(show=True)
    write_svs(tmp_path / "cut.svs", picture(2200, 1700))
    data = (tmp_path / "cut.svs").read_bytes()
    (tmp_path / "cut.svs").write_bytes(data[: int(len(data) * 0.6)])
    open_slide(viewer, tmp_path / "cut.svs")
    words = dock.slide.opening.trouble.words.text()
    assert words.startswith("<b>cut.svs</b> is open")
    assert "incomplete" in words


def test_a_pixel_size_that_is_not_believed_is_said_so(open_dock, tmp_path):
    viewer, dock = open_dock(show=True)
    open_slide(viewer, made(tmp_path, mpp_xy=(250.0, 250.0)))
    question = dock.slide.pixel_size
    assert question.isVisible()
    assert "says that a pixel is 250 × 250 µm" in question.words.text()
    assert "not believed" in question.words.text()
    open_slide(viewer, made(tmp_path, "b.tif", mpp_xy=None))
    assert "does not say how large" in question.words.text()


# Closing and opening again


def test_analyse_this_slide_takes_the_dock_that_is_open(open_dock, tmp_path, qtbot):
    viewer, dock = open_dock(show=True)
    open_slide(viewer, made(tmp_path))
    known(dock, viewer.layers[0], PATCHES, STEP, tmp_path)
    dock.parentWidget().hide()
    command = "napari-spt.analyse_layer"
    for _ in range(2):
        get_app_model().commands.execute_command(command).result()
        assert dock.isVisible()
        assert not dock.is_closed
        assert dock.desk.dock is dock
    docks = viewer.window._wrapped_dock_widgets
    assert sum("Slide analysis" in name for name in docks) == 1


def test_closed_in_mid_run_it_knows_the_reading(open_dock, tmp_path, asked, qtbot):
    viewer, dock = open_dock(show=True)
    layer = open_slide(viewer, made(tmp_path))
    analysis = begun(dock, layer)
    analysis.request = 7
    for reply in (
        started(8, STEP, analysis.slide),
        Predicted(prediction(PATCHES, STEP, total=8)),
    ):
        dock.state.apply(analysis, sent(reply, tmp_path))
    legend = dock.renderer.legend
    assert legend.isVisible()
    viewer.window.remove_dock_widget(dock)
    assert dock.is_closed
    assert 7 in asked["dropped"]
    # A map that is left has its legend, which goes with it and comes back.
    attention = map_of(dock, "attention", analysis)
    assert legend.isVisible()
    attention.visible = False
    assert not legend.isVisible()
    attention.visible = True
    assert legend.isVisible()
    again = reopened(viewer)
    assert again is not dock
    assert again.state.analysis is analysis
    assert analysis.phase == Phase.CANCELLED
    qtbot.waitUntil(again.answer.isVisible)
    assert "Seen 50 %" in again.answer.seen.text()
    assert "Cancelled" in again.run.trouble.text()
    assert again.run.analyse.isEnabled()
    assert again.renderer.legend is legend
    assert "average" in layer.get_status((10, 10), world=True)["coordinates"]
    viewer.layers.remove(attention)
    assert not legend.isVisible()
    viewer.layers.clear()
    assert again.state.analyses == {}
    viewer.window.remove_dock_widget(again)
    again.deleteLater()


def test_an_end_by_an_exception_prints_one_error(tmp_path):
    script = tmp_path / "window.py"
    script.write_text(
        "import napari\n"
        "viewer = napari.Viewer(show=False)\n"
        "viewer.window.add_plugin_dock_widget('napari-spt', 'Slide analysis')\n"
        "raise SystemError('the one error')\n"
    )
    kept = {"NAPARI_CONFIG": str(tmp_path / "napari.yaml")}
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, **kept},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stderr.count("Traceback") == 1
    assert done.stderr.rstrip().endswith("SystemError: the one error")


# Waits, and exports


@pytest.fixture
def analysed(open_dock, tmp_path, asked):
    viewer, dock = open_dock(show=True)
    layer = open_slide(viewer, made(tmp_path))
    analysis = known(dock, layer, PATCHES, STEP, tmp_path)
    analysis.features.touch()
    dock.state.tell(analysis, Change.FEATURES)
    return viewer, dock, analysis


def test_every_wait_offers_cancel(analysed, asked, qtbot, tmp_path):
    _, dock, analysis = analysed
    questions = dock.questions
    click(qtbot, dock.tabs.buttons["Questions"])
    click(qtbot, questions.check)
    assert "Taking tissue away" in questions.hint.text()
    click(qtbot, questions.cancel)
    assert not questions.cancel.isVisible()
    assert questions.check.isEnabled()
    assert len(asked["dropped"]) > 0
    # Kinds of tissue.
    dock.session._map_tissue(analysis)
    assert dock.run.running.isVisible()
    click(qtbot, dock.run.cancel)
    assert not dock.run.running.isVisible()
    assert not dock.run.cancel.isVisible()
    assert analysis.tissue_request in asked["dropped"]
    assert MapTissue in asked
    # A picture that is made ready.
    dock.state.set_preparing(True)
    click(qtbot, dock.run.cancel)
    assert not dock.state.is_preparing
    # A report.
    path = tmp_path / "out" / "report.html"
    path.parent.mkdir()
    dock.export.write(path)
    assert dock.export.cancel.isVisibleTo(dock.export)
    dock.export.cancel.click()
    assert dock.export.export.isEnabled()
    qtbot.wait(500)
    # It ends when it can; nothing of it is left.
    qtbot.waitUntil(lambda: not list(path.parent.iterdir()), timeout=30_000)
    qtbot.wait(100)
    assert not path.exists()


def test_an_export_has_the_questions_a_pseudonym_and_its_folder(
    analysed, asked, qtbot, tmp_path
):
    _, dock, analysis = analysed
    before = prediction(PATCHES, STEP)
    after = prediction(PATCHES[:2], STEP, probabilities=(0.3, 0.7))
    dock.questions.without.setChecked(True)
    dock.questions._drawing.layer.add_polygons([[0, 0], [0, 400], [400, 400]])
    removed = np.array([False, False, True, True])
    without = WithoutAnswered(WhatIf(before, after, 2), removed)
    asked[AskWithout](sent(without, tmp_path))
    dock.questions.without.setChecked(False)
    dock.questions.check.click()
    shares = np.array([0.8, 0.1])
    check = Faithfulness("one kind", 1 - shares, shares, shares, shares, 4, False)
    asked[CheckFaithfulness](sent(FaithfulnessChecked(check), tmp_path))
    pseudonym = analysis.prediction.pseudonym
    assert dock.export.proposed_name == pseudonym
    dialog = dock.export.choose_file()
    assert Path(dialog.selectedFiles()[0]).name == f"{pseudonym}.html"
    folder = tmp_path / "exports"
    folder.mkdir()
    dialog.fileSelected.emit(str(folder / "mine.html"))
    dialog.close()
    qtbot.waitUntil(lambda: dock.export.export.isEnabled(), timeout=30_000)
    page = (folder / "mine.html").read_text(encoding="utf-8")
    assert "Without these 2 of 4 patches one kind goes from 0.80 to 0.30" in page
    assert "Does the attention matter?" in page
    assert remembered("export_folder") == str(folder)
    dialog = dock.export.choose_file()
    assert dialog.directory().absolutePath() == str(folder)
    dialog.close()
    dock.export.names_slide.setChecked(True)
    assert dock.export.proposed_name == "a"


def test_nothing_is_said_of_slicing(open_dock):
    remember("advanced", {})
    _, dock = open_dock()
    dock.advanced.open()
    assert not [one for one in words_of(dock) if "asynchronous" in one]
