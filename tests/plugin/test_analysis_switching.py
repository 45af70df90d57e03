"""Several slides, several analyses: each tells of itself alone."""

from pathlib import Path

import numpy as np
import pytest
from qtpy.QtCore import QCoreApplication, QEvent
from qtpy.QtWidgets import QLabel

from napari_spt.analysis.slide_analysis import Change
from napari_spt.parts import post as _post
from napari_spt.parts.post import Post
from napari_spt.slides.picture_slide import write_picture_slide
from spt_core.engine.cache import kept_bytes, make_room, pictures_folder
from spt_core.engine.client import Received
from spt_core.engine.protocol import (
    Cancelled,
    ClassesMapped,
    Device,
    MapTissue,
    Predicted,
    Ready,
    Starting,
    Step,
    TissueMapped,
    Working,
)
from spt_core.events import Progress
from spt_core.insight.similarity import LookAlikes
from tests.made_slides import picture, write_tiff
from tests.plugin.dock_tools import (
    class_map,
    known,
    map_of,
    open_slide,
    prediction,
    sent,
    tissue_map,
)

TISSUE = MapTissue(Path("a.h5"), "a")
PATCHES = [(0, 0), (300, 200), (600, 400), (300, 600)]
STEP = (300, 200)


@pytest.fixture
def two(open_dock, tmp_path):
    """A dock over two slides that have been analysed; the second is shown."""
    viewer, dock = open_dock()
    found = []
    for name in ("a", "b"):
        write_tiff(tmp_path / f"{name}.tif", picture(1200, 1000), levels=2)
        slide = open_slide(viewer, tmp_path / f"{name}.tif")
        found.append(known(dock, slide, PATCHES, STEP, tmp_path))
    assert dock.state.analysis is found[1]
    return viewer, dock, *found


def legend_words(dock):
    # What was there before goes when events are looked at.
    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    return " ".join(one.text() for one in dock.renderer.legend.findChildren(QLabel))


def test_the_status_bar_tells_of_the_last_analysis(two, tmp_path):
    _, dock, _, second = two
    place = second.lattice.world(second.layer, (450, 300))
    assert "0.8 ×" in second.layer.get_status(place, world=True)["coordinates"]
    flat = np.ones(4, np.float32)
    known(dock, second.layer, PATCHES, STEP, tmp_path, attention=flat)
    assert "1.0 ×" in second.layer.get_status(place, world=True)["coordinates"]


def test_a_tissue_map_that_comes_late_stays_with_its_slide(two, tmp_path):
    _, dock, first, second = two
    places = list(dock.regions.strip.places)
    dock.state.apply(first, sent(TissueMapped(tissue_map(PATCHES)), tmp_path))
    assert map_of(dock, "kinds", first) is not None
    assert map_of(dock, "kinds", second) is None
    assert dock.regions.strip.places == places
    assert "Kinds of tissue" not in legend_words(dock)


def test_the_tissue_is_mapped_again_without_trouble(two, tmp_path):
    _, dock, _, second = two
    mapped = TissueMapped(tissue_map(PATCHES))
    dock.state.apply(second, sent(mapped, tmp_path))
    assert map_of(dock, "kinds").visible
    assert "Kinds of tissue" in legend_words(dock)
    # The next analysis of the slide finds the layer, and knows no kinds yet.
    again = known(dock, second.layer, PATCHES, STEP, tmp_path)
    assert map_of(dock, "kinds") is not None
    assert again.tissue_map is None
    dock.state.apply(again, sent(mapped, tmp_path))
    assert again.tissue_map is not None
    assert [place.kind for place in dock.regions.strip.places] == ["odd"]


def test_look_alikes_end_on_the_slide_that_shows_them(two):
    viewer, dock, first, second = two
    tokens = np.random.default_rng(0).normal(size=(4, 8)).astype(np.float32)
    second.look_alikes, second.look_alikes_xy = LookAlikes(tokens), np.array(PATCHES)
    dock.state.tell(second, Change.LOOK_ALIKES)
    dock.questions.like.setChecked(True)
    place = second.lattice.world(second.layer, (450, 300))
    dock.questions.show_alike(place)
    assert map_of(dock, "likeness", second) is not None
    assert not map_of(dock, "attention", second).visible
    viewer.layers.selection.active = first.layer
    assert dock.state.analysis is first
    assert not dock.questions.like.isChecked()
    assert map_of(dock, "likeness", second) is None
    assert map_of(dock, "region", second) is None
    assert map_of(dock, "attention", first).visible
    assert not map_of(dock, "attention", second).visible
    viewer.layers.selection.active = second.layer
    assert map_of(dock, "attention", second).visible
    assert not map_of(dock, "attention", first).visible


