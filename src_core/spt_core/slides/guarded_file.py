"""A slide that a helper process opens and reads, which a damaged file may take down.

openslide ends its process on some damaged files. Then the request is made once more, to
another helper that does nothing else meanwhile: what ends that one too is to blame.
"""

import atexit
import json
import math
import os
import struct
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from threading import Condition, Lock
from typing import Any, TypeVar

import numpy as np
import openslide
from numpy.typing import NDArray
from PIL import Image

from spt_core.slides.helper_process import SECONDS, HelperLostError, HelperProcess
from spt_core.slides.openslide_helper import (
    CLOSE,
    FAILED,
    OPEN,
    PICTURE,
    READ,
    REFUSED,
    SERIES,
)

# Pixels that a helper certainly reads in the time that it has.
_PIXELS = 4 * 2**20
# A file that took so many helpers down is not asked for more.
MOST_LOST = 50
# What took too long may have waited for a disk or a network, and is asked again then.
LATE_SECONDS = 300.0
# A file of which so many regions in turn came too late is left alone for a while: each
# costs seconds.
MOST_LATE, REST_SECONDS = 3, 60.0

_Found = TypeVar("_Found")
_Region = tuple[int, int, int, int, int]


class ReaderLostError(Exception):
    """The helper did not survive a request, or did not come to an end with it.

    Attributes
    ----------
    is_late
        It did not come to an end, so that it costs seconds to ask again.
    """

    def __init__(self, how: str, *, is_late: bool = False) -> None:
        super().__init__(how)
        self.is_late = is_late

    @property
    def in_words(self) -> str:
        end = "takes too long with it" if self.is_late else "does not survive it"
        return f"the library that reads it {end}"


@dataclass(frozen=True)
class _Guilty:
    """A region that took a helper down, and until when it is not asked for again."""

    region: _Region
    how: str
    is_late: bool
    until: float


@dataclass
class _Place:
    """Where a file is open: in which helper, under which number."""

    helper: HelperProcess | None = None
    number: int = 0


