"""A napari window that pans over a slide, with and without an analysis, and counts."""

import json
import sys
import time

import napari
import numpy as np
from qtpy.QtCore import QEventLoop, QTimer

from napari_spt.parts.settings import remember
from napari_spt.parts.viewing import camera
from spt_core.engine.protocol import Step, Working

TICK = 0.010


def live(seconds: float) -> None:
    """Let the window do what it does, in its own event loop."""
    loop = QEventLoop()
    QTimer.singleShot(int(1e3 * seconds), loop.quit)
    loop.exec()


class Heartbeat:
    """Notes by how much each tick of 10 ms comes late."""

    def __init__(self) -> None:
        self.late: list[float] = []
        self.timer = QTimer()
        self.timer.setInterval(int(TICK * 1e3))
        self.timer.timeout.connect(self._beat)
        self.last = 0.0

    def measure(self, viewer, seconds: float) -> list[float]:
        """Pan for so long; gives how late ticks were, in seconds."""
        self.late, self.last = [], time.perf_counter()
        self.timer.start()
        pan = Pan(viewer)
        live(seconds)
        pan.stop()
        self.timer.stop()
        return self.late

    def _beat(self) -> None:
        now = time.perf_counter()
        self.late.append(max(0.0, now - self.last - TICK))
        self.last = now


class Pan:
    """Moves the camera around, 30 times a second, at 1:1."""

    def __init__(self, viewer) -> None:
        self.eye = camera(viewer)
        self.extent = viewer.layers[0].extent.world
        self.eye.zoom = 0.5 / viewer.layers[0].scale[-1]
        self.start = time.perf_counter()
        self.timer = QTimer()
        self.timer.setInterval(33)
        self.timer.timeout.connect(self._step)
        self.timer.start()

    def _step(self) -> None:
        angle = (time.perf_counter() - self.start) / 4
        low, high = self.extent
        share = np.array([0.5 + 0.25 * np.sin(angle), 0.5 + 0.25 * np.cos(0.7 * angle)])
        self.eye.center = tuple(low + share * (high - low))

    def stop(self) -> None:
        self.timer.stop()


class Window:
    """The dock over one slide, with what is asked of it."""

    def __init__(self, path: str) -> None:
        remember("asked_default_reader", True)
        self.viewer = napari.Viewer()
        self.viewer.window.resize(1280, 800)
        window = self.viewer.window
        _, self.dock = window.add_plugin_dock_widget("napari-spt", "Slide analysis")
        self.viewer.open(path, plugin="napari-spt")
        self.heart = Heartbeat()

    @property
    def working(self) -> Working | None:
        analysis = self.dock.state.analysis
        return None if analysis is None else analysis.working

    @property
    def done(self) -> int:
        working = self.working
        if working is None or working.progress is None:
            return 0
        return working.progress.done

    def begin(self) -> None:
        """Analyse, until patches come steadily."""
        before = self.done
        self.dock.run.analyse.click()
        end = time.perf_counter() + 60
        while time.perf_counter() < end and (
            self.done <= before or self.working.step != Step.LOOKING
        ):
            self.rest(0.1)
        self.rest(3)

    def stop(self) -> None:
        self.dock.run.cancel.click()
        while self.dock.state.analysis.is_open:
            self.rest(0.1)

    def rest(self, seconds: float) -> None:
        live(seconds)

    def counted(self, work) -> list[float]:
        """Patches per second while ``work`` goes on, counted every two seconds."""
        marks = [(time.perf_counter(), self.done)]
        timer = QTimer()
        timer.setInterval(2000)
        timer.timeout.connect(lambda: marks.append((time.perf_counter(), self.done)))
        timer.start()
        work()
        timer.stop()
        seconds, done = np.diff(np.array(marks), axis=0).T
        return (done / seconds).tolist()


def main() -> None:
    path, seconds, rounds = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    window = Window(path)
    heart, viewer = window.heart, window.viewer
    heart.measure(viewer, 8)  # until the engine is ready and the first tiles are there
    found: dict = {"quiet": [], "busy": [], "rate_busy": [], "rate_alone": []}
    for _ in range(rounds):
        found["quiet"] += heart.measure(viewer, seconds)
        window.begin()
        found["rate_busy"] += window.counted(
            lambda: found["busy"].extend(heart.measure(viewer, seconds))
        )
        found["rate_alone"] += window.counted(lambda: window.rest(seconds))
        window.stop()
    analysis = window.dock.state.analysis
    found |= {
        "patches": analysis.started.patches,
        "state": analysis.phase,
        "torch": "torch" in sys.modules,
    }
    print(json.dumps(found), flush=True)
    window.dock.shut_down()
    viewer.close()


if __name__ == "__main__":
    main()
