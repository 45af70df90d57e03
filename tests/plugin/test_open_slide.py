""" "Open slide…" from the menus, the dock, and the offer to be the default."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from napari._app_model import get_app_model
from napari.settings import get_settings
from napari.utils.notifications import notification_manager
from qtpy.QtCore import Qt
from qtpy.QtWidgets import QApplication, QFileDialog, QMessageBox

from napari_spt.parts.settings import remember, remembered, settings_file
from napari_spt.parts.viewing import scale_bar
from napari_spt.slides.default_reader import is_default, set_default
from napari_spt.slides.open_command import choose_and_open, open_slides
from napari_spt.slides.slides_dock import describe
from tests.made_slides import picture, write_svs


@pytest.fixture
def slide(tmp_path):
    write_svs(tmp_path / "a slide.svs", picture(2400, 1800))
    return tmp_path / "a slide.svs"


@pytest.fixture
def viewer(make_napari_viewer):
    return make_napari_viewer()


@pytest.fixture
def asked():
    """Whoever runs this has answered the offer before."""
    remember("asked_default_reader", True)


def shown(kind):
    return [
        w
        for w in QApplication.topLevelWidgets()
        if isinstance(w, kind) and w.isVisible()
    ]


def answer(qtbot, button):
    qtbot.waitUntil(lambda: bool(shown(QMessageBox)), timeout=10_000)
    (question,) = shown(QMessageBox)
    question.button(button).click()


def test_the_menus_have_it(viewer):
    menus = get_app_model().menus
    titles = [i.command.title for i in menus.get_menu("napari/file/io_utilities")]
    assert any(title.startswith("Open slide…") for title in titles)
    # A plugin with several docks has a menu of its own there.
    ours = [
        i.submenu for i in menus.get_menu("napari/plugins") if hasattr(i, "submenu")
    ]
    plugins = [i.command.title for menu in ours for i in menus.get_menu(menu)]
    assert any(title.startswith("Open slide…") for title in plugins)
    assert any(title.startswith("Slide analysis") for title in plugins)


def test_choosing_a_file_opens_it(viewer, slide, qtbot, asked):
    dialog = choose_and_open(viewer)
    assert isinstance(dialog, QFileDialog)
    dialog.filesSelected.emit([str(slide)])
    qtbot.waitUntil(lambda: len(viewer.layers) == 1, timeout=10_000)
    dialog.close()
    assert viewer.layers[0].source.reader_plugin == "napari-spt"
    assert scale_bar(viewer).visible
    assert remembered("recent_slides") == [str(slide)]
    assert remembered("last_folder") == str(slide.parent)


def test_one_bad_file_does_not_stop_the_others(viewer, slide, tmp_path, qtbot, asked):
    notification_manager.records.clear()
    (tmp_path / "b.svs").write_text("no")
    open_slides(viewer, [tmp_path / "b.svs", slide])
    qtbot.waitUntil(lambda: len(viewer.layers) == 1, timeout=10_000)
    assert any("text file" in n.message for n in notification_manager.records)


@pytest.mark.parametrize("says_yes", [True, False])
def test_the_default_is_offered_once_and_set_only_on_yes(
    viewer, slide, qtbot, says_yes
):
    before = dict(get_settings().plugins.extension2reader)
    open_slides(viewer, [slide])
    qtbot.waitUntil(lambda: bool(shown(QMessageBox)), timeout=10_000)
    assert get_settings().plugins.extension2reader == before
    button = QMessageBox.StandardButton
    answer(qtbot, button.Yes if says_yes else button.No)
    qtbot.waitUntil(lambda: remembered("asked_default_reader"), timeout=5_000)
    readers = get_settings().plugins.extension2reader
    assert (readers.get("*.svs") == "napari-spt") == says_yes
    assert "*.tif" not in readers
    other = slide.with_name("another.svs")
    other.write_bytes(slide.read_bytes())
    open_slides(viewer, [other])
    qtbot.waitUntil(lambda: len(viewer.layers) == 2, timeout=10_000)
    assert not shown(QMessageBox)
    if says_yes:
        viewer.open(str(slide), plugin=None)
        assert viewer.layers[-1].source.reader_plugin == "napari-spt"
    set_default(False)
    assert get_settings().plugins.extension2reader == before


def test_another_plugins_preference_is_not_taken_away(viewer):
    get_settings().plugins.extension2reader = {"*.svs": "other", "*.x": "y"}
    set_default(False)
    assert get_settings().plugins.extension2reader == {"*.svs": "other", "*.x": "y"}
    get_settings().plugins.extension2reader = {}


def test_the_dock(viewer, slide, qtbot, asked):
    viewer.open(str(slide), plugin="napari-spt")
    _, dock = viewer.window.add_plugin_dock_widget("napari-spt", "Open slide…")
    assert "2,400 × 1,800 pixels, 1.2 × 0.9 mm" in dock.facts.text()
    viewer.layers.clear()
    assert "Choose a slide file" in dock.facts.text()
    remember("recent_slides", [str(slide), "/nowhere/gone.svs"])
    dock._show()
    assert dock.recent.count() == 1
    dock.recent.itemActivated.emit(dock.recent.item(0))
    qtbot.waitUntil(lambda: len(viewer.layers) == 1, timeout=10_000)
    assert dock.recent.item(0).text() == slide.name
    dock.default.setChecked(True)
    assert is_default()
    dock.default.setChecked(False)
    assert not is_default()
    dock.choose()
    qtbot.waitUntil(lambda: bool(shown(QFileDialog)), timeout=5_000)
    dock.dialog.close()
    viewer.window.remove_dock_widget("all")


def test_the_dock_opened_before_any_slide_asks_for_one(viewer, qtbot):
    _, dock = viewer.window.add_plugin_dock_widget("napari-spt", "Open slide…")
    qtbot.waitUntil(lambda: hasattr(dock, "dialog"), timeout=5_000)
    dock.dialog.close()
    qtbot.keyClick(dock.open_button, Qt.Key.Key_Space)
    assert dock.open_button.text() == "Open slide…"


def test_open_sample_paints_a_slide_once(viewer):
    (layer,) = viewer.open_sample("napari-spt", "small-cell")
    path = Path(layer.metadata["spt"]["path"])
    assert layer.multiscale
    assert [str(u) for u in layer.units] == ["micrometer", "micrometer"]
    np.testing.assert_allclose(layer.scale, 0.5)
    written = path.stat().st_mtime_ns
    viewer.open_sample("napari-spt", "small-cell")
    assert path.stat().st_mtime_ns == written


def test_a_window_closed_while_a_sample_is_painted(tmp_path):
    code = (
        "import napari\n"
        "from qtpy.QtCore import QTimer\n"
        "if __name__ == '__main__':\n"
        "    viewer = napari.Viewer()\n"
        "    QTimer.singleShot(700, viewer.close)\n"
        "    viewer.open_sample('napari-spt', 'large-cell')\n"
    )
    script = tmp_path / "window.py"
    script.write_text(code)
    made = {"NAPARI_SPT_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, **made, "NAPARI_CONFIG": str(tmp_path / "napari.yaml")},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "Traceback" not in done.stderr
    assert done.returncode == 0
    left = [path.name for path in (tmp_path / "cache").rglob("large-cell*")]
    assert [name for name in left if "truth" not in name] == []


def test_words_for_a_slide_without_pixel_size():
    facts = {"bounds": [0, 0, 10_000, 5_000], "mpp_xy": None}
    assert "does not say how large a pixel is" in describe(facts)


def test_unreadable_settings_start_anew(caplog):
    settings_file().write_text("{not json")
    assert remembered("recent_slides", []) == []
    assert "not readable" in caplog.text
    remember("x", 1)
    assert remembered("x") == 1