def test_maps_go_with_their_slide(two, qtbot):
    viewer, dock, first, second = two
    viewer.layers.selection = {second.layer, map_of(dock, "attention", second)}
    viewer.layers.remove_selected()
    qtbot.waitUntil(lambda: map_of(dock, "classes", second) is None, timeout=5000)
    assert map_of(dock, "attention", second) is None
    assert map_of(dock, "attention", first) is not None
    viewer.layers.selection.active = first.layer
    assert dock.state.analysis is first


def test_both_docks_at_once(two):
    """Our maps are active layers too; the other dock has nothing to say of them."""
    viewer, dock, _, second = two
    viewer.layers.selection.active = second.layer
    _, slides = viewer.window.add_plugin_dock_widget("napari-spt", "Open slide…")
    assert "1,200 × 1,000" in slides.facts.text()
    viewer.layers.selection.active = map_of(dock, "attention", second)
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

    def submit(self, _request):
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

    one = post.ask(TISSUE, fails, user=1)
    other = post.ask(TISSUE, heard.append, user=2)
    told.messages = [
        Received(one, Predicted(prediction())),
        Received(other, Cancelled()),
    ]
    with pytest.raises(KeyError):
        post.deliver()
    post.timer.stop()
    assert heard == [Cancelled()]
    assert list(post.waiting) == [one]


def test_a_window_that_is_gone_hears_nothing(told):
    post, heard = Post(), []
    post.users = {1, 2}
    one = post.ask(TISSUE, lambda reply: heard.append((1, reply)), user=1)
    other = post.ask(TISSUE, lambda reply: heard.append((2, reply)), user=2)
    post.leave(1)
    assert told.cancelled == [one]
    told.messages = [Received(one, Cancelled()), Received(other, Cancelled())]
    post.deliver()
    post.timer.stop()
    assert heard == [(2, Cancelled())]


def test_old_progress_is_not_told(told):
    """A reply that draws nothing new would cost the window time for nothing."""
    post, heard = Post(), []
    one = post.ask(TISSUE, heard.append, user=1)
    steps = [Working(Step.LOOKING, Progress(done, 9)) for done in range(4)]
    mapped = ClassesMapped(class_map(PATCHES))
    replies = [*steps[:2], mapped, *steps[2:], Cancelled()]
    told.messages = [Received(one, reply) for reply in replies]
    told.messages.insert(0, Received(None, Starting(1, 2, "low")))
    post.deliver()
    assert heard == [mapped, steps[-1], Cancelled()]


def test_pictures_are_counted_and_cleared(tmp_path, monkeypatch):
    monkeypatch.setenv("NAPARI_SPT_CACHE", str(tmp_path))
    pixels = picture(700, 600)
    written = [
        write_picture_slide(pixels, mpp_xy=(um, um), folder=pictures_folder())
        for um in (0.25, 0.5)
    ]
    sizes = [path.stat().st_size for path in written]
    assert kept_bytes() == sum(sizes)
    assert make_room(sizes[1]) == sizes[1]
    assert [path.exists() for path in written] == [False, True]
    assert make_room(-1) == 0
    assert not list(pictures_folder().iterdir())


def test_the_remembered_device_is_asked_for_while_advanced_is_folded(open_dock):
    from napari_spt.parts.settings import remember

    remember("advanced", {"device": "cpu"})
    _, dock = open_dock()
    assert dock.state.options.device == "cpu"
    dock.advanced.open()
    dock.advanced.encoding["batch_size"].value = 7
    assert dock.state.options.device == "cpu"
    dock.state.set_engine(Ready("cpu", (Device("cpu", "this one"),), 2, {}))
    box = dock.advanced.encoding["device"].native
    assert box.currentText() == "this one"
    assert dock.advanced.device_note.text() == "Automatic: this one"
    assert dock.state.options.device == "cpu"
    box.setCurrentIndex(0)
    dock.keep_settings()
    assert dock.state.options.device is None


def test_a_view_is_kept_soon_after_a_change(open_dock, qtbot):
    from napari_spt.parts.settings import remembered

    _, dock = open_dock()
    dock.view.opacity.setValue(37)
    qtbot.waitUntil(
        lambda: (remembered("view", {}) or {}).get("opacity") == 37, timeout=5000
    )
