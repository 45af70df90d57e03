"""Several slides, several analyses: each tells of itself alone."""

import numpy as np
import pytest
from qtpy.QtCore import QCoreApplication, QEvent
from qtpy.QtWidgets import QLabel

from napari_spt.analysis.advanced import _cache_size, pictures_folder
from napari_spt.parts import post as _post
from napari_spt.parts.engine import Message
from napari_spt.parts.post import Post
from napari_spt.slides.picture_slide import write_picture_slide
from spt_core.insight.similarity import LookAlikes
from tests.made_slides import picture, write_tiff
from tests.plugin.dock_tools import known, open_slide

PATCHES = [(0, 0), (300, 200), (600, 400), (300, 600)]
STEP = (300, 200)


@pytest.fixture
def two(open_dock, tmp_path):
    """A dock over two slides that have been analysed; the second is shown."""
    viewer, dock = open_dock()
    shown = []
    for name in ("a", "b"):
        write_tiff(tmp_path / f"{name}.tif", picture(1200, 1000), levels=2)
        slide = open_slide(viewer, tmp_path / f"{name}.tif")
        shown.append(known(viewer, dock, slide, PATCHES, STEP))
    assert dock.shown is shown[1]
    return viewer, dock, *shown


def kinds():
    xy = np.array(PATCHES)
    return Message(
        1,
        "done",
        {"names": ["one", "two"], "colours": [(1, 2, 3), (4, 5, 6)]},
        {"cluster": np.arange(4) % 2, "l0_xy": xy, "outliers": np.array([1])},
    )


def legend_words(dock):
    # What was there before goes when events are looked at.
    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    return " ".join(one.text() for one in dock.display.legend.findChildren(QLabel))


def test_the_status_bar_tells_of_the_last_analysis(two):
    viewer, dock, _, second = two
    place = second.lattice.world(second.layer, (450, 300))
    assert "0.8 ×" in second.layer.get_status(place, world=True)["coordinates"]
    flat = np.ones(4, np.float32)
    known(viewer, dock, second.layer, PATCHES, STEP, attention=flat)
    assert "1.0 ×" in second.layer.get_status(place, world=True)["coordinates"]


def test_a_tissue_map_that_comes_late_stays_with_its_slide(two, monkeypatch):
    _, dock, first, second = two
    monkeypatch.setattr("napari_spt.analysis.alike.odd_places", lambda _: [])
    strip = list(dock.strip.places)
    dock.work.alike._take_kinds(first, kinds())
    assert first.maps.find("kinds") is not None
    assert second.maps.find("kinds") is None
    assert dock.strip.places == strip
    assert "Kinds of tissue" not in legend_words(dock)


def test_the_tissue_is_mapped_again_without_trouble(two, monkeypatch):
    viewer, dock, _, second = two
    monkeypatch.setattr("napari_spt.analysis.alike.odd_places", lambda _: [])
    dock.work.alike._take_kinds(second, kinds())
    assert second.maps.find("kinds").visible
    # The next analysis of the slide finds the layer, and knows no kinds yet.
    again = known(viewer, dock, second.layer, PATCHES, STEP)
    assert again.maps.find("kinds") is not None
    dock.display.draw(again, dock.controls.settings)
    dock.work.alike._take_kinds(again, kinds())
    assert again.kinds


def test_look_alikes_end_on_the_slide_that_shows_them(two):
    viewer, dock, first, second = two
    tokens = np.random.default_rng(0).normal(size=(4, 8)).astype(np.float32)
    second.look_alikes, second.likeness_xy = LookAlikes(tokens), np.array(PATCHES)
    dock.follow()
    dock.questions.like.setChecked(True)
    place = second.lattice.world(second.layer, (450, 300))
    dock.questions.like_asked.emit(place)
    assert second.maps.find("likeness") is not None
    assert not second.maps.find("attention").visible
    viewer.layers.selection.active = first.layer
    assert dock.shown is first
    assert not dock.questions.like.isChecked()
    assert second.maps.find("likeness") is None
    assert second.maps.find("region") is None
    assert second.maps.find("attention").visible
    assert first.maps.find("attention").visible


