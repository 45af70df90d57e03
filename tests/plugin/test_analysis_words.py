"""The dock's words, and whether everybody can use it."""

import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from napari.settings import get_settings
from qtpy.QtCore import QPoint, Qt
from qtpy.QtTest import QTest
from qtpy.QtWidgets import QApplication, QLabel, QPushButton, QWidget

from napari_spt.analysis.legend_parts import Classes, Scale
from napari_spt.analysis.legends import Legend
from napari_spt.analysis.open_command import open_analysis
from napari_spt.analysis.slide_analysis import Change
from napari_spt.analysis.state import Options
from napari_spt.analysis.words import (
    failure_words,
    headline,
    notice_words,
    progress_words,
    remark_lines,
    remark_words,
    seen_words,
    step_words,
)
from spt_core.engine.protocol import (
    Failed,
    FailureKind,
    Noticed,
    NoticeKind,
    Step,
    Working,
)
from spt_core.events import Progress
from spt_core.insight.colours import NOT_WHERE
from spt_core.insight.results import Remark, RemarkKind, Verdict
from spt_core.insight.wording import WITHHELD
from spt_core.slides.tissue_mask import Tissue
from tests.made_slides import picture, write_svs
from tests.plugin.dock_tools import (
    controls_of,
    jargon_in,
    known,
    open_slide,
    prediction,
    words_of,
)


@pytest.fixture
def full(open_dock, tmp_path, request):
    """The dock with everything in it open."""
    viewer, dock = open_dock(show=True)
    viewer.window.resize(1280, 800)
    write_svs(tmp_path / "a.svs", picture(1423, 1111), mpp=None)
    slide = open_slide(viewer, tmp_path / "a.svs")
    places = [(x, y) for x in range(0, 1200, 100) for y in range(0, 1000, 100)]
    analysis = known(dock, slide, places, (100, 100), tmp_path)
    analysis.features.touch()
    dock.state.tell(analysis, Change.FEATURES)
    dock.advanced.build()
    QApplication.processEvents()
    return viewer, dock


def test_no_jargon_outside_advanced(full):
    _, dock = full
    dock.model.show_card()
    words = words_of(dock) + words_of(dock.renderer.legend) + words_of(dock.model.card)
    dock.model.card.close()
    advanced = words_of(dock.advanced)
    assert any("Encoder" in one or "encoder" in one for one in advanced)
    for one in advanced:
        words.remove(one)
    assert jargon_in(words) == set()
    assert any("For research, not for diagnosis." in one for one in words)
    assert any(NOT_WHERE in one for one in words)


def test_every_control_has_a_name_and_is_reached_by_tab(full, qtbot):
    _, dock = full
    dock.advanced.open()
    qtbot.wait(200)
    controls = controls_of(dock)
    assert len(controls) > 25
    for control in controls:
        has_words = isinstance(control, QPushButton) and control.text()
        named = control.accessibleName() or getattr(control, "text", str)()
        assert has_words or named, control
        assert control.focusPolicy() & Qt.FocusPolicy.TabFocus, named
    # From the top to the bottom, as one reads.
    order = [dock.slide.open_button]
    while dock.isAncestorOf(after := order[-1].nextInFocusChain()):
        order.append(after)
    del after  # it is napari's
    visible = [c for c in order if c in controls and c.isVisible()]
    column = dock.scroll.widget()
    tops = [
        c.mapTo(column, QPoint(0, 0)).y()
        if column.isAncestorOf(c)
        else column.height() + c.mapTo(dock.foot, QPoint(0, 0)).y()
        for c in visible
    ]
    assert len(visible) >= len([c for c in controls if c.isVisible()])
    first = visible[: len([c for c in controls if c.isVisible()])]
    steps = np.diff(tops[: len(first)])
    assert (steps > -40).all()


def cut_off(dock):
    """Words and controls that do not fit where they are, on any page."""
    found = []
    for page in dock.tabs.pages:
        dock.tabs.show_page(page)
        QTest.qWait(80)  # the column is laid out in several steps
        found += cut_off_here(dock)
    return found


def cut_off_here(dock):
    found = []
    column = dock.scroll.widget()
    for one in column.findChildren(QLabel) + controls_of(column):
        if not one.isVisible():
            continue
        left = one.mapTo(column, QPoint(0, 0)).x()
        if left < 0 or left + one.width() > dock.scroll.viewport().width() + 1:
            found.append((one, "too wide"))
        if isinstance(one, QLabel) and one.wordWrap():
            if one.height() + 1 < one.heightForWidth(one.width()):
                found.append((one.text(), "too high"))
        elif one.height() + 1 < one.fontMetrics().height():
            found.append((one, "squeezed"))
    return found


