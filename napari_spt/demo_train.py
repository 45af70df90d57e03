"""``make demo-train``: a short study of sample slides in the dock, by its own buttons.

Without a display: pictures of each state, and the window is closed.
"""

import argparse
import logging
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import napari
from qtpy.QtCore import QTimer

from napari_spt.parts.settings import remember
from napari_spt.training.reading import Phase
from napari_spt.training.run_words import explained, headline

if TYPE_CHECKING:
    from napari_spt.training.dock import TrainDock

_log = logging.getLogger("napari_spt.demo")
LONGEST_SECONDS = 1800
LOOK_MS = 300


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--pictures", type=Path, help="write pictures of the window, and close it"
    )
    args = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    _log.setLevel(logging.INFO)
    viewer = napari.Viewer(title="napari-spt")
    viewer.window.resize(1280, 800)
    remember("training", {})
    remember("training_study", "")
    remember("training_tab", "")
    _, dock = viewer.window.add_plugin_dock_widget("napari-spt", "Train")
    show = Show(viewer, dock, args.pictures)  # held here: nobody else does
    QTimer.singleShot(800, show.start)
    napari.run()


class Show:
    """Goes through the dock step by step; each waits for what it needs."""

    def __init__(
        self, viewer: napari.Viewer, dock: "TrainDock", pictures: Path | None
    ) -> None:
        self.viewer, self.dock, self.pictures = viewer, dock, pictures
        self.began = time.monotonic()
        self.steps = self.story()
        self.timer = QTimer()
        self.timer.setInterval(LOOK_MS)
        self.timer.timeout.connect(self.look)

    def start(self) -> None:
        self.timer.start()

    def look(self) -> None:
        is_late = time.monotonic() - self.began > LONGEST_SECONDS
        if is_late or next(self.steps, None) is None:
            self.timer.stop()
            self.end()

    def story(self) -> Iterator[bool]:
        """Yields while it waits."""
        dock, run = self.dock, self.dock.run
        self.picture("empty")
        _log.info("Painting a few sample slides; the first time that takes a minute.")
        dock.data.sample.click()
        while not dock.draft.has_data:
            yield True
        folder = Path(tempfile.mkdtemp(prefix="napari-spt-")) / "sample-study"
        dock.draft.set(out=str(folder))
        while not dock.start.isEnabled() or dock.data.checker.is_at_work:
            yield True
        self.picture("findings")
        dock.tabs.choose("Goal")
        yield True
        self.picture("goal")
        _log.info("A short study begins; its folder is %s", folder)
        dock.start.click()
        while run.curves is None and not self.is_over():
            yield True
        seen = time.monotonic()
        while not self.is_over():
            if seen and time.monotonic() - seen > 10 and run.last.seconds_left:
                self.picture("running")
                seen = 0.0
            yield True
        until = time.monotonic() + 3
        while time.monotonic() < until:
            yield True
        self.picture("result")
        _log.info("%s %s", headline(run.last), explained(run.last))

    def is_over(self) -> bool:
        look = self.dock.run.last
        ends = (Phase.FINISHED, Phase.FAILED, Phase.LOST)
        return look is not None and look.phase in ends

    def picture(self, name: str) -> None:
        if self.pictures is None:
            return
        self.pictures.mkdir(parents=True, exist_ok=True)
        path = self.pictures / f"training-{name}.png"
        self.viewer.screenshot(str(path), canvas_only=False, flash=False)

    def end(self) -> None:
        if self.pictures is not None:
            _log.info("There is no display: pictures are in %s", self.pictures)
            self.dock.shut_down()
            self.viewer.close()


if __name__ == "__main__":
    main()
