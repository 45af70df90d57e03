"""The legend: beside the tissue, moved and folded by the mouse, at any size of text."""

import numpy as np
import pytest
from napari.settings import get_settings
from qtpy.QtCore import QPoint, Qt
from qtpy.QtWidgets import QApplication

from napari_spt.parts.settings import remembered
from napari_spt.parts.viewing import camera
from spt_core.slides.tissue_mask import Tissue
from tests.made_slides import picture, write_svs
from tests.plugin.dock_tools import known, map_of, open_slide
from tests.plugin.test_dock_calm import turn_wheel

STEP = (100, 100)


@pytest.fixture
def shown(open_dock, tmp_path, qtbot):
    """A slide whose tissue is in its upper left and lower right parts."""
    viewer, dock = open_dock(show=True)
    viewer.window.resize(1280, 800)
    write_svs(tmp_path / "a.svs", picture(1400, 1400))
    slide = open_slide(viewer, tmp_path / "a.svs")
    places = [
        (x, y)
        for x in range(0, 1400, 100)
        for y in range(0, 1400, 100)
        if (x < 700) == (y < 700)
    ]
    analysis = known(dock, slide, places, STEP, tmp_path)
    mask = np.zeros((14, 14), bool)
    mask[:7, :7] = mask[7:, 7:] = True
    analysis.tissue = Tissue(mask, (100.0, 100.0))
    canvas = dock.renderer.legend.parentWidget()
    extent = 1400 * float(slide.scale[-1])
    camera(viewer).center = (extent / 2, extent / 2)
    camera(viewer).zoom = min(canvas.width(), canvas.height()) / extent
    qtbot.wait(50)
    dock.renderer.legend.place(looks_around=True)
    return viewer, dock, analysis


def test_it_lies_in_the_emptiest_corner(shown):
    viewer, dock, analysis = shown
    legend = dock.renderer.legend
    canvas = legend.parentWidget()
    # Where tissue is on the screen, from the layers themselves.
    eye, um = camera(viewer), float(analysis.layer.scale[-1])
    middle = np.array([canvas.height(), canvas.width()]) / 2
    rows, cols = np.nonzero(analysis.tissue.mask)
    world = (np.stack([rows, cols], axis=1) + 0.5) * 100 * um
    screen = (world - np.asarray(eye.center[-2:])) * eye.zoom + middle
    found = dock.renderer.current.tissue_on_canvas((canvas.width(), canvas.height()))
    np.testing.assert_allclose(found[:, ::-1], screen, atol=2)
    area = legend.geometry()
    hidden = [area.contains(int(x), int(y)) for y, x in screen]
    assert not any(hidden)
    # Upper right or lower left, where there is none.
    is_right = area.center().x() > canvas.width() / 2
    is_low = area.center().y() > canvas.height() / 2
    assert is_right != is_low


def test_controls_change_no_more_than_they_must(shown):
    """Opacity draws no map and makes no legend anew; a range changes words alone."""
    _, dock, _ = shown
    legend, layer = dock.renderer.legend, map_of(dock, "attention")
    parts, drawn = legend._parts(), layer.data
    dock.view.opacity.setValue(31)
    assert legend._parts() == parts
    assert layer.data is drawn
    assert layer.opacity == pytest.approx(0.31 * dock.renderer.current.fade)
    dock.view.high.setValue(7.5)
    assert legend._parts() == parts
    assert layer.data is drawn
    assert layer.contrast_limits[1] == 7.5
    assert parts[0].high.text() == "7.5 × average or more"
    dock.view.weak.setChecked(True)
    assert layer.data is not drawn


def test_it_makes_way_when_tissue_comes_below_it(shown):
    viewer, dock, analysis = shown
    legend = dock.renderer.legend
    before = legend.geometry()
    analysis.tissue = Tissue(~analysis.tissue.mask, (100.0, 100.0))
    dock.renderer.move_legend()
    assert legend.geometry() != before
    assert not legend._covered(legend.geometry())
    # Where all is tissue it stays: there is nowhere to go.
    analysis.tissue = Tissue(np.ones((14, 14), bool), (100.0, 100.0))
    camera(viewer).zoom *= 3
    legend.place(looks_around=True)
    before = legend.geometry()
    dock.renderer.move_legend()
    assert legend.geometry() == before


def test_it_is_dragged_and_stays_there(shown, qtbot):
    _, dock, _ = shown
    legend = dock.renderer.legend
    before = legend.pos()
    grip = QPoint(legend.width() - 8, 8)
    qtbot.mousePress(legend, Qt.MouseButton.LeftButton, pos=grip)
    for step in (10, 40, 80):
        qtbot.mouseMove(legend, grip + QPoint(0, 0))
        away = legend.mapFromParent(before + grip + QPoint(-step, step))
        qtbot.mouseMove(legend, away)
    qtbot.mouseRelease(legend, Qt.MouseButton.LeftButton, pos=grip)
    moved = legend.pos()
    assert moved != before
    dock.renderer.draw_legend()
    dock.renderer.move_legend()
    assert (legend.pos() - moved).manhattanLength() <= 2
    assert remembered("legend")["place"] is not None
    qtbot.mouseDClick(legend, Qt.MouseButton.LeftButton, pos=grip)
    assert remembered("legend")["place"] is None
    assert (legend.pos() - before).manhattanLength() <= 2


def test_it_folds_and_remembers(shown, qtbot):
    _, dock, _ = shown
    legend = dock.renderer.legend
    tall = legend.height()
    qtbot.mouseClick(legend.fold, Qt.MouseButton.LeftButton)
    assert legend.height() < 0.4 * tall
    assert not legend.content.isVisible()
    dock.renderer.draw_legend()
    assert not legend.content.isVisible()
    assert remembered("legend")["folded"]
    qtbot.mouseClick(legend.fold, Qt.MouseButton.LeftButton)
    assert legend.height() == tall


def test_the_wheel_over_it_zooms(shown):
    viewer, dock, _ = shown
    before = camera(viewer).zoom
    turn_wheel(dock.renderer.legend, 2)
    assert camera(viewer).zoom > before


def test_text_of_twice_the_size_leaves_the_slide_in_sight(shown, qtbot):
    _, dock, _ = shown
    settings = get_settings().appearance
    size = settings.font_size
    settings.font_size = 2 * size
    qtbot.wait(300)
    try:
        legend = dock.renderer.legend
        canvas = legend.parentWidget()
        legend.place(looks_around=True)
        assert canvas.rect().contains(legend.geometry())
        covered = legend.width() * legend.height()
        assert covered <= 0.4 * canvas.width() * canvas.height()
        assert legend.title.fontMetrics().height() > 20
    finally:
        settings.font_size = size


def test_lines_around_classes_are_as_fine_as_the_zoom_allows(shown):
    viewer, dock, analysis = shown
    layer = map_of(dock, "classes")
    patch = 100 * float(analysis.layer.scale[-1])
    rows, cols = 14, 14
    for pixels, factor in ((2, 1), (6, 4), (12, 8), (40, 16)):
        camera(viewer).zoom = pixels / patch
        QApplication.processEvents()
        assert layer.data.shape == (rows * factor, cols * factor)
        # The same place, however fine.
        high = np.asarray(layer.data_to_world((rows * factor - 0.5,) * 2))
        low = np.asarray(layer.data_to_world((-0.5,) * 2))
        np.testing.assert_allclose(high - low, 14 * patch, rtol=1e-6)
    assert layer.opacity > 0.9  # lines cover no tissue and do not fade
    dock.view.attention.setChecked(False)
    assert layer.data.shape == (rows, cols)
