"""What a study leaves to be watched by: state.json and events.jsonl; without names."""

import json
import os
import re
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any

from spt_core.events import Note, Progress, event_record
from spt_core.files import in_place
from spt_core.patches.settings import SlideResult
from spt_core.studies.study_folder import Stage, Status, StudyFolder, StudyState
from spt_core.training.alarms import Collapsed, NotLearning

STATE_SECONDS = 1.0
# Shorter ones are numbers, which sentences are full of, and say nothing of anybody.
_LEAST_NAME = 3
# Fields that hold our own words.
_OURS = ("event", "status", "stage", "cell")
_UNREAD = "The labels are not read yet, or cannot be: what was said is not kept here."


class Recorder:
    """Writes the state now and then, and every event that is no mere progress.

    Thread-safe: a request is acknowledged by a thread of its own.
    """

    def __init__(self, folder: StudyFolder, stages: Iterable[Stage]) -> None:
        self.folder = folder
        self.stages = tuple(stage.value for stage in stages)
        self.stage, self.status = self.stages[0], Status.RUNNING
        self.message, self.request, self.run = "", "", 0
        self.done = self.total = 0
        self.rate: float | None = None
        self.hides: re.Pattern[str] | None = None
        self.may_speak = True
        self.began, self.written, self.listed = time.time(), 0.0, 0.0
        self.lock = threading.Lock()
        _end_cut_line(folder)

    @classmethod
    def again(cls, folder: StudyFolder, state: StudyState) -> "Recorder":
        """Of a study that is as it was left."""
        recorder = cls(folder, map(Stage, state.stages))
        recorder.stage, recorder.run = state.stage, state.run
        recorder.done, recorder.total = state.done, state.total
        recorder.began = state.began
        return recorder

    def hide(self, names: Iterable[str]) -> None:
        """Patients whose names are written nowhere."""
        words = sorted({n for n in names if len(n) >= _LEAST_NAME}, key=len)
        found = "|".join(re.escape(word) for word in reversed(words))
        self.hides = (
            re.compile(f"(?<![A-Za-z0-9])(?:{found})(?![A-Za-z0-9])") if found else None
        )
        self.may_speak = True

    def enter(self, stage: Stage) -> None:
        self.stage, self.message = stage.value, ""
        self.done = self.total = 0
        self.rate = None
        self._append({"event": "stage"})
        self.write()

    def take(self, event: Any, cell: str = "") -> None:
        """Record one event."""
        where = {"cell": cell} if cell else {}
        now = time.monotonic()
        if isinstance(event, Progress):
            if not cell:
                self.done, self.total, self.rate = event.done, event.total, event.rate
                self.message = self._clean(event.message)
            if now - self.listed > STATE_SECONDS:
                self.listed = now
                self._append({**event_record(event), **where})
        elif isinstance(event, Mapping):  # out of another process
            self._append({**event, **where})
        elif isinstance(event, NotLearning | Collapsed):
            self._append({**event_record(event), **where})
        elif isinstance(event, Note):
            self._append({"event": "note", "message": event.message, **where})
        elif isinstance(event, SlideResult):
            self._append(_of_slide(event))
        elif event is not None:
            self._append({**event_record(event), **where})
        if now - self.written > STATE_SECONDS:
            self.write()

    def beat(self, cell: str) -> None:
        """A cell is at work."""
        self.message = self._clean(cell)
        if time.monotonic() - self.written > STATE_SECONDS:
            self.write()

    def write(self, status: Status | None = None, message: str | None = None) -> None:
        with self.lock:
            self.status = status or self.status
            self.message = self.message if message is None else self._clean(message)
            self.written = time.monotonic()
            self.folder.write_state(
                StudyState(
                    self.status.value,
                    self.stage,
                    self.stages,
                    self.message,
                    self.done,
                    self.total,
                    self.rate,
                    self.run,
                    os.getpid(),
                    self.request,
                    self.began,
                    time.time(),
                )
            )

    def end(self, status: Status, message: str = "") -> None:
        self._append({"event": "end", "status": status.value, "message": message})
        self.write(status, message)

    def _append(self, record: dict[str, Any]) -> None:
        plain = {
            name: self._clean(value)
            if isinstance(value, str) and name not in _OURS
            else value
            for name, value in record.items()
        }
        head = {"when": round(time.time(), 3), "stage": self.stage, "run": self.run}
        line = json.dumps({**head, **plain}, ensure_ascii=False, default=str)
        with self.lock, open(self.folder.events, "ab", opener=in_place) as file:
            file.write(line.encode() + b"\n")

    def _clean(self, text: str) -> str:
        if not self.may_speak:
            return _UNREAD if text else ""
        return self.hides.sub("(a patient)", text) if self.hides else text


def _of_slide(ended: SlideResult) -> dict[str, Any]:
    return {
        "event": "slide",
        "slide": ended.name,
        "status": ended.status,
        "patches": ended.patches,
        "seconds": round(ended.seconds, 2),
        "message": ended.reason,
    }


def _end_cut_line(folder: StudyFolder) -> None:
    """Begin on a line of one's own where a kill cut the last."""
    path = folder.events
    if not path.exists() or path.stat().st_size == 0:
        return
    with open(path, "r+b", opener=in_place) as file:
        file.seek(-1, os.SEEK_END)
        if file.read(1) != b"\n":
            file.write(b"\n")