def test_maps_go_with_their_slide(two, qtbot):
    viewer, dock, first, second = two
    viewer.layers.selection = {second.layer, second.maps.find("attention")}
    viewer.layers.remove_selected()
    qtbot.waitUntil(lambda: second.maps.find("classes") is None, timeout=5000)
    assert second.maps.find("attention") is None
    assert first.maps.find("attention") is not None
    viewer.layers.selection.active = first.layer
    assert dock.shown is first


def test_both_docks_at_once(two):
    """Our maps are active layers too; the other dock has nothing to say of them."""
    viewer, _, _, second = two
    viewer.layers.selection.active = second.layer
    _, slides = viewer.window.add_plugin_dock_widget("napari-spt", "Open slide…")
    assert "1,200 × 1,000" in slides.facts.text()
    viewer.layers.selection.active = second.maps.find("attention")
    assert "Choose a slide" in slides.facts.text()
    viewer.window.remove_dock_widget(slides)
    slides.close()
    slides.deleteLater()


class Told:
    """An engine that says what it is told to say."""

    def __init__(self, *messages):
        self.messages = list(messages)
        self.cancelled = []
        self.last = 0

    def submit(self, _do, **_facts):
        self.last += 1
        return self.last

    def cancel(self, request):
        self.cancelled.append(request)

    def poll(self):
        found, self.messages = self.messages, []
        return found


@pytest.fixture
def told(qapp, monkeypatch):
    engine = Told()
    monkeypatch.setattr(_post, "shared_engine", lambda: engine)
    return engine


def test_an_error_in_one_answer_loses_no_other(told):
    post, heard = Post(), []

    def fails(_message):
        raise KeyError("names")

    one = post.ask("analyse", fails, user=1)
    other = post.ask("analyse", heard.append, user=2)
    told.messages = [Message(one, "prediction"), Message(other, "done")]
    with pytest.raises(KeyError):
        post.deliver()
    post.timer.stop()
    assert [message.event for message in heard] == ["done"]
    assert list(post.waiting) == [one]


def test_a_window_that_is_gone_hears_nothing(told):
    post, heard = Post(), []
    post.users = {1, 2}
    one = post.ask("analyse", heard.append, user=1)
    other = post.ask("analyse", heard.append, user=2)
    post.leave(1)
    assert told.cancelled == [one]
    told.messages = [Message(one, "cancelled"), Message(other, "done")]
    post.deliver()
    post.timer.stop()
    assert [message.request for message in heard] == [other]


def test_pictures_are_counted_and_cleared(tmp_path, monkeypatch):
    monkeypatch.setenv("NAPARI_SPT_CACHE", str(tmp_path))
    pixels = picture(700, 600)
    written = [
        write_picture_slide(pixels, mpp_xy=(um, um), folder=pictures_folder())
        for um in (0.25, 0.5)
    ]
    sizes = [path.stat().st_size for path in written]
    assert _cache_size(None) == sum(sizes)
    assert _cache_size(sizes[1]) == sizes[1]
    assert [path.exists() for path in written] == [False, True]
    assert _cache_size(-1) == 0
    assert not list(pictures_folder().iterdir())


def test_the_remembered_device_is_asked_for_while_advanced_is_folded(open_dock):
    from napari_spt.parts.settings import remember

    remember("advanced", {"device": "cpu"})
    _, dock = open_dock()
    assert dock.advanced.request["device"] == "cpu"
    about = {"device": "cpu", "devices": [{"id": "cpu", "name": "this one"}]}
    dock.advanced.show_devices(about)
    assert dock.advanced.request["device"] == "cpu"
    dock.advanced.device.setCurrentIndex(0)
    dock.keep_settings()
    assert dock.advanced.request["device"] is None


def test_a_view_is_kept_soon_after_a_change(open_dock, qtbot):
    from napari_spt.parts.settings import remembered

    _, dock = open_dock()
    dock.controls.opacity.setValue(37)
    qtbot.waitUntil(
        lambda: (remembered("view", {}) or {}).get("opacity") == 37, timeout=5000
    )
