"""What goes wrong is a sentence; what was found stays; nothing is left behind."""

import os
import random
import signal
import threading
import time

import numpy as np
import psutil
import pytest
from napari.settings import get_settings
from napari.utils.notifications import notification_manager
from napari_spt.parts.engine import shared_engine

from napari_spt.parts.viewing import scale_bar
from tests.made_slides import damage_tile, write_svs, write_tiff
from tests.plugin.dock_tools import SLOW, open_slide, wait_ended


@pytest.fixture(autouse=True)
def _no_old_notifications():
    notification_manager.records.clear()


def told():
    return " ".join(n.message for n in notification_manager.records)


def flat(path, **options):
    """A slide of nothing but glass."""
    rng = np.random.default_rng(0)
    pixels = 240 + rng.normal(0, 1, (1200, 1600, 3))
    write_tiff(path, pixels.astype(np.uint8), **options)


def part_of(sample, side=1024):
    """Pixels from the middle of the sample's tissue."""
    from spt_core.slides import open_slide as opened

    slide = opened(sample)
    width, height = slide.dimensions
    left, top = width // 2 - side // 2, height // 2 - side // 2
    return slide.read(0, left, top, side, side)


def test_no_tissue_is_said_and_shown(open_dock, tmp_path, qtbot):
    viewer, dock = open_dock()
    flat(tmp_path / "glass.tif")
    open_slide(viewer, tmp_path / "glass.tif")
    dock.analyse.click()
    analysis = wait_ended(qtbot, dock)
    assert analysis.kind == "no_tissue"
    assert "No tissue was found" in told()
    assert "No tissue was found" in dock.trouble.text()
    mask = dock.shown.maps.find("tissue")
    assert mask is not None
    # The mask covers the slide, edge to edge.
    first = mask.data_to_world((-0.5, -0.5))
    last = mask.data_to_world(np.array(mask.data.shape) - 0.5)
    np.testing.assert_allclose(first, (-0.25, -0.25), atol=0.3)
    np.testing.assert_allclose(last, (1200 * 0.5 - 0.25, 1600 * 0.5 - 0.25), atol=3)


def test_the_pixel_size_is_asked_for_in_place(open_dock, tmp_path, sample, qtbot):
    viewer, dock = open_dock(show=True)
    write_svs(tmp_path / "a.svs", part_of(sample), mpp=None)
    open_slide(viewer, tmp_path / "a.svs")
    assert dock.pixel_size.isVisible()
    # Nothing is guessed.
    assert not dock.analyse.isEnabled()
    dock.pixel_size.buttons["40×"].click()
    assert dock.analyse.isEnabled()
    assert dock.pixel_size.um == 0.25
    assert "0.3 × 0.3 mm" in dock.pixel_size.ruler.text()
    dock.pixel_size.buttons["20×"].click()
    dock.analyse.click()
    analysis = wait_ended(qtbot, dock)
    assert analysis.state == "done", analysis.sentence
    assert analysis.l0_step_xy == (128, 128)
    status = dock.shown.layer.get_status((100.0, 100.0), world=True)
    assert "mm" in status["coordinates"]
    # Nor is what was true of another slide.
    write_svs(tmp_path / "b.svs", part_of(sample, 512), mpp=None)
    open_slide(viewer, tmp_path / "b.svs")
    assert not dock.analyse.isEnabled()


def test_what_a_slide_says_itself_cannot_be_told_otherwise(open_dock, sample):
    viewer, dock = open_dock()
    open_slide(viewer, sample)
    assert not dock.advanced.pixel_size.isEnabled()
    dock.advanced.pixel_size.setValue(2.0)
    assert dock.advanced.slide_mpp is None


def test_a_model_for_another_magnification(open_dock, tmp_path, sample, qtbot):
    viewer, dock = open_dock(show=True)
    write_tiff(tmp_path / "a.tif", part_of(sample), mpp_xy=(4.0, 4.0))
    open_slide(viewer, tmp_path / "a.tif")
    dock.analyse.click()
    analysis = wait_ended(qtbot, dock)
    assert analysis.kind == "magnification"
    assert "too coarse" in told()
    assert dock.map_tissue.isVisible()


def test_a_plain_picture_works_too(open_dock, sample, qtbot):
    viewer, dock = open_dock(show=True)
    pixels = part_of(sample)
    viewer.add_image(np.zeros((50, 50)), name="not a slide")
    assert dock.layer is None
    layer = viewer.add_image(pixels, rgb=True, name="a picture")
    assert dock.layer is layer
    assert not dock.pixel_size.isHidden()
    dock.pixel_size.buttons["20×"].click()
    dock.analyse.click()
    analysis = wait_ended(qtbot, dock)
    assert analysis.state == "done", analysis.sentence
    attention = dock.shown.maps.find("attention")
    corner = attention.data_to_world((-0.5, -0.5))
    np.testing.assert_allclose(corner, (-0.5, -0.5), atol=1e-6)
    assert attention.data.shape == (8, 8)
    assert not scale_bar(viewer).visible


