"""This process's end of the helper that reads slides (``openslide_helper.py``)."""

import atexit
import json
import mmap
import os
import queue
import secrets
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spt_core.slides.openslide_helper import (
    ANSWER,
    DONE,
    MORE,
    READY,
    REQUEST,
    SLOT_BYTES,
)

SCRIPT = Path(__file__).with_name("openslide_helper.py")
# So many regions are read at a time.
SLOTS = min(8, max(2, os.cpu_count() or 1))
# A request that is not answered by then holds up its reader.
SECONDS = 10.0
_START_SECONDS = 60.0
_LOOK_EVERY = 0.5
# The C library of Linux keeps so much memory: to ask the system for each region's anew
# can take as long as to decode it.
_KEEPS_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": str(64 * 2**20),
    "MALLOC_TRIM_THRESHOLD_": str(128 * 2**20),
}


class HelperLostError(Exception):
    """The helper ended while it was asked.

    Attributes
    ----------
    is_late
        It was ended because this request took too long.
    """

    def __init__(self, how: str, *, is_late: bool = False) -> None:
        super().__init__(how)
        self.is_late = is_late


@dataclass(eq=False)
class _Waiting:
    seconds: float
    until: float
    bell: Any = field(default_factory=Lock)
    answer: tuple[int, int] | None = None
    is_late: bool = False
    is_over: bool = False


