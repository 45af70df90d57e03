"""A few synthetic slides with labels, to try everything with."""

import os
from pathlib import Path

from platformdirs import user_data_dir
from qtpy.QtCore import QObject, Signal

from napari_spt.training.checking import Checker

# By this number each kind of tumour has four patients, of three sites.
SLIDES, SIZE, SEED = 18, 4096, 1


def sample_folder() -> Path:
    """Where they are painted, once; NAPARI_SPT_SAMPLE may name another folder."""
    own = os.environ.get("NAPARI_SPT_SAMPLE")
    return Path(own or Path(user_data_dir("napari-spt", False)) / "sample-cohort")


class SampleMaker(QObject):
    """Paints the sample in a process of its own; ``done`` brings its folder, or why
    there is none."""

    said = Signal(str)
    done = Signal(str, str)

    def __init__(self, parent: QObject) -> None:
        super().__init__(parent)
        self.process = Checker(self)
        self.process.found.connect(self._on_event)
        self.process.ended.connect(self._on_ended)

    def make(self) -> None:
        folder = sample_folder()
        if (folder / "labels.csv").exists():
            self.done.emit(str(folder), "")
            return
        self.said.emit("Painting the slides…")
        size = ["--slides", str(SLIDES), "--size", str(SIZE), "--sites", "3"]
        size += ["--seed", str(SEED)]
        self.process.run(["sample", "--json", str(folder), *size])

    def stop(self) -> None:
        self.process.close()

    def _on_event(self, event: object) -> None:
        if isinstance(event, dict) and event.get("event") == "progress":
            share = event["done"] / max(event["total"], 1)
            self.said.emit(f"Painting the slides… {share:.0%}")

    def _on_ended(self, said: str) -> None:
        folder = sample_folder()
        if not said and not (folder / "labels.csv").exists():
            said = "The sample could not be painted."
        self.done.emit("" if said else str(folder), said)