@pytest.mark.parametrize("theme", ["dark", "light"])
def test_nothing_is_cut_off_at_1280_by_800(full, theme):
    viewer, dock = full
    viewer.theme = theme
    dock.advanced.open()
    QApplication.processEvents()
    assert cut_off(dock) == []
    assert viewer.window.geometry()[2] <= 1300


def test_text_of_twice_the_size_fits(full, qtbot):
    _, dock = full
    dock.advanced.open()
    before = dock.footer.fontMetrics().height()
    settings = get_settings().appearance
    size = settings.font_size
    settings.font_size = 2 * size
    qtbot.wait(300)
    try:
        assert dock.footer.fontMetrics().height() > 1.7 * before
        assert cut_off(dock) == []
    finally:
        settings.font_size = size


@pytest.mark.parametrize("wide", [240, 400, 1200])
def test_the_legend_fits_on_a_canvas_of_any_width(qtbot, wide):
    canvas = QWidget()
    qtbot.addWidget(canvas)
    canvas.setStyleSheet("QLabel { font-size: 18pt; }")
    canvas.resize(wide, 900)
    canvas.show()
    legend = Legend(canvas)
    names = ["glandular", "small-cell", "large-cell", "unsure"]
    legend.show_parts(
        [
            Scale("Attention", ("0 ×", "4 × average or more"), (NOT_WHERE,)),
            Classes("Class map", tuple(names), ((9, 9, 9),) * 4),
        ]
    )
    QApplication.processEvents()
    if not legend.content.isVisible():
        # It would hide most of so small a canvas: it opens when it is asked to.
        assert wide == 240
        legend.fold.click()
        QApplication.processEvents()
    assert legend.geometry().right() < wide
    for label in legend.findChildren(QLabel):
        place = label.mapTo(legend, QPoint(0, 0))
        assert place.x() + label.width() <= legend.width()
        assert place.y() + label.height() <= legend.height()
        longest = max(
            label.fontMetrics().horizontalAdvance(word)
            for word in re.sub("<[^>]*>", "", label.text()).split()
        )
        assert longest <= label.width() + 1, label.text()
        assert label.heightForWidth(label.width()) <= label.height() + 1 or (
            not label.wordWrap()
        )


def test_settings_are_remembered(open_dock):
    viewer, dock = open_dock()
    dock.view.opacity.setValue(33)
    dock.view.weak.setChecked(True)
    dock.advanced.open()
    dock.advanced.encoding["batch_size"].native.setValue(24)
    dock.advanced.room["room_gb"].native.setValue(9)
    assert dock.state.options.stain is None
    dock.advanced.encoding["stain"].native.setCurrentText("Macenko")
    dock.advanced.take_encoder("/some/where/weights.safetensors")
    dock.model.choose_none()
    viewer.window.remove_dock_widget(dock)
    _, dock = open_dock()
    assert dock.view.opacity.value() == 33
    assert dock.view.weak.isChecked()
    dock.advanced.open()
    assert dock.advanced.encoding["batch_size"].native.value() == 24
    assert dock.advanced.room["room_gb"].native.value() == 9
    assert dock.advanced.encoding["stain"].native.currentText() == "Macenko"
    assert dock.advanced.encoding["encoder"].native.currentText() == "weights"
    assert dock.state.options == Options(
        encoder="/some/where/weights.safetensors",
        batch_size=24,
        stain="macenko",
        room_gb=9,
    )
    assert dock.state.model is None


def test_the_layers_menu_leads_to_the_dock(make_napari_viewer, engine):
    from napari._app_model import get_app_model
    from napari.utils.notifications import notification_manager

    viewer = make_napari_viewer()
    items = get_app_model().menus.get_menu("napari/layers/classify")
    assert any("Analyse this slide" in item.command.title for item in items)
    viewer.add_image(np.zeros((200, 200)), name="nuclei")
    notification_manager.records.clear()
    open_analysis(viewer)
    assert "“nuclei” is not a slide" in notification_manager.records[0].message
    viewer.window.remove_dock_widget("all")


def test_an_empty_dock_says_what_to_do(open_dock):
    _, dock = open_dock(show=True)
    assert not dock.slide.welcome.isHidden()
    assert dock.run.analyse.isHidden()
    assert dock.model.isHidden()
    assert dock.slide.open_button.text() == "Open slide…"
    assert dock.slide.sample_button.text() == "Try the sample"


