"""What goes wrong is a sentence; what was found stays; nothing is left behind."""

import os
import signal
import threading
import time

import numpy as np
import psutil
import pytest
from napari.settings import get_settings
from napari.utils.notifications import notification_manager

from napari_spt.analysis.slide_analysis import Phase
from napari_spt.parts.viewing import scale_bar
from spt_core.engine.client import shared_engine
from spt_core.engine.protocol import FailureKind, Step
from tests.made_slides import damage_tile, write_svs, write_tiff
from tests.plugin.dock_tools import SLOW, map_of, open_slide, wait_ended


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
    dock.run.analyse.click()
    analysis = wait_ended(qtbot, dock)
    assert analysis.failure.kind == FailureKind.NO_TISSUE
    assert "No tissue was found" in told()
    assert "No tissue was found" in dock.run.trouble.text()
    mask = map_of(dock, "tissue")
    # The mask lies where its own scale puts it, from the corner of the first pixel.
    scale = np.array(analysis.tissue.l0_scale_xy[::-1])
    first = mask.data_to_world((-0.5, -0.5))
    last = mask.data_to_world(np.array(mask.data.shape) - 0.5)
    np.testing.assert_allclose(first, (-0.25, -0.25), atol=1e-6)
    l0_covered = scale * mask.data.shape
    np.testing.assert_allclose(last, l0_covered * 0.5 - 0.25, atol=1e-6)
    # That is the slide, but for less than a pixel of the mask.
    assert (np.abs(l0_covered - (1200, 1600)) < scale).all()


def test_the_pixel_size_is_asked_for_in_place(open_dock, tmp_path, sample, qtbot):
    viewer, dock = open_dock(show=True)
    write_svs(tmp_path / "a.svs", part_of(sample), mpp=None)
    open_slide(viewer, tmp_path / "a.svs")
    assert dock.slide.pixel_size.isVisible()
    # Nothing is guessed.
    assert not dock.run.analyse.isEnabled()
    dock.slide.pixel_size.buttons["40×"].click()
    assert dock.run.analyse.isEnabled()
    assert dock.slide.pixel_size.um == 0.25
    assert "0.3 × 0.3 mm" in dock.slide.pixel_size.ruler.text()
    dock.slide.pixel_size.buttons["20×"].click()
    dock.run.analyse.click()
    analysis = wait_ended(qtbot, dock)
    assert analysis.phase == Phase.DONE, analysis.failure
    assert analysis.lattice.l0_step_xy == (128, 128)
    status = analysis.layer.get_status((100.0, 100.0), world=True)
    assert "mm" in status["coordinates"]
    # Nor is what was true of another slide.
    write_svs(tmp_path / "b.svs", part_of(sample, 512), mpp=None)
    open_slide(viewer, tmp_path / "b.svs")
    assert not dock.run.analyse.isEnabled()


def test_what_a_slide_says_itself_cannot_be_told_otherwise(open_dock, sample):
    viewer, dock = open_dock()
    open_slide(viewer, sample)
    dock.advanced.open()
    assert not dock.advanced.encoding["slide_mpp"].enabled
    dock.advanced.encoding["slide_mpp"].value = 2.0
    assert dock.state.slide_mpp is None


def test_a_model_for_another_magnification(open_dock, tmp_path, sample, qtbot):
    viewer, dock = open_dock(show=True)
    write_tiff(tmp_path / "a.tif", part_of(sample), mpp_xy=(4.0, 4.0))
    open_slide(viewer, tmp_path / "a.tif")
    dock.run.analyse.click()
    analysis = wait_ended(qtbot, dock)
    assert analysis.failure.kind == FailureKind.TOO_COARSE
    assert "too coarse" in told()
    assert dock.run.map_tissue.isVisible()


