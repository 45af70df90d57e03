"""``make demo``: a sample slide analysed; or, without a display, a picture of it."""

import argparse
import logging
import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import napari
from qtpy.QtCore import QTimer

from napari_spt.parts.settings import remember
from napari_spt.parts.viewing import camera, canvas_size

if TYPE_CHECKING:
    from napari_spt.analysis.dock import AnalysisDock

_log = logging.getLogger("napari_spt.demo")
# A picture is taken in the end, whatever happens.
LONGEST_SECONDS = 600


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--screenshot", type=Path, help="write a picture of the window and close it"
    )
    args = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    _log.setLevel(logging.INFO)

    if args.screenshot is not None:
        # A picture of the package, whatever model somebody has used last.
        os.environ["NAPARI_SPT_CONFIG"] = tempfile.mkdtemp(prefix="napari-spt-demo-")
    viewer = napari.Viewer(title="napari-spt")
    viewer.window.resize(1280, 800)
    _log.info("Opening a sample slide; the first time it is painted, in some seconds.")
    viewer.open_sample("napari-spt", "glandular")
    _, dock = viewer.window.add_plugin_dock_widget("napari-spt", "Slide analysis")
    _log.info("Analysing it: the first answer comes in seconds, then it refines.")
    if args.screenshot is not None:
        remember("asked_default_reader", True)
        # Held here: nobody else does.
        photographer = Photographer(viewer, dock, args.screenshot)
        photographer.start()
    QTimer.singleShot(400, lambda: show_whole(viewer, dock))
    QTimer.singleShot(500, dock.run.analyse.click)
    napari.run()


def show_whole(viewer: napari.Viewer, dock: "AnalysisDock") -> None:
    """The dock has made the canvas narrower: let all of the slide be in view."""
    low, high = viewer.layers[0].extent.world
    eye = camera(viewer)
    eye.center = tuple((low + high) / 2)
    eye.zoom = 0.95 * float(min(canvas_size(dock)[::-1] / (high - low)))


class Photographer:
    """Waits for the analysis to end, takes a picture, and closes the window."""

    def __init__(self, viewer: napari.Viewer, dock: "AnalysisDock", path: Path) -> None:
        self.viewer, self.dock, self.path = viewer, dock, path
        self.began = time.monotonic()
        self.ended: float | None = None
        self.timer = QTimer()
        self.timer.setInterval(500)
        self.timer.timeout.connect(self.look)

    def start(self) -> None:
        self.timer.start()

    def look(self) -> None:
        now, analysis = time.monotonic(), self.dock.state.analysis
        is_over = analysis is not None and not analysis.is_open
        if self.ended is None and (is_over or now - self.began > LONGEST_SECONDS):
            self.ended = now
            show_whole(self.viewer, self.dock)
        # Some moments for the pictures of the regions.
        if self.ended is None or now - self.ended < 4:
            return
        self.timer.stop()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.viewer.screenshot(str(self.path), canvas_only=False, flash=False)
        if analysis is not None:
            said = self.dock.run.trouble.text() or self.dock.answer.seen.text()
            _log.info("The analysis is %s. %s", analysis.phase, said)
        _log.info("There is no display: the window's picture is in %s", self.path)
        self.dock.shut_down()
        self.viewer.close()


if __name__ == "__main__":
    main()
