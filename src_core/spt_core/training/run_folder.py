"""The folder of a training run: what is in it, written so that a kill harms nothing.

::

    config.yaml        what was asked
    state.json         running, finished, stopped or failed; by whom, how far
    metrics.csv        one row per epoch
    best.safetensors   the best model so far, and the last
    last.safetensors
    checkpoint.pt      all that is needed to go on; checkpoint-before.pt is the last but
                       one, checkpoint.sha256 has the sums of both and earlier ones
    curve.png          the learning curve
    growth/            how slides came to lie, at some steps (slide models)
    patients.key       the key of the patients' HMACs; keep it, give it to nobody
"""

import csv
import hashlib
import json
import logging
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from math import isfinite, nan
from pathlib import Path
from typing import Any, Protocol

import torch

from spt_core.csv_files import write_csv, write_lines
from spt_core.errors import InputError
from spt_core.files import (
    folder_to_disk,
    held_by_one,
    in_place,
    refuse_links,
    remove_left,
    written_whole,
)
from spt_core.patients_key import KEY_FILE, new_key, read_key, write_key
from spt_core.training.curve import draw_curves

log = logging.getLogger(__name__)

LOCK_FILE = ".lock"
# A sum is listed before its checkpoint has its name: a cut between the two leaves one
# too many. Were only two kept, a second cut there would lose the one that counts.
_SUMS_KEPT = 16
_SUM = re.compile("[0-9a-f]{64}")
# A row an epoch: no run has so many, and a reader of more never ends.
_MOST_ROWS = 2**17


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

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other processes out; one that has died holds nothing."""
        with held_by_one(self.path / LOCK_FILE) as is_ours:
            if not is_ours:
                raise InputError(
                    f"Another process trains in {self.path}. Wait until it ends, or "
                    "choose another --out."
                )
            growth = self.path / "growth"
            refuse_links(growth)
            remove_left(self.path, growth)
            yield

    @property
    def is_begun(self) -> bool:
        """Whether there is a checkpoint to go on from."""
        return self.checkpoint.exists() or self._before.exists()

    @property
    def _before(self) -> Path:
        return self.path / "checkpoint-before.pt"

    @property
    def _sums(self) -> Path:
        return self.path / "checkpoint.sha256"

    def save_checkpoint(self, content: dict[str, Any]) -> None:
        """Write a checkpoint; the one before it is kept, should this one be damaged."""
        with written_whole(self.checkpoint) as temporary:
            torch.save(content, temporary)
            known = [*self._known_sums(), _sha256(temporary)][-_SUMS_KEPT:]
            with written_whole(self._sums) as listed:
                listed.write_text("\n".join(known) + "\n", encoding="ascii")
            if self.checkpoint.exists():
                os.replace(self.checkpoint, self._before)

    def load_checkpoint(self, device: torch.device) -> dict[str, Any] | None:
        """The last checkpoint that is whole.

        Raises
        ------
        InputError
            Where there are some and none is.
        """
        known = self._known_sums()
        found = [path for path in (self.checkpoint, self._before) if path.exists()]
        for path in found:
            if known and _sha256(path) not in known:
                log.warning("%s is damaged.", path)
                continue
            try:
                content = torch.load(path, map_location=device, weights_only=True)
            # Each layer of the format has its own errors.
            except Exception as error:  # noqa: BLE001
                log.warning("%s cannot be read: %s", path, error)
                continue
            if isinstance(content, dict) and "step" in content:
                return content
        if found:
            raise InputError(
                f"The checkpoints in {self.path} are damaged, so the run cannot go on. "
                "Its models are as they were. Start anew with another --out."
            )
        return None

    def _known_sums(self) -> list[str]:
        """Of the checkpoints; none in folders of earlier versions.

        A list that is damaged itself says nothing against them.
        """
        try:
            words = self._sums.read_text(encoding="ascii").split()
        except (OSError, ValueError):
            return []
        return [word for word in words if _SUM.fullmatch(word)]

    def add_metrics(self, row: dict[str, Any]) -> None:
        """Add a row; the first one's names become the header."""
        columns = self._metrics_columns()
        with open(
            self.metrics, "a", newline="", encoding="utf-8", opener=in_place
        ) as file:
            is_new = not columns
            if is_new:
                columns = list(row)
                write_lines(file, [columns])
            # A run that was begun by an older version lacks columns. As text, a loss
            # that is no number is written too.
            found = [row.get(name) for name in columns]
            write_lines(file, [["" if one is None else str(one) for one in found]])
            # Before the checkpoint, after which no step is taken for this row again.
            file.flush()
            os.fsync(file.fileno())
        if is_new:
            folder_to_disk(self.path)

    def _metrics_columns(self) -> list[str]:
        if not self.metrics.exists():
            return []
        with self.metrics.open(newline="", encoding="utf-8") as file:
            return next(csv.reader(file), [])

    def read_metrics(self) -> list[dict[str, str]]:
        if not self.metrics.exists():
            return []
        with self.metrics.open(newline="", encoding="utf-8", errors="replace") as file:
            # A killed process may leave half a line at the end, a bad disk anything.
            try:
                rows = islice(csv.DictReader(file), _MOST_ROWS)
                return [row for row in rows if _is_whole(row)]
            except csv.Error:
                return []

    def drop_metrics_after(self, step: int) -> None:
        """Forget rows of steps that a resumed run will take again."""
        rows = [row for row in self.read_metrics() if int(row["step"]) <= step]
        if not rows:
            self.metrics.unlink(missing_ok=True)
            return
        write_csv(self.metrics, list(rows[0]), [list(row.values()) for row in rows])

    def draw_curve(self) -> None:
        rows = self.read_metrics()
        curves = {}
        for name in ("loss", "knn", "site_knn", "knn_gap", "effective_rank"):
            points = [(int(r["step"]), _number(r.get(name))) for r in rows]
            known = [(step, value) for step, value in points if isfinite(value)]
            curves[name] = ([step for step, _ in known], [v for _, v in known])
        draw_curves(self.path / "curve.png", curves)


def _is_whole(row: dict[str, Any]) -> bool:
    if None in row or None in row.values():
        return False
    try:
        return int(row["step"]) >= 0 and isfinite(float(row["loss"] or 0))
    except (KeyError, ValueError):
        return False


def _number(text: str | None) -> float:
    """What a cell states; not finite where that is no number."""
    try:
        return float(text or "nan")
    except ValueError:
        return nan


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def key_in(folder: Path) -> bytes | None:
    """The key of the patients of the run in a folder, where there is one."""
    path = folder / KEY_FILE
    return read_key(path) if path.exists() else None
