"""A napari window that pans over a slide, with and without a study that learns."""

import json
import sys
import time
from pathlib import Path

import napari
import psutil
from _dock_window import Heartbeat, live

from napari_spt.parts.settings import remember
from napari_spt.training.reading import Phase


def until(true, seconds: float = 120.0) -> None:
    end = time.perf_counter() + seconds
    while not true():
        if time.perf_counter() > end:
            raise TimeoutError
        live(0.05)


class Processor:
    """How many cores a process and its children keep busy."""

    def __init__(self, pid: int) -> None:
        self.process = psutil.Process(pid)
        self.spent, self.began = self._spent(), time.perf_counter()

    def cores(self) -> float:
        return (self._spent() - self.spent) / (time.perf_counter() - self.began)

    def _spent(self) -> float:
        every = (self.process, *self.process.children(recursive=True))
        return sum(sum(one.cpu_times()[:2]) for one in every)


def main() -> None:
    slide, features, out, seconds, rounds, with_labels = sys.argv[1:]
    remember("asked_default_reader", True)
    viewer = napari.Viewer()
    viewer.window.resize(1280, 800)
    _, dock = viewer.window.add_plugin_dock_widget("napari-spt", "Train")
    viewer.open(slide, plugin="napari-spt")
    dock.draft.set(features=features, out=out, advanced={"steps": 1_000_000})
    if with_labels == "True":
        dock.data.take_labels(str(Path(features).with_name("labels.csv")))
        dock.goal.buttons["classify"].click()
    until(dock.start.isEnabled)
    live(3)
    heart, found = Heartbeat(), {"quiet": [], "busy": [], "cores": [], "heard": {}}

    def phase() -> Phase | None:
        return dock.run.last.phase if dock.run.last else None

    for number in range(int(rounds)):
        found["quiet"] += heart.measure(viewer, float(seconds))
        (dock.run.go_on if number else dock.start).click()
        until(lambda: phase() is Phase.RUNNING and dock.run.last.training is not None)
        live(3)
        study = Processor(dock.run.last.state.pid)
        found["busy"] += heart.measure(viewer, float(seconds))
        found["cores"].append(study.cores())
        began = time.perf_counter()
        dock.run.pause.click()
        until(lambda: phase() is Phase.PAUSED, 20)
        found["heard"][f"pause {number + 1}"] = time.perf_counter() - began
    dock.shut_down()
    viewer.close()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