class _Helpers:
    """The one helper of this process; another one follows where it was lost."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._turns = Condition()
        self._going = 0
        self._is_alone = False
        self.process: HelperProcess | None = None
        # Of files that nobody uses any more. The garbage collector adds to it, at any
        # moment and in any thread, so that it must not wait for a lock.
        self.left: deque[_Place] = deque()

    def ask(self, do: Callable[[HelperProcess], _Found]) -> _Found:
        """Do something with the helper, and once more where that was lost."""
        try:
            with self._turn(alone=False):
                return do(self._running())
        except HelperLostError as lost:
            if lost.is_late:
                raise ReaderLostError(str(lost), is_late=True) from lost
        try:
            with self._turn(alone=True):
                return do(self._running())
        except HelperLostError as lost:
            raise ReaderLostError(str(lost), is_late=lost.is_late) from lost

    @contextmanager
    def _turn(self, *, alone: bool) -> Iterator[None]:
        with self._turns:
            self._turns.wait_for(lambda: not self._is_alone)
            if alone:
                self._is_alone = True
                self._turns.wait_for(lambda: self._going == 0)
            else:
                self._going += 1
        try:
            yield
        finally:
            with self._turns:
                if alone:
                    self._is_alone = False
                else:
                    self._going -= 1
                self._turns.notify_all()

    def _running(self) -> HelperProcess:
        with self._lock:
            helper = self.process
            if helper is not None and helper.process.poll() is not None:
                helper.end()
            if helper is None or helper.is_lost:
                helper = self.process = HelperProcess()
        while self.left:
            with suppress(IndexError):
                place = self.left.popleft()
                if place.helper is helper:
                    helper.ask(CLOSE, place.number)
        return helper


_helpers = _Helpers()
_numbers = count(1)
# What took helpers down, of each file as it is.
_guilty: dict[tuple[str, int, int], list[_Guilty]] = {}
_from_parent: list[_Helpers] = []


def _after_fork() -> None:
    """A helper answers one process: this one gets its own."""
    global _helpers
    if _helpers.process is not None:
        atexit.unregister(_helpers.process.end)
    _from_parent.append(_helpers)  # collecting it would end the parent's
    _helpers = _Helpers()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def end_helper() -> None:
    """End the helper; the next request starts another."""
    helper = _helpers.process
    if helper is not None:
        helper.end()


def series_of(path: Path) -> str | None:
    """The series of a DICOM file; None where openslide does not open it."""
    how, answer = _helpers.ask(lambda helper: helper.ask(SERIES, words=str(path)))
    return None if how in (REFUSED, FAILED) else json.loads(answer.tobytes())


class GuardedFile:
    """As ``OpenSlideFile``, in the helper; safe to read from many threads.

    All raise ReaderLostError where the helper is lost by what it was asked.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        state = path.stat()
        self._key = (str(path), state.st_mtime_ns, state.st_size)
        self._lock = Lock()
        self._place = _Place()
        self._late, self._rests_until = 0, 0.0
        self._facts: dict[str, Any] | None = None
        _helpers.ask(self._in)
        facts: dict[str, Any] = self._facts or {}
        self.properties: dict[str, str] = facts["properties"]
        self.level_dimensions = _pairs(facts["level_dimensions"])
        self.level_downsamples: tuple[float, ...] = tuple(facts["level_downsamples"])
        self.picture_names: tuple[str, ...] = tuple(facts["picture_names"])
        # Slides share this file and are garbage-collected without being closed.
        weakref.finalize(self, _helpers.left.append, self._place).atexit = False

    def read(self, level: int, x: int, y: int, w: int, h: int) -> NDArray[np.uint8]:
        region = (level, x, y, w, h)
        now = time.monotonic()
        guilty = [one for one in _guilty.get(self._key, ()) if now < one.until]
        for one in guilty:
            if _holds(region, one.region):
                raise ReaderLostError(one.how, is_late=one.is_late)
        if len(guilty) >= MOST_LOST:
            raise ReaderLostError("it was lost too often by this file")
        if self._late >= MOST_LATE and now < self._rests_until:
            raise ReaderLostError("it took too long", is_late=True)
        seconds = SECONDS * max(1.0, w * h / _PIXELS)
        try:
            how, answer = _helpers.ask(
                lambda helper: helper.ask(
                    READ, self._in(helper), region, seconds=seconds
                )
            )
        except ReaderLostError as lost:
            now = time.monotonic()
            until = now + LATE_SECONDS if lost.is_late else math.inf
            one = _Guilty(region, str(lost), lost.is_late, until)
            _guilty.setdefault(self._key, []).append(one)
            if lost.is_late:
                self._late += 1
                self._rests_until = now + REST_SECONDS
            raise
        self._late = 0
        _check(how, answer)
        return answer

    def picture(self, name: str) -> Image.Image:
        how, answer = _helpers.ask(
            lambda helper: helper.ask(PICTURE, self._in(helper), words=name)
        )
        _check(how, answer)
        found = answer.tobytes()
        size = struct.unpack_from("<2q", found)
        return Image.frombytes("RGBA", size, found[16:])

    def close(self) -> None:
        with self._lock:
            helper, self._place.helper = self._place.helper, None
            if helper is not None and not helper.is_lost:
                with suppress(HelperLostError):
                    helper.ask(CLOSE, self._place.number)

    def _in(self, helper: HelperProcess) -> int:
        """The file's number in a helper, which opens it where it is new to it."""
        with self._lock:
            if self._place.helper is helper:
                return self._place.number
            number = next(_numbers)
            how, answer = helper.ask(OPEN, number, words=str(self.path))
            _check(how, answer)
            facts = json.loads(answer.tobytes())
            sizes = facts["level_dimensions"]
            if self._facts is not None and sizes != self._facts["level_dimensions"]:
                raise openslide.OpenSlideError("the file is another one now")
            self._facts = facts
            self._place.helper, self._place.number = helper, number
            return number


def _check(how: int, answer: NDArray[np.uint8]) -> None:
    """Raise what the helper met, as openslide would have here."""
    if how == REFUSED:
        raise openslide.OpenSlideUnsupportedFormatError("not a slide to openslide")
    if how == FAILED:
        raise openslide.OpenSlideError(answer.tobytes().decode(errors="replace"))


def _pairs(sizes: list[list[int]]) -> tuple[tuple[int, int], ...]:
    return tuple((width, height) for width, height in sizes)


def _holds(region: _Region, part: _Region) -> bool:
    level, x, y, w, h = region
    its_level, left, top, width, height = part
    return (
        level == its_level
        and x <= left
        and y <= top
        and left + width <= x + w
        and top + height <= y + h
    )