TEN = [(100 * i, 0) for i in range(10)]


def test_answers_in_words():
    assert seen_words(prediction(TEN, total=29)) == "Seen 34 % of the tissue so far."
    almost = replace(prediction(TEN), seen=9999, total=10_000)
    assert seen_words(almost) == "Seen 99 % of the tissue so far."
    assert "all 10 patches" in seen_words(prediction(TEN))
    assert headline(prediction()) == ("one kind", "")
    undecided = prediction(verdict=Verdict.UNDECIDED)
    assert headline(undecided)[0] == "Undecided"
    unlike = headline(prediction(verdict=Verdict.UNLIKE))
    assert unlike[0] == "Unlike the slides this model learned from"
    assert "“one kind”" in unlike[1]
    silent = prediction(verdict=Verdict.UNLIKE, probabilities=None)
    assert headline(silent) == (unlike[0], WITHHELD)
    few = prediction(TEN, verdict=Verdict.NO_CLASSES, probabilities=None, total=401)
    assert headline(few) == ("No class named", WITHHELD)
    very = Remark(RemarkKind.TRAINED_ON_SLIDE)
    few_slides = Remark(RemarkKind.FEW_TRAINING_SLIDES, 4)
    trained = prediction(trained_on=True, remarks=(very, few_slides))
    assert "very slide" in headline(trained)[1]
    assert remark_lines(trained) == [remark_words(few_slides)]  # not said twice
    patient = Remark(RemarkKind.TRAINED_ON_PATIENT)
    related = prediction(trained_on=True, remarks=(patient,))
    assert "another slide of this patient" in headline(related)[1]
    unsure = replace(trained, verdict=Verdict.UNDECIDED)
    assert remark_lines(unsure) == [remark_words(very), remark_words(few_slides)]
    none = prediction(classes=(), probabilities=None, verdict=Verdict.NO_CLASSES)
    assert headline(none)[0] == "No classes"


def test_progress_in_words():
    looking = Working(Step.LOOKING, Progress(571, 1714, 31.2))
    assert progress_words(looking) == (
        "Looking at the tissue: 571 of 1,714, 31 per second, 37 s left"
    )
    assert progress_words(Working(Step.FINDING_TISSUE)).endswith("tissue…")
    slow = Working(Step.LOOKING, Progress(1, 311, 1.0))
    assert "5 min left" in progress_words(slow)


def is_sentence(words):
    return bool(words) and not words[0].islower() and words[-1] in ".?"


def test_every_kind_has_words():
    """Whatever the engine may say, the window has words for it."""
    values = {"mpp": 4.0, "slide_mpp": 0.7, "target_mpp": 0.5, "patches": 3}
    reason = "The file ends early."
    tissue = Tissue(np.zeros((2, 2), bool), (1.0, 1.0))
    for kind in FailureKind:
        words = failure_words(Failed(kind, reason, values, tissue), "Slide 7")
        assert is_sentence(words), kind
        assert "{" not in words
    for kind in NoticeKind:
        assert is_sentence(notice_words(Noticed(kind, values, reason))), kind
    for kind in RemarkKind:
        assert is_sentence(remark_words(Remark(kind, 3))), kind
    for step in Step:
        assert step_words(step)[0].isupper(), step
    for verdict in Verdict:
        for shares in ((0.8, 0.2), None):
            answer, doubt = headline(prediction(verdict=verdict, probabilities=shares))
            assert answer
            assert not doubt or is_sentence(doubt), verdict


def test_opening_the_dock_loads_nothing_heavy():
    """How long it takes is measured by ``benchmarks/dock_controls.py``."""
    code = """
import sys
import napari
from qtpy.QtWidgets import QApplication
viewer = napari.Viewer(show=False)
viewer.window.add_plugin_dock_widget("napari-spt", "Open slide…")
QApplication.processEvents()  # its dialog is not the analysis dock's
before = set(sys.modules)
_, dock = viewer.window.add_plugin_dock_widget("napari-spt", "Slide analysis")
QApplication.processEvents()
heavy = {"torch", "torchvision", "timm", "sklearn"} & set(sys.modules)
heavy |= {"scipy.ndimage", "h5py", "pandas"} & (set(sys.modules) - before)
assert not heavy, heavy
from napari_spt.parts.post import post
post().close()
viewer.close()
"""
    subprocess.run([sys.executable, "-c", code], check=True)
