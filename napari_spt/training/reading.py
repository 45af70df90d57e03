"""What a study's folder says of how it goes; read in a thread, without a window."""

import shutil
import time
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from spt_core.engine.study_queue import QueuedStudy, StudyQueue
from spt_core.errors import InputError
from spt_core.studies.study_folder import StudyFolder, StudyState
from spt_core.training.alarms import COLLAPSED_SHARE, COLLAPSED_SPREAD

MOST_NOTES = 30
FULL_BYTES = 20_000_000
MOST = 1e30
# What a process may take to begin.
START_SECONDS = 20.0
# Of slides, and of patches.
EPOCHS = ("epoch", "patchepoch")
_AT_WORK = ("running", "pausing", "stopping", "discarding")


class Phase(StrEnum):
    """How a study stands."""

    NEW = "new"
    WAITING = "waiting"
    STARTING = "starting"
    RUNNING = "running"
    PAUSING = "pausing"
    STOPPING = "stopping"
    DISCARDING = "discarding"
    PAUSED = "paused"
    STOPPED = "stopped"
    DISCARDED = "discarded"
    FAILED = "failed"
    FINISHED = "finished"
    LOST = "lost"

    @property
    def is_at_work(self) -> bool:
        return self in (Phase.WAITING, Phase.STARTING, *map(Phase, _AT_WORK))


Points = list[tuple[float, float]]  # (step, value)


@dataclass
class Training:
    """The curves of one training.

    Attributes
    ----------
    cell
        Of one that measures; "" of the model itself.
    rate, unit
        So many of what is learned from, in a second.
    alarm
        ``notlearning`` or ``collapsed``, raised by the training itself.
    """

    stage: str
    cell: str
    loss: Points = field(default_factory=list)
    held_out: Points = field(default_factory=list)
    rank: Points = field(default_factory=list)
    spread: Points = field(default_factory=list)
    of_class: Points = field(default_factory=list)
    of_site: Points = field(default_factory=list)
    rate: float | None = None
    unit: str = "slides"
    alarm: str = ""

    @property
    def best(self) -> tuple[float, float] | None:
        """The lowest point: of what was held out, else of the loss."""
        points = self.held_out or self.loss
        return min(points, key=lambda point: point[1]) if points else None

    @property
    def has_collapsed(self) -> bool:
        if self.alarm == "collapsed":
            return True
        widest = max((value for _, value in self.spread), default=0.0)
        least = max(COLLAPSED_SPREAD, COLLAPSED_SHARE * widest)
        return bool(self.spread) and self.spread[-1][1] < least

    def take(self, event: dict[str, Any]) -> None:
        kind, step = event["event"], event.get("step")
        if kind in ("notlearning", "collapsed"):
            self.alarm = kind
        step = _number(step)
        if step is None:
            return
        if kind in EPOCHS:
            _add(self.loss, step, event.get("loss"))
            for unit in ("slides", "patches"):
                rate = _number(event.get(f"{unit}_per_second"))
                if rate is not None:
                    self.rate, self.unit = rate, unit
        elif kind == "validation":
            _add(self.held_out, step, event.get("loss"))
            _add(self.rank, step, event.get("effective_rank"))
            _add(self.spread, step, event.get("spread"))
            _add(self.of_class, step, event.get("knn"))
            site = event.get("site_knn", event.get("knn_site"))
            _add(self.of_site, step, site)


def _number(value: Any) -> float | None:
    """What a file states, where that is a number that can be drawn."""
    if not isinstance(value, int | float):
        return None
    # Whole numbers in JSON have no end, and those of a computer have.
    return float(value) if abs(value) < MOST else None  # nor is NaN


def _add(points: Points, step: float, found: Any) -> None:
    value = _number(found)
    if value is None:
        return
    if points and step <= points[-1][0]:  # a run that was resumed did some steps again
        points[:] = [point for point in points if point[0] < step]
    points.append((step, value))


@dataclass(frozen=True)
class Look:
    """How a study stands at one moment."""

    path: Path
    phase: Phase
    state: StudyState | None
    trainings: tuple[Training, ...]
    notes: tuple[str, ...]
    seconds_left: float | None
    says: str
    is_full: bool
    before: int  # studies that come first
    studies: tuple[QueuedStudy, ...]
    has_model: bool

    @property
    def training(self) -> Training | None:
        """The one that goes on now, or was last."""
        return self.trainings[-1] if self.trainings else None


