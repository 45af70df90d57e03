"""The folder of a training run: what is in it, written so that a kill harms nothing.

::

    config.yaml        what was asked
    state.json         running, finished, stopped or failed; by whom, how far
    metrics.csv        one row per epoch
    best.safetensors   the best model so far, and the last
    last.safetensors
    checkpoint.pt      all that is needed to go on
    curve.png          the learning curve
    growth/            how slides came to lie, at some steps (slide models)
    patients.key       the key of the patients' HMACs; keep it, give it to nobody
"""

import csv
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from spt_core.errors import InputError
from spt_core.files import written_whole
from spt_core.patients_key import KEY_FILE, new_key, read_key, write_key
from spt_core.training.curve import draw_curves


class Writable(Protocol):
    """Settings that can be written down."""

    def write(self, path: Path) -> None: ...


@dataclass(frozen=True)
class RunFolder:
    """
    Attributes
    ----------
    command
        By which the run is resumed.
    last_name
        What the last model's file is called.
    """

    path: Path
    command: str = "spt train"
    last_name: str = "last.safetensors"

    @property
    def config(self) -> Path:
        return self.path / "config.yaml"

    @property
    def checkpoint(self) -> Path:
        return self.path / "checkpoint.pt"

    @property
    def best(self) -> Path:
        return self.path / "best.safetensors"

    @property
    def last(self) -> Path:
        return self.path / self.last_name

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.csv"

    def refuse_if_begun(self) -> None:
        if self.config.exists():
            raise InputError(
                f"{self.path} already holds a run. Go on with it by '{self.command} "
                f"--resume {self.path}', or choose another --out."
            )

    def begin(self, settings: Writable) -> None:
        """Start a run here; refuse a folder that already holds one."""
        self.refuse_if_begun()
        self.path.mkdir(parents=True, exist_ok=True)
        with written_whole(self.config) as temporary:
            settings.write(temporary)

    def write_state(
        self, status: str, step: int, steps: int, message: str = ""
    ) -> None:
        state = {
            "status": status,
            "pid": os.getpid(),
            "step": step,
            "steps": steps,
            "message": message,
            "time": time.time(),
        }
        with written_whole(self.path / "state.json") as temporary:
            temporary.write_text(json.dumps(state), encoding="utf-8")

    def patient_key(self) -> bytes:
        """The run's own random key, made when first asked for."""
        known = key_in(self.path)
        if known is None:
            known = new_key()
            write_key(self.path / KEY_FILE, known)
        return known

    def take_key(self, other: Path) -> bool:
        """Use another run's key where this one has none yet; whether they are the same.

        Patients of a model that this one begins from are known by that key alone.
        """
        theirs = key_in(other)
        if theirs is None:
            return False
        if key_in(self.path) is None:
            write_key(self.path / KEY_FILE, theirs)
        return self.patient_key() == theirs

    def save_checkpoint(self, content: dict[str, Any]) -> None:
        with written_whole(self.checkpoint) as temporary:
            torch.save(content, temporary)

    def load_checkpoint(self, device: torch.device) -> dict[str, Any] | None:
        if not self.checkpoint.exists():
            return None
        return torch.load(self.checkpoint, map_location=device, weights_only=True)

    def add_metrics(self, row: dict[str, Any]) -> None:
        """Add a row; the first one's names become the header."""
        columns = self._metrics_columns()
        with self.metrics.open("a", newline="", encoding="utf-8") as file:
            # A run that was begun by an older version lacks columns.
            writer = csv.DictWriter(file, columns or list(row), extrasaction="ignore")
            if not columns:
                writer.writeheader()
            writer.writerow(row)

    def _metrics_columns(self) -> list[str]:
        if not self.metrics.exists():
            return []
        with self.metrics.open(newline="", encoding="utf-8") as file:
            return next(csv.reader(file), [])

    def read_metrics(self) -> list[dict[str, str]]:
        if not self.metrics.exists():
            return []
        with self.metrics.open(newline="", encoding="utf-8") as file:
            # A killed process may leave half a line at the end.
            return [row for row in csv.DictReader(file) if None not in row.values()]

    def drop_metrics_after(self, step: int) -> None:
        """Forget rows of steps that a resumed run will take again."""
        rows = [row for row in self.read_metrics() if int(row["step"]) <= step]
        self.metrics.unlink(missing_ok=True)
        for row in rows:
            self.add_metrics(row)

    def draw_curve(self) -> None:
        rows = self.read_metrics()
        curves = {}
        for name in ("loss", "knn", "site_knn", "effective_rank"):
            points = [(int(r["step"]), float(r[name])) for r in rows if r.get(name)]
            curves[name] = ([step for step, _ in points], [v for _, v in points])
        draw_curves(self.path / "curve.png", curves)


def key_in(folder: Path) -> bytes | None:
    """The key of the patients of the run in a folder, where there is one."""
    path = folder / KEY_FILE
    return read_key(path) if path.exists() else None