def test_a_plain_picture_works_too(open_dock, sample, qtbot):
    viewer, dock = open_dock(show=True)
    pixels = part_of(sample)
    viewer.add_image(np.zeros((50, 50)), name="not a slide")
    assert dock.state.layer is None
    layer = viewer.add_image(pixels, rgb=True, name="a picture")
    assert dock.state.layer is layer
    assert not dock.slide.pixel_size.isHidden()
    dock.slide.pixel_size.buttons["20×"].click()
    dock.run.analyse.click()
    analysis = wait_ended(qtbot, dock)
    assert analysis.phase == Phase.DONE, analysis.failure
    attention = map_of(dock, "attention")
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
    dock.run.analyse.click()
    analysis = wait_ended(qtbot, dock)
    assert analysis.phase == Phase.DONE, analysis.failure
    assert "cannot be" in told()
    assert len(analysis.prediction) < 64


def test_a_file_that_is_no_model(open_dock, tmp_path, sample):
    viewer, dock = open_dock()
    open_slide(viewer, sample)
    before = dock.state.model
    (tmp_path / "x.safetensors").write_text("no")
    dock.model.choose(tmp_path / "x.safetensors")
    assert "not a slide model" in told()
    assert dock.state.model == before


MOMENTS = {
    "at once": lambda analysis: True,
    "while it is opened": lambda analysis: analysis.working is not None,
    "while it is encoded": lambda analysis: (
        analysis.working is not None and analysis.working.step == Step.LOOKING
    ),
    "after the first answer": lambda analysis: analysis.prediction is not None,
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_cancelled_at_any_moment(open_dock, sample, qtbot, moment):
    viewer, dock = open_dock()
    open_slide(viewer, sample)
    dock.run.analyse.click()
    analysis = dock.state.analysis
    qtbot.waitUntil(lambda: MOMENTS[moment](analysis), timeout=SLOW)
    assert analysis.is_open
    dock.run.cancel.click()
    assert dock.run.progress.text() == "Stopping…"
    wait_ended(qtbot, dock, 20_000)
    assert analysis.phase == Phase.CANCELLED
    assert "Cancelled." in dock.run.trouble.text()
    has_answer = analysis.prediction is not None
    assert has_answer or moment != "after the first answer"
    assert ("stays" in dock.run.trouble.text()) == has_answer
    assert (map_of(dock, "attention") is not None) == has_answer
    assert analysis.features is None
    assert dock.run.analyse.isEnabled()
    assert dock.run.analyse.text() == "Analyse"
    assert not dock.run.cancel.isVisible()


@pytest.mark.parametrize("is_on", [False, True])
def test_asynchronous_slicing_is_left_as_it_is(
    open_dock, sample, qtbot, is_on, monkeypatch
):
    monkeypatch.setattr(get_settings().experimental, "async_", is_on)
    viewer, dock = open_dock()
    open_slide(viewer, sample)
    assert get_settings().experimental.async_ == is_on
    dock.run.analyse.click()
    analysis = dock.state.analysis
    qtbot.waitUntil(lambda: analysis.prediction is not None, timeout=SLOW)
    assert map_of(dock, "attention") is not None
    dock.run.cancel.click()
    wait_ended(qtbot, dock)


@pytest.mark.skipif(os.name != "posix", reason="there is no SIGKILL")
def test_a_killed_engine_is_a_sentence_and_the_next_click_works(
    open_dock, tmp_path, sample, qtbot
):
    viewer, dock = open_dock()
    open_slide(viewer, sample)
    dock.run.analyse.click()
    qtbot.waitUntil(lambda: dock.state.analysis.phase == Phase.RUNNING, timeout=SLOW)
    os.kill(shared_engine().pid, signal.SIGKILL)
    analysis = wait_ended(qtbot, dock, 20_000)
    assert analysis.phase == Phase.FAILED
    assert "memory" in told()
    write_tiff(tmp_path / "small.tif", part_of(sample, 768))
    open_slide(viewer, tmp_path / "small.tif")
    dock.run.analyse.click()
    assert wait_ended(qtbot, dock).phase == Phase.DONE


def test_a_layer_removed_in_mid_run(open_dock, sample, qtbot):
    viewer, dock = open_dock()
    layer = open_slide(viewer, sample)
    dock.run.analyse.click()
    qtbot.wait(1500)
    viewer.layers.remove(layer)
    assert dock.state.analysis is None
    assert not dock.state.analyses
    qtbot.wait(1200)
    assert dock.state.layer is None
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
    dock.run.analyse.click()
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
