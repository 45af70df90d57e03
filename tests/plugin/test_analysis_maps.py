"""Maps over slides in a real viewer: where they lie, how they change, what they say."""

import time

import dask.array as da
import numpy as np
import pytest
from napari.layers import Image, Labels
from qtpy.QtCore import QCoreApplication, QEvent
from qtpy.QtWidgets import QLabel

from napari_spt.analysis import layers as _layers
from napari_spt.analysis.layers import napari_labels
from napari_spt.analysis.state import ComparedPatch
from napari_spt.parts.viewing import camera, scale_bar
from spt_core.engine.protocol import Failed, FailureKind, Predicted
from spt_core.insight.results import Verdict
from spt_core.slides.tissue_mask import Tissue
from tests.made_slides import picture, write_scn, write_svs, write_tiff
from tests.plugin.dock_tools import (
    begun,
    known,
    map_of,
    open_slide,
    prediction,
    sent,
)

PATCHES = [(0, 0), (300, 200), (600, 400), (300, 600)]
STEP = (300, 200)


def edges(layer, row, col):
    """World (y, x) of a cell's top left and bottom right corner."""
    first = layer.data_to_world((row - 0.5, col - 0.5))
    last = layer.data_to_world((row + 0.5, col + 0.5))
    return np.array([first, last])


def slide_edges(layer, bounds, l0_box):
    """World (y, x) of the corners of level-0 pixels, by the slide's own layer."""
    left, top, right, bottom = l0_box
    x, y = bounds
    return np.array(
        [
            layer.data_to_world((top - y - 0.5, left - x - 0.5)),
            layer.data_to_world((bottom - y - 0.5, right - x - 0.5)),
        ]
    )


SLIDES = {
    "with pixel size": lambda p: write_svs(p / "a.svs", picture(1423, 1111)),
    "without": lambda p: write_svs(p / "a.svs", picture(1423, 1111), mpp=None),
    "unequal": lambda p: write_tiff(
        p / "a.tif", picture(1423, 1111), mpp_xy=(0.25, 0.4)
    ),
    "with bounds": lambda p: write_scn(p / "a.scn", picture(1423, 1111)),
}


@pytest.mark.parametrize("case", SLIDES)
def test_maps_lie_on_their_patches_to_the_edge(open_dock, tmp_path, case):
    viewer, dock = open_dock()
    SLIDES[case](tmp_path)
    (path,) = tmp_path.glob("a.*")
    slide = open_slide(viewer, path)
    bounds = slide.metadata["spt"]["bounds"][:2]
    places = [(300, 800), (600, 1000)] if case == "with bounds" else PATCHES
    known(dock, slide, places, STEP, tmp_path)
    dock.view.attention.setChecked(False)  # below it classes are lines
    attention = map_of(dock, _layers.ATTENTION)
    classes = map_of(dock, _layers.CLASSES)
    assert isinstance(attention, Image)
    assert isinstance(classes, Labels)
    assert len(set(map(str, attention.units)) | set(map(str, slide.units))) == 1
    for number, (x, y) in enumerate(places):
        row, col = y // STEP[1], x // STEP[0]
        expected = slide_edges(slide, bounds, (x, y, x + STEP[0], y + STEP[1]))
        for layer in (attention, classes):
            np.testing.assert_allclose(edges(layer, row, col), expected, atol=1e-6)
        assert attention.data[row, col] == pytest.approx(
            (number + 1) * len(places) / sum(range(1, len(places) + 1)), rel=1e-5
        )
        assert classes.data[row, col] == number % 2 + 1
    assert np.isfinite(attention.data).sum() == len(places)
    assert (classes.data > 0).sum() == len(places)


