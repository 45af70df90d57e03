"""Several slides in one window: in front, behind, side by side, in napari's grid."""

import numpy as np
import pytest
from qtpy.QtCore import QRectF, Qt

from napari_spt.parts.viewing import camera, grid, is_in_view, scale_bar
from napari_spt.slides.grid_cells import can_share_cells
from napari_spt.slides.side_by_side import places_side_by_side
from napari_spt.slides.slide_table import table_of
from tests.made_slides import picture, write_tiff
from tests.plugin.dock_tools import known, map_of, open_slide

PATCHES = [(0, 0), (300, 200), (600, 400), (300, 600)]
STEP = (300, 200)
# Width, height and micrometres per pixel of five slides.
SIZES = [
    (1200, 1000, 0.5),
    (2000, 1000, 0.25),
    (1200, 1800, 1.0),
    (900, 900, 0.5),
    (3000, 700, 0.25),
]


class Window:
    """A dock over some slides, used by mouse and keys."""

    def __init__(self, viewer, dock, qtbot, folder):
        self.viewer, self.dock, self.qtbot, self.folder = viewer, dock, qtbot, folder
        self.slides = []

    def open(self, *sizes):
        for number, (width, height, mpp) in enumerate(sizes, start=len(self.slides)):
            path = self.folder / f"slide {number}.tif"
            mpp_xy = None if mpp is None else (mpp, mpp)
            write_tiff(path, picture(width, height, number), mpp_xy=mpp_xy, levels=2)
            self.slides.append(open_slide(self.viewer, path))

    def analyse(self, *numbers):
        for number in numbers:
            known(self.dock, self.slides[number], PATCHES, STEP, self.folder)

    def press(self, key):
        canvas = self.viewer.window._qt_viewer.canvas.native
        self.qtbot.keyClick(canvas, key)

    def click(self, button):
        self.qtbot.waitUntil(lambda: button.isVisible() and button.height() > 5)
        self.qtbot.mouseClick(button, Qt.MouseButton.LeftButton)

    def maps(self, number):
        return table_of(self.viewer).maps_of(self.slides[number])

    @property
    def front(self):
        """The number of the slide in front, after seeing that it alone is shown."""
        shown = [n for n, slide in enumerate(self.slides) if slide.visible]
        assert len(shown) == 1
        assert is_in_view(self.viewer, [self.slides[shown[0]]])
        assert self.dock.state.layer is self.slides[shown[0]]
        assert self.dock.slide.list.currentText() in ("", f"slide {shown[0]}")
        for number in range(len(self.slides)):
            for layer in self.maps(number):
                assert not layer.visible or number == shown[0]
        return shown[0]


@pytest.fixture
def window(open_dock, qtbot, tmp_path):
    viewer, dock = open_dock(show=True)
    viewer.window.resize(1280, 800)
    return Window(viewer, dock, qtbot, tmp_path)


def corners(layer):
    """A layer's first pixels, in the world."""
    return np.array([layer.data_to_world(p) for p in ((0, 0), (1, 0), (0, 1))])


def is_on_its_slide(dock, layer, kind="attention"):
    """Whether the map lies where its patches say, wherever the slide is."""
    analysis = dock.renderer.overlay(
        next(one for one in dock.state.analyses.values() if one.layer is layer)
    ).analysis
    found = map_of(dock, kind, analysis)
    centre = analysis.lattice.world(layer, (STEP[0] / 2, STEP[1] / 2))
    return np.allclose(found.data_to_world((0, 0)), centre, atol=1e-6)


def test_what_is_opened_or_chosen_is_shown_whole(window):
    window.open(*SIZES[:1])
    assert window.front == 0
    assert not window.dock.slide.several.isVisible()
    window.analyse(0)
    window.open(*SIZES[1:])
    window.analyse(4)
    assert window.front == 4
    for wanted in (0, 1, 2):
        window.press(Qt.Key.Key_Period)
        assert window.front == wanted
        assert window.viewer.layers.selection.active is window.slides[wanted]
    window.press(Qt.Key.Key_Comma)
    assert window.front == 1
    # With the keyboard in the dock's list, and with the mouse in napari's.
    window.qtbot.keyClick(window.dock.slide.list, Qt.Key.Key_Up)
    assert window.front == 0
    assert all(layer.visible for layer in window.maps(0))
    window.viewer.layers.selection.active = window.slides[3]
    assert window.front == 3
    # Gone, the one before it is looked at again.
    window.viewer.layers.remove(window.slides.pop(3))
    assert window.front == 0


def test_maps_of_a_slide_behind_wait_for_it(window):
    window.open(*SIZES[:2])
    window.analyse(0)  # while the second is in front
    assert window.front == 1
    window.press(Qt.Key.Key_Comma)
    assert window.front == 0
    assert [layer.visible for layer in window.maps(0)] == [True, True]
    # What the user hides stays hidden.
    window.maps(0)[0].visible = False
    window.press(Qt.Key.Key_Period)
    window.press(Qt.Key.Key_Comma)
    assert [layer.visible for layer in window.maps(0)] == [False, True]