class StudyReader:
    """Reads a study's folder again and again, and only what is new of it."""

    def __init__(self, path: Path, queue: StudyQueue) -> None:
        self.folder, self.queue = StudyFolder(path), queue
        self._forget()

    def _forget(self) -> None:
        self._offset = 0
        self._run: Any = None
        self._trainings: dict[tuple[str, str], Training] = {}
        self._notes: list[str] = []
        self._seconds: dict[str, float] = {}
        self._ended = 0.0  # when the last of them was

    def look(self) -> Look:
        studies = self.queue.studies()
        try:
            state = self.folder.state()
        except InputError:
            state = None
        held = self.folder.is_held()
        mine = next(
            (one for one in studies if Path(one.path) == self.folder.path), None
        )
        waiting = [Path(one.path) for one in studies if one.wanted]
        is_wanted = self.folder.path in waiting and not _has_ended(state, mine)
        before = waiting.index(self.folder.path) if is_wanted else 0
        phase = phase_of(
            state,
            held=held,
            wanted=is_wanted,
            served=is_wanted and self._is_served(mine),
            before=before,
        )
        self._read()
        return Look(
            self.folder.path,
            phase,
            state,
            tuple(self._trainings.values()),
            tuple(self._notes[-MOST_NOTES:]),
            self._left(state) if phase is Phase.RUNNING else None,
            mine.says if mine else "",
            _is_full(self.folder.path),
            before,
            tuple(studies),
            self.folder.model.exists() or self.folder.encoder.exists(),
        )

    def _is_served(self, mine: QueuedStudy | None) -> bool:
        """Whether somebody does it, or is just being started to."""
        is_new = mine is not None and time.time() - mine.added < START_SECONDS
        return is_new or self.queue.is_served()

    def _read(self) -> None:
        events = self.folder.events
        if events.exists() and events.stat().st_size < self._offset:
            self._forget()
        found, self._offset = self.folder.read_events(self._offset)
        for event in found:
            self._take(event)

    def _take(self, event: dict[str, Any]) -> None:
        kind, run = event.get("event"), event.get("run")
        if run and run != self._run:
            if self._run:
                self._trainings.clear()
                self._seconds.clear()
            self._run = run
        cell = str(event.get("cell") or "")
        if kind in (*EPOCHS, "validation", "notlearning", "collapsed"):
            key = (str(event.get("stage")), cell)
            training = self._trainings.pop(key, None) or Training(*key)
            training.take(event)
            self._trainings[key] = training  # the latest is the last
        elif kind == "celldone":
            self._seconds[cell] = _number(event.get("seconds")) or 0.0
            self._ended = _number(event.get("when")) or self._ended
        elif kind == "note" and event.get("message"):
            self._notes.append(str(event["message"]))

    def _left(self, state: StudyState | None) -> float | None:
        """Seconds until the end, as far as it can be known."""
        if state is None or not state.rate or not state.total:
            return None
        left = max(0, state.total - state.done) / state.rate
        if state.stage == "evaluate":
            # Quick ones come first: one that takes longer than they did says more.
            since = state.when - max(self._ended, state.began)
            left = max(left, (state.total - state.done) * since)
            # The model itself takes about as long as the longest that measured.
            left += max(self._seconds.values(), default=0.0)
        return left


def phase_of(
    state: StudyState | None, *, held: bool, wanted: bool, served: bool, before: int
) -> Phase:
    at_work = state is not None and state.status in _AT_WORK
    # Between the process that was broken off and the one that hands the model over.
    if state and state.status == "stopping":
        held = held or time.time() - state.when < START_SECONDS
    if held:
        return Phase(state.status) if state and at_work else Phase.STARTING
    if wanted and served:
        return Phase.WAITING if before else Phase.STARTING
    if wanted or at_work:
        return Phase.LOST
    return Phase(state.status) if state else Phase.NEW


def _has_ended(state: StudyState | None, mine: QueuedStudy | None) -> bool:
    """Whether it came to its end, though the process that starts studies was killed."""
    if state is None or mine is None or state.status in _AT_WORK:
        return False
    return state.when > mine.added


def growing_run(look: Look) -> Path | None:
    """The folder of the training of the model itself; None before it."""
    if look.state is None or not look.state.run:
        return None
    run = StudyFolder(look.path).run(look.state.run)
    found = [run / name for name in ("model", "before") if (run / name).is_dir()]
    return found[0] if found else None


def _is_full(path: Path) -> bool:
    there = next(one for one in (path, *path.parents) if one.exists())
    return shutil.disk_usage(there).free < FULL_BYTES
