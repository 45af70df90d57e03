"""From a slide to an answer with the real engine; every test has a window of its own.

The slide is encoded once; afterwards its features are kept and answers take seconds.
"""

import gc
import json
import re
import shutil
import sys
import time

import h5py
import napari
import numpy as np
import pytest
import tifffile
from napari.settings import get_settings
from PIL import Image
from qtpy.QtCore import QCoreApplication, QEvent, Qt
from qtpy.QtWidgets import QApplication, QFileDialog

from napari_spt.analysis import keys as _keys
from napari_spt.analysis.slide_analysis import Change, Phase
from napari_spt.parts.settings import remember, remembered
from napari_spt.parts.viewing import camera
from spt_core.insight.maps import attention_values
from spt_core.insight.outlines import HALO
from tests.plugin.dock_tools import map_of, open_slide


def spin(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        QApplication.processEvents()
        time.sleep(0.005)


def wait(condition, seconds=120):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it takes too long"
        spin(0.05)


class FirstRun:
    """What came of analysing the slide for the first time, from nothing."""

    def __init__(self):
        self.clicks = 0
        self.predictions = []
        self.layers = []
        self.was_busy = False
        self.phase = None

    def click(self, button):
        assert button.isEnabled()
        self.clicks += 1
        button.click()


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def _same_cache(_own_settings, cache, monkeypatch):
    monkeypatch.setenv("NAPARI_SPT_CACHE", str(cache))


@pytest.fixture(scope="module")
def first(sample, cache, engine, tmp_path_factory):
    """One click on Analyse, and all that comes of it."""
    patch = pytest.MonkeyPatch()
    patch.setenv("NAPARI_SPT_CACHE", str(cache))
    patch.setenv("NAPARI_SPT_CONFIG", str(tmp_path_factory.mktemp("config")))
    patch.setattr("napari_spt.slides.samples.paint", lambda _kind: sample)
    remember("asked_default_reader", True)
    get_settings().reset()
    viewer = napari.Viewer(show=True)
    viewer.window.resize(1280, 800)
    _, dock = viewer.window.add_plugin_dock_widget("napari-spt", "Slide analysis")
    found = FirstRun()
    found.click(dock.slide.sample_button)
    wait(lambda: dock.state.layer is not None)

    def note(analysis, change):
        if change is Change.PREDICTION:
            found.predictions.append(analysis.prediction)
            found.layers.append(map_of(dock, "attention"))

    dock.state.analysis_changed.connect(note)
    found.click(dock.run.analyse)
    found.was_busy = dock.state.analysis.is_open and not dock.run.analyse.isEnabled()
    wait(lambda: not dock.state.analysis.is_open)
    found.phase = dock.state.analysis.phase
    viewer.window.remove_dock_widget(dock)
    dock.deleteLater()
    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    viewer.close()
    QApplication.processEvents()
    patch.undo()
    gc.collect()
    return found


@pytest.fixture
def run(first, open_dock, sample):
    """A window in which the slide has been analysed."""
    viewer, dock = open_dock(show=True)
    viewer.window.resize(1280, 800)
    open_slide(viewer, sample)
    dock.run.analyse.click()
    wait(lambda: not dock.state.analysis.is_open)
    wait(lambda: dock.state.analysis.look_alikes is not None, 30)
    return viewer, dock


def test_it_ends_with_an_answer_maps_and_regions(run):
    viewer, dock = run
    analysis, bars = dock.state.analysis, dock.answer.bars.bars
    assert analysis.phase == Phase.DONE, analysis.failure
    assert analysis.prediction.is_whole
    assert len(bars) == 3
    assert sum(bar.share for bar in bars.values()) == pytest.approx(1)
    assert "Seen all" in dock.answer.seen.text()
    assert {la.name for la in viewer.layers} >= {
        "Where the model looked – sample",
        "Class map – sample",
    }
    labels = map_of(dock, "classes")
    assert list(labels.features["name"])[1:] == [*bars, "unsure"]
    assert set(np.unique(labels.data)) <= {0, 1, 2, 3, 4, HALO}
    assert dock.renderer.legend.isVisible()
    strip = dock.regions.strip
    assert len(strip.places) == 12
    kinds = [place.kind for place in strip.places]
    assert (kinds.count("random"), kinds.count("least")) == (3, 3)
    wait(lambda: all(b.icon().availableSizes() for b in strip.buttons), 20)
    assert not dock.run.cancel.isVisible()


def test_it_came_early_and_was_refined_in_the_same_layer(first):
    assert first.was_busy
    assert first.phase == Phase.DONE
    seen = [one.seen / one.total for one in first.predictions]
    assert len(seen) >= 2
    assert seen[0] < 0.5
    assert seen == sorted(seen)
    assert len({id(layer) for layer in first.layers}) == 1
    early, whole = first.predictions[0].p, first.predictions[-1].p
    # The first patches are from all over the tissue.
    assert (np.ptp(early, axis=0) >= 0.6 * np.ptp(whole, axis=0)).all()


def test_torch_stays_out_of_the_window(run):
    assert "torch" not in sys.modules
    assert "torchvision" not in sys.modules


def test_the_layers_show_what_the_feature_file_holds(run):
    """Every patch of the file, and no other, has a value, where the file puts it."""
    _, dock = run
    with h5py.File(dock.state.analysis.features) as file:
        coords = file["coords"][:]
    layer = map_of(dock, "attention")
    rows, cols = np.nonzero(np.isfinite(layer.data))
    step = np.asarray(dock.state.analysis.lattice.l0_step_xy)
    found = np.stack([cols, rows], axis=1) * step
    assert {tuple(c) for c in coords} == {tuple(c) for c in found}
    assert np.nanmean(layer.data) == pytest.approx(1, abs=1e-4)


def test_a_region_is_flown_to_by_click_and_by_key(run):
    viewer, dock = run
    strip, analysis = dock.regions.strip, dock.state.analysis
    strip.buttons[1].click()
    wait(lambda: dock.navigator.flight._route is None, 10)
    x, y = strip.places[1].l0_xy
    w, h = analysis.lattice.l0_step_xy
    um = analysis.slide.mpp_xy[0]
    middle = ((y + h / 2 - 0.5) * um, (x + w / 2 - 0.5) * um)
    np.testing.assert_allclose(camera(viewer).center[-2:], middle, atol=1e-6)
    frame = map_of(dock, "region").data[0]
    np.testing.assert_allclose(np.ptp(frame, axis=0), (h * um, w * um))
    assert strip.buttons[1].isChecked()
    from napari.utils.action_manager import action_manager

    action_manager.trigger(_keys.NEXT)
    assert strip.current == 2
    action_manager.trigger(_keys.PREVIOUS)
    action_manager.trigger(_keys.PREVIOUS)
    assert strip.current == 0
    dock.navigator.flight.land()


def test_keys_are_free_and_in_the_settings(run):
    from napari._qt.widgets.qt_keyboard_settings import ShortcutEditor
    from napari.layers import Image, Labels, Points, Shapes, Surface, Tracks, Vectors
    from napari.utils.key_bindings import coerce_keybinding
    from napari.utils.shortcuts import default_shortcuts

    ours = {coerce_keybinding(key) for key in _keys.DEFAULT_KEYS.values()}
    assert len(ours) == 3
    used = {key for keys in default_shortcuts.values() for key in keys}
    assert not ours & used
    for kind in (Image, Labels, Points, Shapes, Surface, Tracks, Vectors):
        assert not ours & set(kind.class_keymap)
    editor = ShortcutEditor()
    listed = editor.key_bindings_strs[editor.VIEWER_KEYBINDINGS]
    assert set(_keys.DEFAULT_KEYS) <= set(listed)
    editor.close()
    editor.deleteLater()


def test_one_key_held_shows_the_slide_alone(run, qtbot):
    viewer, dock = run
    maps = [map_of(dock, kind) for kind in ("attention", "classes")]
    assert all(layer.visible for layer in maps)
    canvas = viewer.window._qt_viewer.canvas.native
    qtbot.keyPress(canvas, Qt.Key.Key_H)
    assert not any(layer.visible for layer in maps)
    assert not dock.renderer.legend.isVisible()
    assert dock.state.layer.visible
    qtbot.keyRelease(canvas, Qt.Key.Key_H)
    wait(lambda: all(layer.visible for layer in maps), 5)
    assert dock.renderer.legend.isVisible()


def test_more_like_this(run):
    _, dock = run
    analysis = dock.state.analysis
    dock.questions.like.setChecked(True)
    x, y = dock.regions.strip.places[0].l0_xy
    w, h = analysis.lattice.l0_step_xy
    place = analysis.lattice.world(analysis.layer, (x + w / 2, y + h / 2))
    dock.questions.show_alike(place)
    layer = map_of(dock, "likeness")
    assert layer.visible
    assert layer.data[y // h, x // w] == pytest.approx(1, abs=1e-4)
    with h5py.File(analysis.features) as file:
        tokens, coords = file["features"][:].astype(np.float64), file["coords"][:]
    centred = tokens - tokens.mean(axis=0)
    (row,) = np.flatnonzero((coords == (x, y)).all(axis=1))
    like = centred @ centred[row]
    like /= np.linalg.norm(centred, axis=1) * np.linalg.norm(centred[row])
    got = layer.data[coords[:, 1] // h, coords[:, 0] // w]
    np.testing.assert_allclose(got, np.maximum(like, 0), atol=2e-3)
    dock.questions.like.setChecked(False)
    assert map_of(dock, "likeness") is None
    assert map_of(dock, "attention").visible


def test_what_if_not_here(run):
    viewer, dock = run
    bars, analysis = dock.answer.bars.bars, dock.state.analysis
    before = [bar.share for bar in bars.values()]
    dock.questions.without.setChecked(True)
    layer = viewer.layers.selection.active
    assert layer.name == "What if not here? – sample"
    assert layer.mode == "add_polygon_lasso"
    xy = analysis.prediction.xy
    cut = np.median(xy[:, 0])
    um = analysis.slide.mpp_xy[0]
    bottom = xy[:, 1].max() + 500
    corners = np.array([(0, 0), (0, cut), (bottom, cut), (bottom, 0)]) * um
    layer.add_polygons(corners)
    wait(lambda: dock.questions.answer.text() != "", 60)
    others = [bar.other for bar in bars.values()]
    assert sum(others) == pytest.approx(1, abs=1e-5)
    assert [bar.share for bar in bars.values()] == before
    gone = int((xy[:, 0] + 64 < cut).sum())
    assert f"{gone:,} patches" in dock.questions.answer.text()
    dock.questions.without.setChecked(False)
    assert layer not in viewer.layers
    assert all(bar.other is None for bar in bars.values())


def test_does_it_look_in_the_right_place(run):
    _, dock = run
    dock.tabs.show_page("Questions")
    dock.questions.check.click()
    assert not dock.questions.check.isEnabled()
    wait(lambda: dock.questions.check.isEnabled(), 120)
    words = dock.questions.answer.text()
    assert words.startswith(("What it looked at matters", "No", "It makes no"))
    assert dock.questions.folded.isVisible()
    dock.questions.folded.open(True)
    assert set(dock.questions.curve.curves) == {
        "most_first",
        "random",
        "least_first",
    }


def test_six_clicks_from_nothing_to_a_report(first, open_dock, sample, tmp_path):
    """The sample, the analysis, a region, the report, its name, and that is all."""
    viewer, dock = open_dock(show=True)
    open_slide(viewer, sample)  # counted in the first run
    assert first.clicks == 2
    dock.run.analyse.click()
    wait(lambda: not dock.state.analysis.is_open)
    clicks = first.clicks
    for button in (dock.regions.strip.buttons[0], dock.export.export):
        assert button.isEnabled()
        button.click()
        clicks += 1
    dialog = dock.findChild(QFileDialog)
    dialog.setOption(QFileDialog.Option.DontUseNativeDialog)
    path = tmp_path / "report.html"
    clicks += 1
    dialog.fileSelected.emit(str(path))
    dialog.close()
    assert clicks <= 6
    wait(lambda: dock.export.export.isEnabled(), 60)
    page = path.read_text(encoding="utf-8")
    assert "For research, not for diagnosis." in page
    assert dock.state.analysis.prediction.pseudonym in page
    assert "sample.tif" not in page
    assert page.count("<img") > 5
    for name in dock.answer.bars.bars:
        assert name in page


def written(dock, path):
    dock.export.write(path)
    wait(lambda: dock.export.export.isEnabled(), 60)
    return path


def test_maps_for_qupath(run, tmp_path):
    """A square for every patch, with the attention and the class of the window."""
    _, dock = run
    analysis = dock.state.analysis
    found = json.loads(written(dock, tmp_path / "a.geojson").read_text())["features"]
    prediction, classes = analysis.prediction, analysis.class_map
    assert len(found) == len(prediction)
    times = attention_values(prediction.attention, unit="times average")
    names = {
        tuple(xy): classes.name_of(label)
        for xy, label in zip(classes.xy.tolist(), classes.labels, strict=True)
    }
    for row in range(0, len(found), 7):
        (ring,) = found[row]["geometry"]["coordinates"]
        assert ring[0] == prediction.xy[row].tolist()
        assert np.ptp(ring, axis=0).tolist() == list(analysis.lattice.l0_step_xy)
        said = found[row]["properties"]
        measured = said["measurements"]["Attention (times average)"]
        assert measured == pytest.approx(times[row], rel=1e-4)
        assert said["classification"]["name"] == names[tuple(ring[0])]


def test_maps_as_ome_tiff(run, tmp_path):
    """The values of the window's own map, in micrometres."""
    _, dock = run
    analysis = dock.state.analysis
    with tifffile.TiffFile(written(dock, tmp_path / "a.ome.tif")) as tiff:
        planes, words = tiff.asarray(), tiff.ome_metadata
    assert len(planes) == 3 + len(analysis.class_map.classes)
    for name in analysis.class_map.classes:
        assert f'Name="{name}"' in words
    um = analysis.lattice.l0_step_xy[0] * analysis.mpp_xy[0]
    stated = re.search(r'PhysicalSizeX="([^"]+)"', words)
    assert float(stated.group(1)) == pytest.approx(um)
    drawn = map_of(dock, "attention").data
    rows, cols = np.nonzero(np.isfinite(drawn))
    times = planes[1]
    assert times.shape == (np.ptp(rows) + 1, np.ptp(cols) + 1)
    cropped = drawn[rows.min() : rows.max() + 1, cols.min() : cols.max() + 1]
    np.testing.assert_allclose(times, cropped, rtol=1e-4)


def test_a_picture_of_the_map(run, tmp_path):
    """The tissue with the map's colours over it."""
    _, dock = run
    with Image.open(written(dock, tmp_path / "a.png")) as image:
        pixels = np.asarray(image.convert("RGB")).astype(int)
    height, width = pixels.shape[:2]
    assert min(height, width) > 300
    coloured = np.ptp(pixels, axis=-1) > 40
    assert 0.05 < coloured.mean() < 0.95
    # Viridis's greens are on the map; nothing of the stained tissue is green.
    green = (pixels[..., 1] > pixels[..., 0] + 25) & (
        pixels[..., 1] > pixels[..., 2] + 10
    )
    assert green.mean() > 0.005


def test_the_cache_is_shown_and_the_same_slide_again_is_quick(run, cache):
    _, dock = run
    dock.advanced.open()
    wait(lambda: "Kept features take 0.00 GB" in dock.advanced.cache.text(), 10)
    assert len(list(cache.glob("features/*.h5"))) == 1
    assert not any("sample" in path.name for path in cache.glob("features/*"))
    assert dock.advanced.encoding["device"].native.count() > 1
    layer = map_of(dock, "attention")
    dock.run.analyse.click()
    wait(lambda: not dock.state.analysis.is_open)
    assert dock.state.analysis.reused
    assert map_of(dock, "attention") is layer


def test_without_a_model_the_tissue_is_mapped(run):
    _, dock = run
    dock.model.choose_none()
    assert remembered("model") == ""
    dock.run.analyse.click()
    wait(lambda: dock.state.analysis.tissue_map is not None)
    analysis = dock.state.analysis
    assert analysis.reused
    assert (map_of(dock, "kinds").data > 0).sum() == len(analysis.tissue_map.xy)
    assert map_of(dock, "attention") is None
    assert "kinds of tissue" in dock.answer.tissue.text()
    assert dock.questions.without.isHidden()
    assert not dock.answer.answer.isVisible()
    assert dock.renderer.legend.isVisible()


def test_two_slides_wait_for_each_other(run, sample, tmp_path):
    viewer, dock = run
    first_layer = dock.state.layer
    other = tmp_path / "other.tif"
    other.write_bytes(sample.read_bytes())
    second = open_slide(viewer, other)
    dock.run.analyse.click()
    viewer.layers.selection.active = first_layer
    assert dock.state.layer is first_layer
    dock.run.analyse.click()
    both = list(dock.state.analyses.values())
    assert sum(analysis.is_open for analysis in both) == 2
    wait(lambda: not any(analysis.is_open for analysis in both))
    assert {analysis.phase for analysis in both} == {Phase.DONE}
    assert len([la for la in viewer.layers if la.name.startswith("Where")]) == 2
    viewer.layers.remove(second)
    assert len(dock.state.analyses) == 1


def test_the_cache_is_cleared(run, cache, tmp_path, monkeypatch):
    _, dock = run
    own = shutil.copytree(cache, tmp_path / "cache")
    monkeypatch.setenv("NAPARI_SPT_CACHE", str(own))
    dock.advanced.open()
    dock.advanced.clear.click()
    wait(lambda: not list(own.glob("features/*.h5")), 10)
    assert list(cache.glob("features/*.h5"))
    wait(lambda: dock.state.cache_bytes == 0, 10)