def test_a_group_has_its_slides_name_and_place_and_goes_with_it(window):
    viewer, dock = window.viewer, window.dock
    window.open(*SIZES[:2])
    window.analyse(0, 1)
    window.press(Qt.Key.Key_Comma)
    window.click(dock.slide.side_by_side)
    dock.regions.strip.go(0)
    first, second = window.slides
    assert len(window.maps(0)) == 3
    for number, layer in enumerate(window.slides):
        assert all(f"slide {number}" in one.name for one in window.maps(number))
        assert is_on_its_slide(dock, layer)
    # In the list each slide's maps lie above it.
    order = list(viewer.layers)
    assert order[0] is first
    assert set(order[1:4]) == set(window.maps(0))
    assert order[4] is second
    # Renamed, moved and turned, they follow.
    before = [corners(one) for one in window.maps(0)]
    first.name = "renamed"
    assert all("renamed" in one.name for one in window.maps(0))
    assert not any("renamed" in one.name for one in window.maps(1))
    old = corners(first)
    first.translate = (70.0, -30.0)
    moved = corners(first)[0] - old[0]
    for one, was in zip(window.maps(0), before, strict=True):
        np.testing.assert_allclose(corners(one), was + moved, atol=1e-6)
    first.rotate = 20
    assert is_on_its_slide(dock, first)
    dock.regions.strip.go(1)
    place = dock.regions.strip.places[1].l0_xy
    region = map_of(dock, "region")
    corner = dock.state.analysis.lattice.world(first, place)
    np.testing.assert_allclose(region.data_to_world(region.data[0][0]), corner)
    viewer.layers.remove(first)
    window.qtbot.waitUntil(lambda: len(viewer.layers) == 3, timeout=5000)
    assert set(viewer.layers) == {second, *window.maps(1)}


def test_side_by_side_in_micrometres(window):
    viewer, dock, button = window.viewer, window.dock, window.dock.slide.side_by_side
    window.open(*SIZES)
    window.analyse(0, 4)
    home = [corners(slide) for slide in window.slides]
    window.click(button)
    assert button.isChecked()
    assert is_in_view(viewer, window.slides)
    boxes = [slide.extent.world for slide in window.slides]
    for (width, height, mpp), (low, high) in zip(SIZES, boxes, strict=True):
        np.testing.assert_allclose(high - low + mpp, (height * mpp, width * mpp))
    for one, (low, high) in enumerate(boxes):
        for other_low, other_high in boxes[:one]:
            assert (high < other_low).any() or (other_high < low).any()
    assert all(slide.visible for slide in window.slides)
    assert all(layer.visible for n in (0, 4) for layer in window.maps(n))
    assert is_on_its_slide(dock, window.slides[0])
    assert is_on_its_slide(dock, window.slides[4])
    # Chosen, a slide is framed, and the camera stays where all can be seen.
    centre = tuple(camera(viewer).center)
    window.press(Qt.Key.Key_Period)
    framed = [slide.bounding_box.visible for slide in window.slides]
    assert framed == [True, False, False, False, False]
    assert tuple(camera(viewer).center) == centre
    # Another one finds a place too.
    window.open((1000, 1000, 0.5))
    assert is_in_view(viewer, window.slides)
    window.click(button)
    assert window.front == 5
    for slide, was in zip(window.slides, home, strict=False):
        np.testing.assert_allclose(corners(slide), was, atol=1e-6)
    assert is_on_its_slide(dock, window.slides[0])
    assert not any(slide.bounding_box.visible for slide in window.slides)


def test_controls_act_on_all_that_lie_side_by_side(window):
    dock = window.dock
    window.open(*SIZES[:2])
    window.analyse(0, 1)
    window.click(dock.slide.side_by_side)
    dock.state.set_view(opacity=0.4)
    overlays = list(dock.renderer.overlays.values())
    maps = [overlay.layers.find("attention") for overlay in overlays]
    for overlay, layer in zip(overlays, maps, strict=True):
        assert layer.opacity == pytest.approx(0.4 * overlay.fade, abs=0.01)
    dock.state.set_view(shows_attention=False)
    assert not any(layer.visible for layer in maps)


