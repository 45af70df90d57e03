"""Taking snapshots while a model trains: from what is looked at anyway.

Nothing is drawn by chance and nothing is embedded for it, so a run that takes
snapshots, or none, has the same weights bit for bit.
"""

import logging
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from spt_core.learning.growth_file import (
    MOST,
    Snapshot,
    snapshot_steps,
    write_snapshot,
)
from spt_core.learning.monitor import SlideMonitor

log = logging.getLogger(__name__)

# The share of a run's time that snapshots may take.
BUDGET = 0.015


class Growth:
    """Writes a snapshot now and then.

    Parameters
    ----------
    run
        The folder of the run.
    steps
        That the run will take.
    """

    def __init__(self, run: Path, monitor: SlideMonitor, steps: int) -> None:
        self.run, self.monitor, self.steps = run, monitor, steps
        self._gap = steps / MOST
        self._began = time.monotonic()
        self._spent = 0.0

    def take(self, step: int) -> None:
        """Write a snapshot of what the monitor has just looked at, where one is due.

        A disk that is full stops no training.
        """
        began = time.monotonic()
        try:
            if self._is_due(step, began):
                write_snapshot(self.run, self._snapshot(step))
        except OSError as error:
            log.warning("A snapshot of step %s was not written: %s", step, error)
        self._spent += time.monotonic() - began

    def _is_due(self, step: int, now: float) -> bool:
        seen = self.monitor.seen
        if seen is None or len(seen.h) < 2 or not np.isfinite(seen.h).all():
            return False
        before = [one for one in snapshot_steps(self.run) if one < step]
        if before and step < self.steps and step - before[-1] < self._gap:
            return False
        is_end = not before or step >= self.steps
        return is_end or self._spent <= BUDGET * (now - self._began)

    def _snapshot(self, step: int) -> Snapshot:
        monitor, seen = self.monitor, self.monitor.seen
        if seen is None:
            raise ValueError("Nothing was looked at yet.")
        attention = seen.attention / max(float(seen.attention.mean()), 1e-12)
        return Snapshot(
            step,
            monitor.pseudonyms,
            two_directions(seen.h),
            monitor.y,
            tuple(monitor.cohort.classes),
            monitor.is_held_out,
            monitor.attended,
            seen.p,
            attention,
        )


def two_directions(h: NDArray[np.float32]) -> NDArray[np.float32]:
    """Embeddings (n, dim) of length 1 by their two main directions, (n, 2)."""
    unit = h / np.maximum(np.linalg.norm(h, axis=1, keepdims=True), 1e-12)
    centred = (unit - unit.mean(axis=0)).astype(np.float64)
    # By the slides, which are few, and not by the dimensions.
    values, vectors = np.linalg.eigh(centred @ centred.T)
    largest = vectors[:, ::-1][:, :2] * np.sqrt(np.maximum(values[::-1][:2], 0))
    return largest.astype(np.float32)
