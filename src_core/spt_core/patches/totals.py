"""How far several processes are with the slides of one run."""

import time
from collections.abc import Iterator
from typing import Any

from spt_core.events import Note, Progress
from spt_core.patches.settings import SlideStarted


class Totals:
    """Adds up what several workers report of their slides."""

    def __init__(self, slides: int) -> None:
        self.slides = slides
        self.ended = 0
        self._done: dict[str, int] = {}
        self._total: dict[str, int] = {}
        self._first: tuple[float, int] | None = None

    def heard(self, report: dict[str, Any]) -> Iterator[Note | Progress | SlideStarted]:
        name = report["name"]
        if "note" in report:
            yield Note(report["note"])
        if "started" in report:
            total, done = report["started"]
            yield SlideStarted(name, total, done)
            self._total[name], self._done[name] = total, done
        if "done" in report:
            self._done[name] = report["done"]
        if not self._total:
            return
        now, done = time.perf_counter(), sum(self._done.values())
        if self._first is None:
            self._first = (now, done)
        rate = (done - self._first[1]) / max(now - self._first[0], 1e-6)
        known = sum(self._total.values())
        unknown = max(0, self.slides - max(len(self._total), self.ended))
        total = max(done, known + unknown * known // len(self._total))
        message = f"{self.ended} of {self.slides} slides ended"
        yield Progress(done, total, rate or None, message)