def test_a_damaged_region_is_told_and_the_rest_analysed(
    open_dock, tmp_path, sample, qtbot
):
    viewer, dock = open_dock()
    write_tiff(tmp_path / "a.tif", part_of(sample), levels=2)
    damage_tile(tmp_path / "a.tif", tile=5)
    open_slide(viewer, tmp_path / "a.tif")
    dock.analyse.click()
    analysis = wait_ended(qtbot, dock)
    assert analysis.state == "done", analysis.sentence
    assert "cannot be" in told()
    assert len(analysis.reading.l0_xy) < 64


def test_a_file_that_is_no_model(open_dock, tmp_path, sample):
    viewer, dock = open_dock()
    open_slide(viewer, sample)
    before = dock.model.path
    (tmp_path / "x.safetensors").write_text("no")
    dock.model.choose(tmp_path / "x.safetensors")
    assert "not a slide model" in told()
    assert dock.model.path == before


@pytest.mark.parametrize("seed", range(3))
def test_cancelled_at_any_moment(open_dock, sample, qtbot, seed):
    viewer, dock = open_dock()
    open_slide(viewer, sample)
    dock.analyse.click()
    qtbot.wait(int(random.Random(seed).random() * 4000))
    analysis = dock.shown.analysis
    dock.cancel.click()
    wait_ended(qtbot, dock, 20_000)
    assert analysis.state in ("cancelled", "done")
    if analysis.state == "cancelled":
        assert "stays" in dock.trouble.text()
    if analysis.reading is not None:
        assert dock.shown.maps.find("attention") is not None
    assert dock.analyse.isEnabled()
    assert not dock.cancel.isVisible()


@pytest.mark.parametrize("is_on", [False, True])
def test_asynchronous_slicing_is_left_as_it_is(
    open_dock, sample, qtbot, is_on, monkeypatch
):
    monkeypatch.setattr(get_settings().experimental, "async_", is_on)
    viewer, dock = open_dock()
    open_slide(viewer, sample)
    assert get_settings().experimental.async_ == is_on
    dock.analyse.click()
    qtbot.waitUntil(lambda: dock.shown.analysis.reading is not None, timeout=SLOW)
    assert dock.shown.maps.find("attention") is not None
    dock.cancel.click()
    wait_ended(qtbot, dock)


@pytest.mark.skipif(os.name != "posix", reason="there is no SIGKILL")
def test_a_killed_engine_is_a_sentence_and_the_next_click_works(
    open_dock, tmp_path, sample, qtbot
):
    viewer, dock = open_dock()
    open_slide(viewer, sample)
    dock.analyse.click()
    qtbot.waitUntil(lambda: dock.shown.analysis.state == "running", timeout=SLOW)
    os.kill(shared_engine().pid, signal.SIGKILL)
    analysis = wait_ended(qtbot, dock, 20_000)
    assert analysis.state == "failed"
    assert "memory" in told()
    write_tiff(tmp_path / "small.tif", part_of(sample, 768))
    open_slide(viewer, tmp_path / "small.tif")
    dock.analyse.click()
    assert wait_ended(qtbot, dock).state == "done"


def test_a_layer_removed_in_mid_run(open_dock, sample, qtbot):
    viewer, dock = open_dock()
    layer = open_slide(viewer, sample)
    dock.analyse.click()
    qtbot.wait(1500)
    viewer.layers.remove(layer)
    assert dock.shown is None
    assert not dock.work.analyses
    qtbot.wait(1200)
    assert dock.layer is None
    assert told() == ""


@pytest.mark.parametrize("closes", ["dock", "window"])
def test_closing_in_mid_run_leaves_nothing(make_napari_viewer, sample, qtbot, closes):
    """No thread, no process, no exception."""
    from napari_spt.parts.post import post
    from napari_spt.parts.settings import remember

    remember("asked_default_reader", True)
    post().leave(0)
    qtbot.waitUntil(lambda: not engines(), timeout=15_000)
    before = {t for t in threading.enumerate() if "napari-spt" in t.name}
    viewer = make_napari_viewer()
    _, dock = viewer.window.add_plugin_dock_widget("napari-spt", "Slide analysis")
    open_slide(viewer, sample)
    dock.analyse.click()
    qtbot.wait(1500)
    assert engines()
    start = time.perf_counter()
    if closes == "dock":
        viewer.window.remove_dock_widget(dock)
        assert time.perf_counter() - start < 0.5
        dock.deleteLater()
    else:
        viewer.close()
    del dock
    qtbot.waitUntil(lambda: not engines(), timeout=15_000)
    qtbot.waitUntil(
        lambda: {t for t in threading.enumerate() if "napari-spt" in t.name} <= before,
        timeout=15_000,
    )
    assert told() == ""
    post().enter(0)


def engines():
    children = psutil.Process().children(recursive=True)
    return [
        child
        for child in children
        if child.is_running()
        and child.status() != psutil.STATUS_ZOMBIE
        and "spt_core.engine" in " ".join(_command(child))
    ]


def _command(process):
    try:
        return process.cmdline()
    except psutil.Error:
        return []
