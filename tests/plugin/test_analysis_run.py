"""From a slide to a reading with the real engine, in one viewer for all tests here."""

import gc
import json
import sys
import time

import h5py
import napari
import numpy as np
import pytest
from napari.settings import get_settings
from qtpy.QtCore import QCoreApplication, QEvent, Qt
from qtpy.QtWidgets import QApplication, QFileDialog

from napari_spt.analysis import keys as _keys
from napari_spt.parts.settings import remember, remembered
from napari_spt.parts.viewing import camera
from tests.plugin.dock_tools import open_slide


class Run:
    """The dock, and what happened on its way to the answer."""

    def __init__(self, viewer, dock):
        self.viewer, self.dock = viewer, dock
        self.clicks = 0
        self.readings = []
        self.layers = []

    def click(self, button):
        assert button.isEnabled()
        self.clicks += 1
        button.click()


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


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def _same_cache(_own_settings, cache, monkeypatch):
    monkeypatch.setenv("NAPARI_SPT_CACHE", str(cache))


@pytest.fixture(scope="module")
def run(sample, cache, engine, tmp_path_factory):
    """One click on Analyse, and all that comes of it."""
    patch = pytest.MonkeyPatch()
    patch.setenv("NAPARI_SPT_CACHE", str(cache))
    patch.setenv("NAPARI_SPT_CONFIG", str(tmp_path_factory.mktemp("config")))
    remember("asked_default_reader", True)
    get_settings().reset()
    viewer = napari.Viewer(show=True)
    viewer.window.resize(1280, 800)
    _, dock = viewer.window.add_plugin_dock_widget("napari-spt", "Slide analysis")
    one = Run(viewer, dock)
    patch.setattr("napari_spt.slides.samples.paint", lambda _kind: sample)
    one.click(dock.sample_button)
    wait(lambda: dock.layer is not None)
    take = dock.work._take

    def noting(shown, message):
        take(shown, message)
        if message.event == "prediction":
            one.readings.append(shown.analysis.reading)
            one.layers.append(shown.maps.find("attention"))

    dock.work._take = noting
    one.click(dock.analyse)
    assert dock.shown.analysis.is_open
    assert not dock.analyse.isEnabled()
    wait(lambda: not dock.shown.analysis.is_open)
    wait(lambda: dock.shown.look_alikes is not None, 30)
    yield one
    viewer.window.remove_dock_widget(dock)
    dock.deleteLater()
    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    viewer.close()
    QApplication.processEvents()
    patch.undo()
    gc.collect()


def test_it_ends_with_an_answer_maps_and_regions(run):
    dock, shown = run.dock, run.dock.shown
    assert shown.analysis.state == "done", shown.analysis.sentence
    assert shown.analysis.reading.seen == 1
    assert len(dock.reading.bars) == 3
    assert sum(bar.share for bar in dock.reading.bars.values()) == pytest.approx(1)
    assert "Seen all" in dock.reading.seen.text()
    assert {la.name for la in run.viewer.layers} >= {
        "Where the model looked",
        "Class map",
    }
    labels = shown.maps.find("classes")
    assert list(labels.features["name"])[1:] == [*dock.reading.bars, "unsure"]
    assert set(np.unique(labels.data)) <= {0, 1, 2, 3, 4}
    assert dock.display.legend.isVisible()
    assert len(dock.strip.places) == 12
    kinds = [place.kind for place in dock.strip.places]
    assert (kinds.count("random"), kinds.count("least")) == (3, 3)
    wait(lambda: all(b.icon().availableSizes() for b in dock.strip.buttons), 20)
    assert not dock.cancel.isVisible()


def test_it_came_early_and_was_refined_in_the_same_layer(run):
    seen = [reading.seen for reading in run.readings]
    assert len(seen) >= 2
    assert seen[0] < 0.5
    assert seen == sorted(seen)
    assert len({id(layer) for layer in run.layers}) == 1
    first = run.readings[0].g_rc
    whole = run.readings[-1].g_rc
    # The first patches are from all over the tissue.
    assert (np.ptp(first, axis=0) >= 0.6 * np.ptp(whole, axis=0)).all()


def test_torch_stays_out_of_the_window(run):
    assert "torch" not in sys.modules
    assert "torchvision" not in sys.modules


