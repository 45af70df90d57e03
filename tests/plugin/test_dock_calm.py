"""Nothing in the dock changes by scrolling; all of it is in reach, by keys too."""

import numpy as np
import pytest
from napari.settings import get_settings
from qtpy.QtCore import QPoint, QPointF, Qt
from qtpy.QtGui import QWheelEvent
from qtpy.QtTest import QTest
from qtpy.QtWidgets import QApplication, QComboBox

from napari_spt.analysis.slide_analysis import Change
from napari_spt.parts import wheel as _wheel
from napari_spt.parts.settings import remembered
from napari_spt.parts.wheel import is_turned_by_wheel
from spt_core.engine.protocol import Predicted
from spt_core.insight.results import Remark, RemarkKind, Verdict
from tests.made_slides import picture, write_svs
from tests.plugin.dock_tools import (
    controls_of,
    known,
    map_of,
    open_slide,
    prediction,
    sent,
)


@pytest.fixture
def full(open_dock, tmp_path):
    """The dock over an analysed slide, in a window of 1280 x 800."""
    viewer, dock = open_dock(show=True)
    viewer.window.resize(1280, 800)
    write_svs(tmp_path / "a.svs", picture(1423, 1111))
    slide = open_slide(viewer, tmp_path / "a.svs")
    places = [(x, y) for x in range(0, 1200, 100) for y in range(0, 1000, 100)]
    analysis = known(dock, slide, places, (100, 100), tmp_path)
    analysis.features.touch()
    dock.state.tell(analysis, Change.FEATURES)
    QApplication.processEvents()
    return viewer, dock, analysis


def turn_wheel(widget, steps=-3):
    """The wheel over the middle of a widget, as the window gets it from the mouse."""
    window, middle = widget.window(), widget.rect().center()
    place = QPointF(widget.mapTo(window, middle))
    if hasattr(QTest, "wheelEvent") and window.windowHandle() is not None:
        QTest.wheelEvent(window.windowHandle(), place, QPoint(0, 120 * steps))
    else:
        event = QWheelEvent(
            QPointF(middle),
            QPointF(widget.mapToGlobal(middle)),
            QPoint(),
            QPoint(0, 120 * steps),
            Qt.MouseButton.NoButton,
            Qt.KeyboardModifier.NoModifier,
            Qt.ScrollPhase.NoScrollPhase,
            False,
        )
        QApplication.sendEvent(widget, event)
    QApplication.processEvents()


def value_of(control):
    return control.currentIndex() if isinstance(control, QComboBox) else control.value()


def test_the_wheel_scrolls_the_dock_and_changes_nothing(full, qtbot):
    _, dock, _ = full
    dock.advanced.open()
    qtbot.wait(100)
    bar = dock.scroll.verticalScrollBar()
    turned = 0
    for tab in list(dock.tabs.buttons):
        dock.tabs.show_page(tab)
        QApplication.processEvents()
        for control in controls_of(dock.scroll.widget()):
            if not is_turned_by_wheel(control) or not control.isVisible():
                continue
            dock.scroll.ensureWidgetVisible(control)
            QApplication.processEvents()
            before, place = value_of(control), bar.value()
            steps = 3 if place == bar.maximum() else -3
            turn_wheel(control, steps)
            assert value_of(control) == before, control.accessibleName()
            assert not control.hasFocus()
            assert bar.maximum() == 0 or bar.value() != place, control.accessibleName()
            turned += 1
    assert turned >= 8
    assert QApplication.activeModalWidget() is None
    assert remembered("model", "bundled") == "bundled"


def test_what_one_has_taken_hold_of_follows_the_wheel(full, qtbot, monkeypatch):
    viewer, dock, _ = full
    viewer.window._qt_window.activateWindow()
    dock.tabs.show_page("On the slide")
    qtbot.wait(50)
    slider = dock.view.opacity
    dock.scroll.ensureWidgetVisible(slider)
    qtbot.mouseClick(slider, Qt.MouseButton.LeftButton)
    assert slider.hasFocus()
    before = slider.value()
    turn_wheel(slider)
    assert slider.value() != before
    # But not while the dock is being scrolled from elsewhere.
    monkeypatch.setattr(_wheel, "SCROLLING_S", 60.0)
    turn_wheel(dock.view.weak)
    before = slider.value()
    turn_wheel(slider)
    assert slider.value() == before
    # A list never does: the wheel would switch the model.
    qtbot.keyClick(dock.model.list, Qt.Key.Key_Tab)
    dock.model.list.setFocus()
    before = dock.model.list.currentIndex()
    turn_wheel(dock.model.list)
    assert dock.model.list.currentIndex() == before


def test_the_dock_keeps_its_width_whatever_it_says(full, qtbot, tmp_path):
    viewer, dock, analysis = full
    width = dock.width()
    places = analysis.prediction.xy
    long = "adenocarcinoma_of_no_special_type_grade_three"
    said = prediction(
        places,
        (100, 100),
        verdict=Verdict.UNLIKE,
        classes=(long, "another"),
        remarks=tuple(Remark(kind, 3) for kind in RemarkKind),
    )
    dock.state.apply(analysis, sent(Predicted(said), tmp_path))
    dock.advanced.open()
    for tab in list(dock.tabs.buttons):
        dock.tabs.show_page(tab)
        qtbot.wait(30)
        assert dock.width() == width
    name = "a_slide_with_a_very_long_name_" * 3
    write_svs(tmp_path / f"{name}.svs", picture(700, 500))
    open_slide(viewer, tmp_path / f"{name}.svs")
    qtbot.wait(100)
    assert dock.width() == width
    assert 300 <= width <= 340


