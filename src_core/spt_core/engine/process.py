"""One engine process, as the window sees it: its pipe, its arrays, and its end."""

import logging
import os
import shutil
import signal
import subprocess
import sys
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from threading import Lock, Thread

from spt_core.engine.codec import ArrayFolder, ProtocolError, decode, encode
from spt_core.engine.protocol import (
    END_TYPES,
    VERSION,
    Control,
    Failed,
    FailureKind,
    Ready,
    Reply,
    Request,
    Starting,
    Stop,
)
from spt_core.engine.session_folder import make_session_folder

log = logging.getLogger(__name__)

_LOG = "engine.log"
# Libraries such as glib end the process themselves when memory runs out. These words
# in their own last lines are all that such an end can be told by.
_NO_MEMORY = (
    "failed to allocate",
    "bad_alloc",
    "MemoryError",
    "allocate memory",
    "Thread creation failed",  # there is no room for its stack
)


class EngineState(StrEnum):
    OFF = "off"
    STARTING = "starting"
    READY = "ready"
    LOST = "lost"


@dataclass(frozen=True, eq=False)
class Received:
    """A reply, and the request that it belongs to."""

    request: int | None
    message: Reply


class EngineProcess:
    """One engine process, with the thread that reads what it says."""

    def __init__(self, received: deque[Received]) -> None:
        self.state = EngineState.STARTING
        self.ready: Ready | None = None
        self._received = received
        self._open: set[int] = set()
        self._has_started = False
        self._refused: str | None = None
        self._is_closing = False
        self._lock = Lock()
        self._folder = make_session_folder()
        self._arrays = ArrayFolder(self._folder)
        self._process = _start_process(self._folder)
        self._thread = Thread(target=self._read, name="napari-spt engine", daemon=True)
        self._thread.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self.state != EngineState.LOST and self._process.poll() is None

    @property
    def is_reading(self) -> bool:
        return self._thread.is_alive()

    def ask(self, number: int, request: Request) -> bool:
        """Send a request; False where the engine is gone and nobody will answer."""
        line = encode(request, number, self._arrays.put)
        with self._lock:
            if self.state == EngineState.LOST:
                self._remove_folder()
                return False
            self._open.add(number)
        if self._write(line):
            return True
        with self._lock:
            # If the reading thread was there first, it has answered.
            if number not in self._open:
                return True
            self._open.discard(number)
        return False

    def control(self, message: Control) -> None:
        self._write(encode(message, None, self._arrays.put))

    def _write(self, line: bytes) -> bool:
        if self._process.stdin is None:
            return False
        try:
            self._process.stdin.write(line)
            self._process.stdin.flush()
        except (OSError, ValueError):
            return False
        return True

    def close(self) -> None:
        self._is_closing = True
        self.control(Stop())
        self._close_input()
        for end, seconds in (
            (lambda: None, 3.0),
            (self._process.terminate, 1.0),
            (self._process.kill, 5.0),
        ):
            end()
            try:
                self._process.wait(seconds)
                break
            except subprocess.TimeoutExpired:
                continue
        self._thread.join(5.0)
        self._remove_folder()

    # The reading thread

    def _read(self) -> None:
        stream = self._process.stdout
        if stream is not None:
            with stream:
                for line in stream:
                    self._take(line)
        self._process.wait()
        if not self._is_closing:
            self._fail_open_requests()
        self._remove_folder()

    def _take(self, line: bytes) -> None:
        try:
            number, message = decode(line, self._arrays.take)
            if not isinstance(message, Reply):
                raise ProtocolError(f"{type(message).__name__} is no reply.")
        except ProtocolError as error:
            self._take_unreadable(error)
            return
        if isinstance(message, Starting):
            self._has_started = True
            if message.version != VERSION:
                self._refuse(f"its protocol has version {message.version}")
        elif isinstance(message, Ready):
            self.ready = message
            self.state = EngineState.READY
        self._hand_on(number, message)

    def _take_unreadable(self, error: ProtocolError) -> None:
        log.warning("What the engine said cannot be read: %s", error)
        if not self._has_started:
            self._refuse("its protocol is another")
        elif error.request is not None and error.message_type in (None, *END_TYPES):
            # A request must end, whatever happens.
            failed = Failed(FailureKind.LOST_RESULT, str(error))
            self._hand_on(error.request, failed)

    def _refuse(self, reason: str) -> None:
        """End an engine that speaks otherwise: it was replaced while this one ran."""
        self._refused = f"{reason}, that of this program is {VERSION}; start it again."
        self._process.kill()

    def _hand_on(self, number: int | None, message: Reply) -> None:
        with self._lock:
            if isinstance(message, END_TYPES) and number is not None:
                self._open.discard(number)
            if not self._is_closing:
                self._received.append(Received(number, message))

    def _fail_open_requests(self) -> None:
        failed = self._why_lost()
        log.warning("The engine ended with %s.", self._process.returncode)
        with self._lock:
            self.state = EngineState.LOST
            numbers = sorted(self._open)
            self._open.clear()
            self._received.extend(Received(number, failed) for number in numbers)
            self._received.append(Received(None, failed))

    def _why_lost(self) -> Failed:
        code = self._process.returncode
        if self._refused is not None:
            return Failed(FailureKind.NOT_STARTED, self._refused)
        words = self._last_words()
        if code in (-getattr(signal, "SIGKILL", 9), 137):
            return Failed(FailureKind.KILLED)
        if any(sign in line for sign in _NO_MEMORY for line in words):
            return Failed(FailureKind.KILLED)
        if self.ready is None:
            reason = words[-1] if words else f"it ended with {code}."
            return Failed(FailureKind.NOT_STARTED, reason)
        return Failed(FailureKind.CRASHED)

    def _last_words(self) -> list[str]:
        try:
            text = (self._folder / _LOG).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return []
        return text.strip().splitlines()[-20:]

    def _close_input(self) -> None:
        if self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()

    def _remove_folder(self) -> None:
        self._close_input()
        shutil.rmtree(self._folder, ignore_errors=True)


def _start_process(folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", "-m", "spt_core.engine"]
    command += ["--folder", str(folder), "--parent", str(os.getpid())]
    # What libraries print goes to a file beside the arrays, and goes with them.
    with (folder / _LOG).open("wb") as errors:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
        )