def test_the_layers_show_what_the_feature_file_holds(run):
    """Every patch of the file, and no other, has a value, where the file puts it."""
    shown = run.dock.shown
    with h5py.File(shown.analysis.features) as file:
        coords = file["coords"][:]
    layer = shown.maps.find("attention")
    rows, cols = np.nonzero(np.isfinite(layer.data))
    step = np.asarray(shown.analysis.l0_step_xy)
    found = np.stack([cols, rows], axis=1) * step
    assert {tuple(c) for c in coords} == {tuple(c) for c in found}
    assert np.nanmean(layer.data) == pytest.approx(1, abs=1e-4)


def test_a_region_is_flown_to_by_click_and_by_key(run):
    dock, viewer = run.dock, run.viewer
    dock.strip.buttons[1].click()
    wait(lambda: dock.flight._way is None, 10)
    x, y = dock.strip.places[1].l0_xy
    w, h = dock.shown.analysis.l0_step_xy
    um = dock.shown.analysis.slide.mpp_xy[0]
    middle = ((y + h / 2 - 0.5) * um, (x + w / 2 - 0.5) * um)
    np.testing.assert_allclose(camera(viewer).center[-2:], middle, atol=1e-6)
    frame = dock.shown.maps.find("region").data[0]
    np.testing.assert_allclose(np.ptp(frame, axis=0), (h * um, w * um))
    assert dock.strip.buttons[1].isChecked()
    from napari.utils.action_manager import action_manager

    action_manager.trigger(_keys.NEXT)
    assert dock.strip.current == 2
    action_manager.trigger(_keys.PREVIOUS)
    action_manager.trigger(_keys.PREVIOUS)
    assert dock.strip.current == 0
    dock.flight.land()
    viewer.reset_view()


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
    viewer, dock = run.viewer, run.dock
    maps = [dock.shown.maps.find(kind) for kind in ("attention", "classes")]
    assert all(layer.visible for layer in maps)
    canvas = viewer.window._qt_viewer.canvas.native
    qtbot.keyPress(canvas, Qt.Key.Key_H)
    assert not any(layer.visible for layer in maps)
    assert not dock.display.legend.isVisible()
    assert dock.shown.layer.visible
    qtbot.keyRelease(canvas, Qt.Key.Key_H)
    wait(lambda: all(layer.visible for layer in maps), 5)
    assert dock.display.legend.isVisible()