def test_the_legend_covers_no_slide_beside_the_chosen_one(window):
    """Three slides in two rows: the corner below the shorter row is free."""
    viewer, dock = window.viewer, window.dock
    window.open((600, 600, 0.5), (2400, 2400, 0.5), (600, 600, 0.5))
    window.analyse(2)
    window.click(dock.slide.side_by_side)
    dock.renderer.move_legend()
    legend = dock.renderer.legend
    canvas = legend.parentWidget()
    middle = np.array([canvas.height(), canvas.width()]) / 2
    eye, covered = camera(viewer), []
    for slide in window.slides:
        low, high = np.asarray(slide.extent.world)[:, -2:]
        top, left = (low - eye.center[-2:]) * eye.zoom + middle
        bottom, right = (high - eye.center[-2:]) * eye.zoom + middle
        area = QRectF(left, top, right - left, bottom - top).toRect()
        both = area.intersected(legend.geometry())
        covered.append(both.width() * both.height() / (area.width() * area.height()))
    # Small slides are worth as much as the large one.
    assert covered[0] == covered[2] == 0, covered
    assert covered[1] < 0.5


def test_napari_s_grid_keeps_a_map_on_its_slide(window):
    if not can_share_cells(grid(window.viewer)):
        pytest.skip("this napari's grid goes by numbers alone")
    window.open(*SIZES[:3])
    window.analyse(0, 2)
    window.press(Qt.Key.Key_Comma)
    cells = grid(window.viewer)
    window.viewer.window._qt_viewer.viewerButtons.gridViewButton.click()
    assert cells.enabled
    layers = window.viewer.layers
    places = {}
    for number, slide in enumerate(window.slides):
        group = [slide, *window.maps(number)]
        assert all(layer.visible for layer in group)
        found = {cells.position(layers.index(layer), layers) for layer in group}
        assert len(found) == 1
        places[number] = found.pop()
    assert len(set(places.values())) == 3
    window.viewer.window._qt_viewer.viewerButtons.gridViewButton.click()
    assert window.front == 1


@pytest.mark.parametrize("unknown_first", [True, False])
def test_a_slide_without_pixel_size_beside_one_with_it(window, unknown_first, caplog):
    viewer, dock = window.viewer, window.dock
    sizes = [(1200, 1000, None), (2000, 1000, 0.25)]
    window.open(*(sizes if unknown_first else sizes[::-1]))
    window.analyse(0)
    unknown, measured = window.slides if unknown_first else window.slides[::-1]
    bar = scale_bar(viewer)
    assert {str(unit) for layer in viewer.layers for unit in layer.units} == {
        "micrometer"
    }
    assert "Inconsistent units" not in caplog.text
    viewer.layers.selection.active = measured
    assert bar.visible
    viewer.layers.selection.active = unknown
    assert not bar.visible  # nobody knows what it would say
    assert dock.slide.pixel_size.isVisible()
    window.click(dock.slide.side_by_side)
    assert bar.visible
    assert "a pixel is drawn as 0.5 µm" in dock.slide.facts.text()
    window.click(dock.slide.side_by_side)
    # Said, it is true of the picture.
    window.click(dock.slide.pixel_size.buttons["40×"])
    assert bar.visible
    np.testing.assert_allclose(unknown.scale, 0.25)
    assert is_in_view(viewer, [unknown])
    if unknown_first:
        assert is_on_its_slide(dock, unknown)
    viewer.layers.remove(measured)
    np.testing.assert_allclose(unknown.scale, 0.25)


def test_alone_a_slide_without_pixel_size_is_measured_in_pixels(window):
    window.open((1200, 1000, None), (800, 700, 0.5))
    window.viewer.layers.remove(window.slides.pop(1))
    assert [str(unit) for unit in window.slides[0].units] == ["pixel", "pixel"]
    np.testing.assert_allclose(window.slides[0].scale, 1)
    assert window.front == 0


def test_a_picture_laid_over_a_slide_hides_nothing(window):
    """It may be there to be compared; chosen in the dock it is shown alone."""
    window.open(*SIZES[:1])
    viewer, dock = window.viewer, window.dock
    over = viewer.add_image(picture(300, 300), name="over", units=("um", "um"))
    assert window.slides[0].visible
    assert dock.state.layer is over
    viewer.layers.selection.active = window.slides[0]
    assert over.visible
    window.press(Qt.Key.Key_Period)
    assert not window.slides[0].visible
    window.press(Qt.Key.Key_Period)
    assert window.slides[0].visible
    assert not over.visible


@pytest.mark.parametrize("n", [1, 2, 5, 9])
def test_places_use_the_window(n):
    rng = np.random.default_rng(n)
    sizes = rng.uniform(1, 5, (n, 2))
    for window_size in ((800, 1280), (1280, 300)):
        places = places_side_by_side(sizes, window_size)
        assert places.min() == pytest.approx(0)
        for one in range(n):
            for other in range(one):
                low = np.maximum(places[one], places[other])
                high = np.minimum(
                    places[one] + sizes[one], places[other] + sizes[other]
                )
                assert (high < low).any()
        # No worse than all in one row, or all in one column.
        whole = (places + sizes).max(axis=0)
        zoom = min(np.asarray(window_size) / whole)
        row = min(
            window_size[0] / sizes[:, 0].max(), window_size[1] / sizes[:, 1].sum()
        )
        assert zoom >= 0.75 * row