class HelperProcess:
    """One helper, asked from any thread.

    Of the threads that wait for answers one listens, for all of them: so a request is
    answered without a detour by another thread where it is the only one.
    """

    def __init__(self) -> None:
        memory, name, descriptors = _shared_memory(SLOTS * SLOT_BYTES)
        try:
            self.process = subprocess.Popen(
                # In no module's folder: a file beside it must not be imported.
                [sys.executable, "-P", str(SCRIPT), name, str(SLOTS)],
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                pass_fds=descriptors,
                env={**_KEEPS_MEMORY, **os.environ},
                creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
            )
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        self.is_lost = False
        self._slots_memory = np.frombuffer(memory, np.uint8).reshape(SLOTS, SLOT_BYTES)
        self._lock = Lock()
        # The one used last first: its memory is still in the processor's cache.
        self._slots: queue.LifoQueue[int] = queue.LifoQueue()
        for slot in range(SLOTS):
            self._slots.put(slot)
        self._waiting: dict[int, _Waiting] = {}
        self._is_heard = False
        self._is_ready = False
        self._is_busy = Event()
        Thread(target=self._watch, name="slide helper", daemon=True).start()
        atexit.register(self.end)

    def ask(
        self,
        what: int,
        file: int = 0,
        numbers: tuple[int, ...] = (),
        *,
        words: Any = None,
        seconds: float = SECONDS,
    ) -> tuple[int, NDArray[np.uint8]]:
        """How a request ended, and its answer's bytes."""
        slot = self._slots.get()
        try:
            if words is not None:
                text = json.dumps(words).encode()
                self._slots_memory[slot, : len(text)] = np.frombuffer(text, np.uint8)
                numbers = (len(text),)
            how, size = self._exchange(slot, what, file, numbers, seconds)
            answer = np.empty(size, np.uint8)
            place = 0
            while True:
                part = answer[place : place + SLOT_BYTES]
                part[:] = self._slots_memory[slot, : part.size]
                place += part.size
                if place >= size:
                    return how, answer
                if self._exchange(slot, MORE, file, (place,), seconds)[0] != DONE:
                    raise HelperLostError("its answer is incomplete")
        finally:
            self._slots.put(slot)

    def end(self) -> None:
        """End it at once; who still waits is told."""
        atexit.unregister(self.end)
        self.is_lost = True
        self.process.kill()
        self.process.wait()
        self._is_busy.set()  # its watch ends too
        with suppress(OSError):
            if self.process.stdin is not None:
                self.process.stdin.close()
        with self._lock:
            is_heard = self._is_heard
        # Whoever listens still reads from it, and closes it.
        if not is_heard and self.process.stdout is not None:
            self.process.stdout.close()

    def _exchange(
        self,
        slot: int,
        what: int,
        file: int,
        numbers: tuple[int, ...],
        seconds: float,
    ) -> tuple[int, int]:
        mine = _Waiting(seconds, self._until(seconds))
        mine.bell.acquire()
        filled = (*numbers, 0, 0, 0, 0, 0)[:5]
        request = REQUEST.pack(what, slot, file, *filled)
        try:
            with self._lock:
                self._waiting[slot] = mine
                if not self._is_heard:
                    self._is_heard = True
                    mine.bell.release()
                # Where it is lost, who listens sees it.
                with suppress(OSError, ValueError):
                    if self.process.stdin is not None:
                        self.process.stdin.write(request)
            if not self._is_busy.is_set():
                self._is_busy.set()
            mine.bell.acquire()
            if mine.answer is None and not mine.is_over:
                self._listen(mine)
        # An answer that nobody waits for any more would be taken for another one.
        except BaseException:
            self._lose()
            raise
        if mine.answer is None:
            code = self.process.wait()
            how = "it took too long" if mine.is_late else f"it ended with {code}"
            raise HelperLostError(how, is_late=mine.is_late)
        return mine.answer

    def _until(self, seconds: float) -> float:
        """When a request is late; the first ones wait for the helper's start too."""
        return time.monotonic() + (
            seconds if self._is_ready else max(seconds, _START_SECONDS)
        )

    def _listen(self, mine: _Waiting) -> None:
        """Hand out answers until mine has come, then let another thread listen."""
        while mine.answer is None:
            found = self._next_answer()
            if found is None:
                self._lose()
                return
            slot, how, size = found
            if slot == READY:
                self._started()
                continue
            with self._lock:
                theirs = self._waiting.pop(slot)
            theirs.answer = (how, size)
            if theirs is not mine:
                theirs.bell.release()
        with self._lock:
            following = next(iter(self._waiting.values()), None)
            self._is_heard = following is not None
            if following is not None:
                following.bell.release()

    def _started(self) -> None:
        """What was asked meanwhile has had its time for the start: no more of it."""
        self._is_ready = True
        now = time.monotonic()
        with self._lock:
            for one in self._waiting.values():
                one.until = now + max(one.seconds, SECONDS)

    def _next_answer(self) -> tuple[int, int, int] | None:
        stream = self.process.stdout
        found = b""
        while stream is not None and len(found) < ANSWER.size:
            try:
                more = stream.read(ANSWER.size - len(found))
            except (OSError, ValueError):
                return None
            if not more:
                return None
            found += more
        return ANSWER.unpack(found) if found else None

    def _lose(self) -> None:
        self.is_lost = True
        with self._lock:
            waiting = list(self._waiting.values())
            self._waiting.clear()
            self._is_heard = False
        self.end()
        for one in waiting:
            one.is_over = True
            if one.bell.locked():
                one.bell.release()

    def _watch(self) -> None:
        """End a helper that does not answer."""
        while not self.is_lost:
            self._is_busy.wait()
            time.sleep(_LOOK_EVERY)
            now = time.monotonic()
            with self._lock:
                late = [one for one in self._waiting.values() if one.until < now]
                if not self._waiting:
                    self._is_busy.clear()
            for one in late:
                one.is_late = True
            if late:
                self.process.kill()  # whoever listens sees its end


def _shared_memory(size: int) -> tuple[mmap.mmap, str, tuple[int, ...]]:
    """Memory that no name in a folder leads to, so that nothing is left of it.

    Returns
    -------
    The memory, what the helper is told of it, and what it inherits.
    """
    if sys.platform == "win32":
        name = f"spt-{secrets.token_hex(16)}"
        return mmap.mmap(-1, size, tagname=name), name, ()
    try:
        descriptor = os.memfd_create("slides")
    except (AttributeError, OSError):  # not Linux
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, size)
    return mmap.mmap(descriptor, size), str(descriptor), (descriptor,)