def test_more_like_this(run):
    dock = run.dock
    dock.questions.like.setChecked(True)
    x, y = dock.strip.places[0].l0_xy
    w, h = dock.shown.analysis.l0_step_xy
    place = dock.shown.lattice.world(dock.shown.layer, (x + w / 2, y + h / 2))
    dock.questions.like_asked.emit(place)
    layer = dock.shown.maps.find("likeness")
    assert layer.visible
    assert layer.data[y // h, x // w] == pytest.approx(1, abs=1e-4)
    with h5py.File(dock.shown.analysis.features) as file:
        tokens, coords = file["features"][:].astype(np.float64), file["coords"][:]
    centred = tokens - tokens.mean(axis=0)
    (row,) = np.flatnonzero((coords == (x, y)).all(axis=1))
    like = centred @ centred[row]
    like /= np.linalg.norm(centred, axis=1) * np.linalg.norm(centred[row])
    got = layer.data[coords[:, 1] // h, coords[:, 0] // w]
    np.testing.assert_allclose(got, np.maximum(like, 0), atol=2e-3)
    dock.questions.like.setChecked(False)
    assert dock.shown.maps.find("likeness") is None
    assert dock.shown.maps.find("attention").visible


def test_what_if_not_here(run):
    dock, viewer = run.dock, run.viewer
    before = [bar.share for bar in dock.reading.bars.values()]
    dock.questions.without.setChecked(True)
    layer = viewer.layers.selection.active
    assert layer.name == "What if not here?"
    assert layer.mode == "add_polygon_lasso"
    xy = dock.shown.analysis.reading.l0_xy
    cut = np.median(xy[:, 0])
    um = dock.shown.analysis.slide.mpp_xy[0]
    bottom = xy[:, 1].max() + 500
    corners = np.array([(0, 0), (0, cut), (bottom, cut), (bottom, 0)]) * um
    layer.add_polygons(corners)
    wait(lambda: dock.questions.answer.text() != "", 60)
    others = [bar.other for bar in dock.reading.bars.values()]
    assert sum(others) == pytest.approx(1, abs=1e-5)
    assert [bar.share for bar in dock.reading.bars.values()] == before
    gone = int((xy[:, 0] + 64 < cut).sum())
    assert f"{gone:,} patches" in dock.questions.answer.text()
    dock.questions.without.setChecked(False)
    assert layer not in viewer.layers
    assert all(bar.other is None for bar in dock.reading.bars.values())


def test_does_it_look_in_the_right_place(run):
    dock = run.dock
    dock.questions.check.click()
    assert not dock.questions.check.isEnabled()
    wait(lambda: dock.questions.check.isEnabled(), 120)
    words = dock.questions.answer.text()
    assert words.startswith(("What it looked at matters", "No", "It makes no"))
    assert dock.questions.folded.isVisible()
    dock.questions.folded.open(True)
    assert set(dock.questions.curve.curves) == {"most", "random", "least"}
    dock.questions.end()


def test_six_clicks_from_nothing_to_a_report(run, tmp_path):
    """Two got us here; a region, the report, its name, and that is all."""
    dock = run.dock
    assert run.clicks == 2
    run.click(dock.strip.buttons[0])
    run.click(dock.export)
    dialog = dock.findChild(QFileDialog)
    dialog.setOption(QFileDialog.Option.DontUseNativeDialog)
    path = tmp_path / "report.html"
    run.clicks += 1
    dialog.fileSelected.emit(str(path))
    dialog.close()
    assert run.clicks <= 6
    wait(path.exists, 60)
    wait(lambda: dock.export.isEnabled(), 10)
    page = path.read_text(encoding="utf-8")
    assert "For research, not for diagnosis." in page
    assert "slide-" in page
    assert "sample.tif" not in page
    assert page.count("<img") > 5
    for name in dock.reading.bars:
        assert name in page


@pytest.mark.parametrize("name", ["a.geojson", "a.ome.tif", "a.png"])
def test_maps_for_other_programs(run, tmp_path, name):
    run.dock.work.write_report(tmp_path / name)
    wait(lambda: (tmp_path / name).exists(), 30)
    wait(lambda: run.dock.export.isEnabled(), 10)
    if name.endswith("geojson"):
        found = json.loads((tmp_path / name).read_text())
        assert len(found["features"]) == len(run.dock.shown.analysis.reading.l0_xy)


def test_the_cache_is_shown_and_the_same_slide_again_is_quick(run, cache):
    dock = run.dock
    dock.advanced_part.open(True)
    wait(lambda: "Kept features take 0.00 GB" in dock.advanced.cache.text(), 10)
    assert len(list(cache.glob("features/*.h5"))) == 1
    assert not any("sample" in path.name for path in cache.glob("features/*"))
    assert dock.advanced.device.count() > 1
    layer = dock.shown.maps.find("attention")
    dock.analyse.click()
    wait(lambda: not dock.shown.analysis.is_open)
    assert dock.shown.analysis.reused
    assert dock.shown.maps.find("attention") is layer
    dock.advanced_part.open(False)


def test_without_a_model_the_tissue_is_mapped(run):
    dock = run.dock
    dock.model.choose_none()
    assert remembered("model") == ""
    dock.analyse.click()
    wait(lambda: bool(dock.shown.kinds))
    assert dock.shown.analysis.reused
    kinds = dock.shown.maps.find("kinds")
    assert (kinds.data > 0).sum() == len(dock.shown.kinds["l0_xy"])
    assert dock.shown.maps.find("attention") is None
    assert "kinds of tissue" in dock.tissue_words.text()
    assert dock.questions.without.isHidden()
    assert not dock.reading.isVisible()
    assert dock.display.legend.isVisible()


def test_two_slides_wait_for_each_other(run, sample, tmp_path):
    dock, viewer = run.dock, run.viewer
    dock.model.list.setCurrentIndex(0)
    dock.model._chosen(0)
    first = dock.layer
    other = tmp_path / "other.tif"
    other.write_bytes(sample.read_bytes())
    second = open_slide(viewer, other)
    dock.analyse.click()
    viewer.layers.selection.active = first
    assert dock.layer is first
    dock.analyse.click()
    both = list(dock.work.analyses.values())
    assert sum(shown.analysis.is_open for shown in both) == 2
    wait(lambda: not any(shown.analysis.is_open for shown in both))
    assert {shown.analysis.state for shown in both} == {"done"}
    assert len([la for la in viewer.layers if la.name.startswith("Where")]) == 2
    viewer.layers.remove(second)
    assert len(dock.work.analyses) == 1


def test_the_cache_is_cleared(run, cache):
    run.dock.advanced.clear.click()
    wait(lambda: not list(cache.glob("features/*.h5")), 10)