def test_maps_follow_a_slide_that_was_moved_and_turned(open_dock, tmp_path):
    viewer, dock = open_dock()
    write_svs(tmp_path / "a.svs", picture(1423, 1111))
    slide = open_slide(viewer, tmp_path / "a.svs")
    slide.translate = (40, -70)
    slide.rotate = 30
    slide.affine = np.array([[1.1, 0.1, 5], [0, 0.9, -3], [0, 0, 1]])
    known(dock, slide, PATCHES, STEP, tmp_path)
    layer = map_of(dock, _layers.ATTENTION)
    for x, y in PATCHES:
        expected = slide_edges(slide, (0, 0), (x, y, x + STEP[0], y + STEP[1]))
        got = edges(layer, y // STEP[1], x // STEP[0])
        np.testing.assert_allclose(got, expected, atol=1e-6)


def test_pixels_of_the_screen_show_the_map_where_the_patch_is(
    open_dock, tmp_path, qtbot
):
    """What the screen shows, not what the layers claim."""
    viewer, dock = open_dock(show=True)
    viewer.window.resize(1280, 800)
    qtbot.wait(100)
    pixels = np.full((1200, 1200, 3), 255, np.uint8)
    write_tiff(tmp_path / "white.tif", pixels, mpp_xy=(0.5, 0.5))
    slide = open_slide(viewer, tmp_path / "white.tif")
    known(dock, slide, [(300, 600)], (300, 200), tmp_path, attention=np.ones(1))
    dock.view.classes.setChecked(False)
    dock.view.high.setValue(1.0)
    dock.view.opacity.setValue(100)
    dock.renderer.hide_legend()
    scale_bar(viewer).visible = False
    camera(viewer).zoom *= 0.6
    qtbot.wait(600)  # slices are loaded beside the window
    shot = viewer.screenshot(canvas_only=True, flash=False)[..., :3].astype(int)
    white = np.abs(shot - 255).max(axis=-1) < 12
    rows, cols = np.nonzero(white)
    top, left = rows.min(), cols.min()
    side = rows.max() + 1 - top
    coloured = np.abs(shot - shot[top + 2, left + 2]).max(axis=-1) > 25
    coloured[:top] = coloured[rows.max() + 1 :] = False
    coloured[:, :left] = coloured[:, cols.max() + 1 :] = False
    rows, cols = np.nonzero(coloured)
    box = np.array([rows.min() - top, rows.max() + 1 - top, cols.min() - left])
    box = np.append(box, cols.max() + 1 - left) / side
    np.testing.assert_allclose(box, np.array([600, 800, 300, 600]) / 1200, atol=0.005)


def test_a_mask_lies_where_its_own_scale_puts_it(open_dock, tmp_path):
    """It need not reach the slide's edge: here it ends 1,440 pixels before it."""
    _, dock = open_dock()
    width, height, scale, um = 100_000, 70_000, 64.0, 0.25
    slide = Image(
        [
            da.zeros((side, 10 * side // 7, 3), dtype=np.uint8, chunks=4096)
            for side in (height, height // 100)
        ],
        multiscale=True,
        rgb=True,
        scale=(um, um),
        units=("micrometer", "micrometer"),
        metadata={
            "spt": {
                "path": str(tmp_path / "one level.tif"),
                "mpp_xy": [um, um],
                "dimensions": [width, height],
                "bounds": [0, 0, width, height],
            }
        },
    )
    analysis = begun(dock, slide)
    mask = np.zeros((1078, 1540), bool)
    mask[1000, 1539] = True
    failed = Failed(FailureKind.NO_TISSUE, tissue=Tissue(mask, (scale, scale)))
    dock.state.apply(analysis, sent(failed, tmp_path))
    layer = map_of(dock, "tissue", analysis)
    np.testing.assert_array_equal(layer.data, mask)
    l0_box = (1539 * scale, 1000 * scale, 1540 * scale, 1001 * scale)
    expected = slide_edges(slide, (0, 0), l0_box)
    np.testing.assert_allclose(edges(layer, 1000, 1539), expected, atol=1e-6)


def test_class_numbers_become_napari_labels_in_one_place():
    labels = np.array([[0.0, 1.0, -1.0, np.nan]])
    np.testing.assert_array_equal(napari_labels(labels, 2), [[1, 2, 3, 0]])


@pytest.fixture
def drawn(open_dock, tmp_path):
    viewer, dock = open_dock()
    write_svs(tmp_path / "a.svs", picture(1423, 1111))
    slide = open_slide(viewer, tmp_path / "a.svs")
    return viewer, dock, known(dock, slide, PATCHES, STEP, tmp_path)


def test_refining_changes_the_same_layers_in_place(drawn, tmp_path):
    viewer, dock, analysis = drawn
    before = {kind: map_of(dock, kind) for kind in ("attention", "classes")}
    scale = before["attention"].scale.copy()
    count = len(viewer.layers)
    more = [*PATCHES, (900, 800), (0, 800)]
    refined = prediction(
        more, STEP, attention=np.full((2, 6), 0.1), probabilities=(0.3, 0.7), total=12
    )
    dock.state.apply(analysis, sent(Predicted(refined), tmp_path))
    assert len(viewer.layers) == count
    assert map_of(dock, "attention") is before["attention"]
    assert np.isfinite(before["attention"].data).sum() == 6
    np.testing.assert_array_equal(before["attention"].scale, scale)


def test_a_model_that_names_no_class_maps_none(drawn, tmp_path):
    _, dock, analysis = drawn
    assert set(dock.answer.bars.bars) == {"one kind", "another"}
    unnamed = prediction(PATCHES, STEP, probabilities=None, verdict=Verdict.UNLIKE)
    dock.state.apply(analysis, sent(Predicted(unnamed), tmp_path))
    assert map_of(dock, "classes") is None
    assert map_of(dock, "attention") is not None
    assert dock.answer.bars.bars == {}
    assert dock.view.classes.isHidden()


def legend_words(dock):
    return " ".join(label.text() for label in dock.renderer.legend.findChildren(QLabel))


def is_outlined(layer):
    """Whether a map is lines, with a halo or of whole cells, instead of areas."""
    return layer.metadata["spt"]["outline"] is not None


def test_classes_are_outlined_below_attention_and_filled_alone(drawn):
    """Over a filled class no colour of the attention would be that of its legend."""
    _, dock, _analysis = drawn
    attention, classes = (map_of(dock, kind) for kind in ("attention", "classes"))
    assert is_outlined(classes)
    assert "in outline" in legend_words(dock)
    dock.view.attention.setChecked(False)
    assert not is_outlined(classes)
    dock.view.attention.setChecked(True)
    assert is_outlined(classes)
    attention.visible = False  # by its eye in the list of layers
    assert not is_outlined(classes)
    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    assert "Attention" not in legend_words(dock)
    attention.visible = True
    assert is_outlined(classes)
    assert "Attention" in legend_words(dock)
    dock.renderer.hide_maps()
    assert not classes.visible
    assert dock.renderer.legend.isHidden()
    dock.renderer.hide_maps()  # the key is pressed again, its release went elsewhere
    dock.renderer.show_maps()
    assert classes.visible
    assert is_outlined(classes)
    assert not dock.renderer.legend.isHidden()
    dock.viewer.layers.remove(attention)
    assert not is_outlined(classes)


def test_maps_cannot_be_edited_not_even_after_an_update(drawn):
    viewer, dock, _analysis = drawn
    dock.renderer.follow_view()
    for kind in ("attention", "classes"):
        layer = map_of(dock, kind)
        assert not layer.editable
        viewer.layers.selection.active = layer
        if kind == "classes":
            layer.mode = "paint"
            assert layer.mode == "pan_zoom"


def test_an_even_map_looks_even_and_is_called_so(open_dock, tmp_path):
    viewer, dock = open_dock()
    write_svs(tmp_path / "a.svs", picture(1423, 1111))
    slide = open_slide(viewer, tmp_path / "a.svs")
    rng = np.random.default_rng(0)
    even = 1 + 0.05 * rng.random(4)
    known(dock, slide, PATCHES, STEP, tmp_path, attention=even)
    layer = map_of(dock, "attention")
    assert layer.contrast_limits == [0, 4]
    colours = layer.colormap.map(layer.data[np.isfinite(layer.data)] / 4)
    assert np.ptp(colours, axis=0).max() < 0.05
    words = " ".join(
        label.text() for label in dock.renderer.legend.findChildren(QLabel)
    )
    assert "No region stands out." in words
    assert "Where the model looked, not where the tumour is." in words


def test_the_scale_is_the_same_on_every_slide_unless_ranks_are_asked_for(drawn):
    _, dock, _analysis = drawn
    layer = map_of(dock, "attention")
    assert layer.contrast_limits == [0, 4]
    np.testing.assert_allclose(np.nanmean(layer.data), 1, rtol=1e-5)
    dock.advanced.open()
    dock.advanced.maps["unit"].native.setCurrentIndex(1)
    assert layer.contrast_limits == [0, 100]
    assert sorted(layer.data[np.isfinite(layer.data)]) == [12.5, 37.5, 62.5, 87.5]


def test_live_controls_act_at_once_and_quickly(open_dock, tmp_path):
    """With 20,000 patches the window is kept for less than 50 ms."""
    viewer, dock = open_dock()
    write_tiff(tmp_path / "a.tif", picture(3200, 3200), levels=2)
    slide = open_slide(viewer, tmp_path / "a.tif")
    rows, cols = np.divmod(np.arange(20_000), 150)
    places = np.stack([cols, rows], axis=1) * 20
    rng = np.random.default_rng(0)
    attention = rng.random((4, 20_000)).astype(np.float32)
    known(dock, slide, places, (20, 20), tmp_path, attention=attention)
    layer = map_of(dock, "attention")
    seconds = {}

    def act(name, change):
        times = []
        for value in change:
            start = time.thread_time()
            value()
            times.append(time.thread_time() - start)
        seconds[name] = min(times)

    controls, advanced = dock.view, dock.advanced
    act("opacity", [lambda v=v: controls.opacity.setValue(v) for v in (30, 50, 40)])
    assert layer.opacity == pytest.approx(0.4 * dock.renderer.current.fade, abs=0.01)
    act("smoothing", [lambda v=v: controls.smoothing.setValue(v) for v in (5, 20, 10)])
    smooth = np.nanstd(layer.data)
    controls.smoothing.setValue(0)
    assert np.nanstd(layer.data) > 2 * smooth
    act("range", [lambda v=v: controls.high.setValue(v) for v in (2.0, 3.0, 5.0)])
    assert layer.contrast_limits == [0, 5]
    act("weak", [lambda v=v: controls.weak.setChecked(v) for v in (True, False, True)])
    assert np.nanmin(layer.data) >= 1
    controls.weak.setChecked(False)
    advanced.open()
    head = advanced.maps["head"].native
    assert head.count() == 5
    act("head", [lambda v=v: head.setCurrentIndex(v) for v in (1, 2, 3)])
    np.testing.assert_allclose(
        layer.data[: 20_000 // 150].ravel()[:150],
        (attention[2] / attention[2].sum() * 20_000)[:150],
        rtol=1e-4,
    )
    assert max(seconds.values()) < 0.05, seconds


def test_more_like_this_answers_within_a_click(open_dock, tmp_path):
    """With 20,000 patches the window is kept for less than 100 ms."""
    from spt_core.insight.similarity import LookAlikes

    viewer, dock = open_dock()
    write_tiff(tmp_path / "a.tif", picture(3200, 3200), levels=2)
    slide = open_slide(viewer, tmp_path / "a.tif")
    rows, cols = np.divmod(np.arange(20_000), 150)
    places = np.stack([cols, rows], axis=1) * 20
    analysis = known(dock, slide, places, (20, 20), tmp_path)
    rng = np.random.default_rng(0)
    tokens = rng.normal(size=(20_000, 512)).astype(np.float32)
    analysis.look_alikes, analysis.look_alikes_xy = LookAlikes(tokens), places
    assert analysis.row_at((3190, 3190)) is None
    seconds = []
    for place in (200, 900, 2100, 600):
        start = time.thread_time()
        row = analysis.row_at((place, place))
        dock.state.show_likeness(ComparedPatch(analysis, row))
        seconds.append(time.thread_time() - start)
    assert min(seconds[1:]) < 0.1, seconds
    layer = map_of(dock, "likeness")
    assert layer.data[30, 30] == pytest.approx(1, abs=1e-4)


def test_hovering_tells_attention_class_and_place(drawn):
    viewer, dock, analysis = drawn
    um = analysis.slide.mpp_xy[0]
    # The middle of the second patch: level-0 x 450, y 300.
    place = ((300 - 0.5) * um, (450 - 0.5) * um)
    for kind in ("attention", "classes", None):
        layer = analysis.layer if kind is None else map_of(dock, kind)
        said = layer.get_status(place, world=True)["coordinates"]
        assert "looked at 0.8 × average" in said
        assert "another 100%" in said
        assert "x 0.22, y 0.15 mm" in said
    outside = ((1000 - 0.5) * um, (1300 - 0.5) * um)
    assert (
        "not looked at" in analysis.layer.get_status(outside, world=True)["coordinates"]
    )
    viewer.layers.selection.active = analysis.layer
    viewer.mouse_over_canvas = True
    viewer.cursor.position = place
    assert "0.8 × average" in str(viewer._calc_status_from_cursor()[0])


def test_closing_the_dock_leaves_plain_layers(drawn):
    viewer, dock, analysis = drawn
    layer = analysis.layer
    viewer.window.remove_dock_widget(dock)
    assert dock.is_closed
    assert "average" not in layer.get_status((10, 10), world=True)["coordinates"]


def test_maps_fade_near_by_so_that_tissue_can_be_read(drawn):
    viewer, dock, _analysis = drawn
    layer = map_of(dock, "attention")
    viewer.reset_view()
    far = layer.opacity
    dock.regions.strip.go(0)
    dock.navigator.flight.land()
    assert layer.opacity < 0.6 * far
    viewer.reset_view()
    assert layer.opacity == pytest.approx(far, abs=0.01)
