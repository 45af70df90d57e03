"""The pictures of docs/training-dock.md and docs/tutorial.md, from the real window.

``python benchmarks/_pictures.py docs/pictures`` goes through the demonstration of the
Train dock (``napari_spt.demo_train``) and stops for a picture in each state.
"""

import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import napari
import numpy as np
from PIL import Image
from qtpy.QtCore import QPoint, QTimer

from napari_spt.demo_train import Show
from napari_spt.parts.settings import remember
from napari_spt.slide_map.dock import SlideMapDock

QUALITY = 88


class Pictures(Show):
    """The demonstration, with a slide open and a look at every page."""

    def story(self) -> Iterator[bool]:
        dock, run = self.dock, self.dock.run
        self.picture("empty")
        dock.data.sample.click()
        while not dock.draft.has_data:
            yield True
        folder = Path(tempfile.mkdtemp(prefix="napari-spt-")) / "sample-study"
        dock.draft.set(out=str(folder))
        while not dock.start.isEnabled() or dock.data.checker.is_at_work:
            yield True
        slides = sorted(Path(dock.draft.slides).glob("*.tif*"))
        self.viewer.open(str(slides[3]), plugin="napari-spt")
        yield from self.wait(3)
        self.look_at(dock.data.heading)
        yield from self.wait(1)
        self.picture("findings")
        dock.tabs.choose("Goal")
        yield from self.wait(1)
        self.picture("goal")
        dock.start.click()
        while run.last is None or run.last.state is None or not self.learns():
            yield True
        yield from self.wait(1)
        self.picture("running")
        dock.tabs.choose("Views")
        dock.views.panel.shown.setChecked(True)
        while dock.views.panel.views is None or dock.views.panel.suggestion is None:
            yield True
        yield from self.wait(1)
        self.picture("views")
        dock.views.panel.shown.setChecked(False)
        dock.tabs.choose("Run")
        while not self.is_over():
            yield True
        yield from self.wait(3)
        self.picture("result")
        wrong = dock.result.report.confusion() * (1 - np.eye(3, dtype=int))
        row, column = np.unravel_index(wrong.argmax(), wrong.shape)
        dock.result.matrix.chosen.emit(int(row), int(column))
        self.look_at(dock.result.mistakes)
        yield from self.wait(1)
        self.picture("mistakes")
        dock.tabs.choose("Run")
        yield from self.wait(1)
        self.look_at(dock.growth.says)
        dock.growth.slider.setValue(0)
        yield from self.wait(1)
        self.picture("growth-before")
        dock.growth.newest.click()
        yield from self.wait(1)
        self.picture("growth-after")
        self.beside("growth")
        dock.result.see_map.click()
        window = dock.window()
        while (found := window.findChild(SlideMapDock)) is None or not is_drawn(found):
            yield True
        yield from self.wait(5)
        self.picture("map")

    def learns(self) -> bool:
        """A training that measures, with what its neighbours are, goes on."""
        training = self.dock.run.last.training
        is_long = training is not None and len(training.of_class) > 3
        return self.dock.run.last.state.stage == "evaluate" and is_long

    def wait(self, seconds: float) -> Iterator[bool]:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            yield True

    def look_at(self, widget) -> None:
        top = widget.mapTo(self.dock.scroll.widget(), QPoint(0, 0)).y()
        self.dock.scroll.verticalScrollBar().setValue(top - 8)

    def picture(self, name: str) -> None:
        super().picture(name)
        path = self.pictures / f"training-{name}.png"
        Image.open(path).convert("RGB").save(
            path.with_suffix(".jpg"), quality=QUALITY, optimize=True
        )
        path.unlink()

    def beside(self, name: str) -> None:
        """Before and after, of the dock alone, in one picture."""
        paths = [
            self.pictures / f"training-{name}-{n}.jpg" for n in ("before", "after")
        ]
        parts = [Image.open(path).crop((925, 45, 1280, 715)) for path in paths]
        both = Image.new("RGB", (sum(one.width for one in parts) + 8, parts[0].height))
        for number, one in enumerate(parts):
            both.paste(one, (number * (one.width + 8), 0))
        both.save(self.pictures / f"training-{name}.jpg", quality=QUALITY)
        for path in paths:
            path.unlink()


def is_drawn(found: SlideMapDock) -> bool:
    return found.map is not None and found.map.neighbours is not None


def main() -> None:
    viewer = napari.Viewer(title="napari-spt")
    viewer.window.resize(1280, 800)
    for key, value in (
        ("training", {}),
        ("training_study", ""),
        ("training_tab", ""),
        ("asked_default_reader", True),
    ):
        remember(key, value)
    _, dock = viewer.window.add_plugin_dock_widget("napari-spt", "Train")
    show = Pictures(viewer, dock, Path(sys.argv[1]))  # held here: nobody else does
    QTimer.singleShot(800, show.start)
    napari.run()


if __name__ == "__main__":
    main()