@pytest.mark.parametrize("scale", [1, 2])
def test_answer_tabs_and_export_are_in_reach(full, qtbot, scale):
    """At 1280 x 800 without scrolling; with text of twice the size, Export still is."""
    viewer, dock, _ = full
    settings = get_settings().appearance
    size = settings.font_size
    settings.font_size = scale * size
    qtbot.wait(300)
    try:
        window = viewer.window._qt_window
        assert window.height() <= 830
        assert dock.export.export.isVisible()
        seen = dock.rect()
        foot = dock.export.export
        assert seen.contains(foot.mapTo(dock, foot.rect().center()))
        assert dock.width() <= 480
        if scale == 1:
            view = dock.scroll.viewport()
            shown = [dock.answer.answer, *dock.tabs.buttons.values()]
            dock.tabs.show_page("Questions")
            QApplication.processEvents()
            shown += [dock.questions.like, dock.questions.check]
            for widget in [one for one in shown if not one.isHidden()]:
                place = widget.mapTo(view, widget.rect().bottomLeft())
                assert view.rect().contains(place), widget
        # Tool buttons have the text's size too: tabs, captions, Advanced.
        line = dock.footer.fontMetrics().height()
        assert dock.advanced.folded.button.fontMetrics().height() >= 0.85 * line
        assert dock.regions.strip.buttons[0].fontMetrics().height() >= 0.85 * line
    finally:
        settings.font_size = size


def test_the_tab_that_was_chosen_is_remembered(full, qtbot):
    _, dock, _ = full
    assert dock.tabs.current == "Regions"
    qtbot.mouseClick(dock.tabs.buttons["Questions"], Qt.MouseButton.LeftButton)
    assert dock.questions.like.isVisible()
    assert not dock.regions.strip.isVisible()
    assert remembered("tab") == "Questions"


@pytest.mark.parametrize("theme", ["dark", "light"])
def test_keyboard_focus_is_seen_on_every_control(full, qtbot, theme):
    """The pixels around the control that has the focus are those of the ring."""
    viewer, dock, _ = full
    viewer.theme = theme
    viewer.window._qt_window.activateWindow()
    qtbot.wait(100)
    seen = set()
    dock.model.list.setFocus(Qt.FocusReason.TabFocusReason)
    for _ in range(30):
        now = QApplication.focusWidget()
        if now is None or not dock.isAncestorOf(now):
            break
        rings = [ring for ring in dock.rings if ring.around is not None]
        assert len(rings) == 1, now
        ring = rings[0]
        inner = now.mapTo(ring.parentWidget(), now.rect().center())
        assert ring.geometry().contains(inner)
        QApplication.processEvents()
        drawn = ring.parentWidget().grab(ring.geometry()).toImage()
        edge = drawn.pixelColor(drawn.width() // 2, 0)
        ground = ring.parentWidget().grab().toImage().pixelColor(1, 1)
        assert abs(edge.lightness() - ground.lightness()) > 80, now
        seen.add(now)
        qtbot.keyClick(now, Qt.Key.Key_Tab)
    assert len(seen) >= 12
    assert {dock.run.analyse, dock.export.export} <= seen
    assert set(dock.regions.strip.buttons) <= seen
    # A click needs no ring: one sees what was clicked.
    qtbot.mouseClick(dock.tabs.buttons["Questions"], Qt.MouseButton.LeftButton)
    assert all(ring.around is None for ring in dock.rings)


def test_the_current_region_is_marked(full, qtbot):
    viewer, dock, _ = full
    strip = dock.regions.strip
    plain = strip.buttons[1].grab().toImage()
    canvas = viewer.window._qt_viewer.canvas.native
    for _ in range(2):
        qtbot.keyClick(canvas, Qt.Key.Key_N)
    dock.navigator.flight.land()
    QApplication.processEvents()
    assert [button.isChecked() for button in strip.buttons].index(True) == 1
    marked = strip.buttons[1].grab().toImage()
    corner = QPoint(3, marked.height() - 6)
    assert plain.pixelColor(corner) != marked.pixelColor(corner)
    frame = map_of(dock, "region")
    # A dark line on a wider bright one: seen on any tissue.
    widths, colours = frame.edge_width, np.asarray(frame.edge_color)
    assert widths[0] > 2 * widths[1]
    assert colours[0, :3].min() > 0.9
    assert colours[1, :3].max() < 0.1


def test_a_held_key_does_not_flicker(full, qtbot, monkeypatch):
    """Some systems repeat a key as releases and presses, 30 ms apart."""
    # The machine that tests may be slower than fingers.
    monkeypatch.setattr("napari_spt.analysis.renderer.KEY_REPEAT_MS", 400)
    viewer, dock, _ = full
    layer = map_of(dock, "attention")
    changes = []
    layer.events.visible.connect(lambda _: changes.append(layer.visible))
    canvas = viewer.window._qt_viewer.canvas.native
    qtbot.keyPress(canvas, Qt.Key.Key_H)
    for _ in range(6):
        qtbot.keyRelease(canvas, Qt.Key.Key_H)
        qtbot.wait(20)
        qtbot.keyPress(canvas, Qt.Key.Key_H)
        qtbot.wait(20)
    assert changes == [False]
    assert not dock.renderer.legend.isVisible()
    qtbot.keyRelease(canvas, Qt.Key.Key_H)
    qtbot.waitUntil(lambda: layer.visible, timeout=2000)
    assert changes == [False, True]
