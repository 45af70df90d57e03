"""The window's end of the pipe to the engine, which does all work with torch.

One thread reads what the engine says; the window polls. Nothing here knows Qt.
"""

import atexit
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
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
    Cancel,
    Control,
    Failed,
    FailureKind,
    LookHere,
    Ready,
    Reply,
    Request,
    Starting,
    Stop,
)

log = logging.getLogger(__name__)

_PREFIX = "napari-spt-"
_LOG = "engine.log"
# What is left of others goes after an hour if they are dead, after days in any case.
_ORPHANED_SECONDS, _STALE_SECONDS = 3600, 3 * 24 * 3600
# Libraries such as glib end the process themselves when memory runs out. These words
# in their own last lines are all that such an end can be told by.
_NO_MEMORY = ("failed to allocate", "bad_alloc", "MemoryError", "allocate memory")


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


class EngineClient:
    """Starts the engine when it is needed, and again after it was lost.

    Every request ends with one of :data:`~spt_core.engine.protocol.END_TYPES`, whatever
    becomes of the engine. All methods are called from one thread and none of them
    waits, but for ``close``.
    """

    def __init__(self) -> None:
        self._process: _EngineProcess | None = None
        self._received: deque[Received] = deque()
        self._last = 0
        self._old: list[_EngineProcess] = []

    @property
    def state(self) -> EngineState:
        return EngineState.OFF if self._process is None else self._process.state

    @property
    def ready(self) -> Ready | None:
        """What the engine runs on, once it is ready."""
        return None if self._process is None else self._process.ready

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the engine, unless it runs; it gets ready by itself."""
        if self._process is not None:
            if self._process.is_alive:
                return
            self._old = [one for one in (*self._old, self._process) if one.is_reading]
        else:
            _remove_stale_folders()
        self._process = _EngineProcess(self._received)

    def submit(self, request: Request) -> int:
        """Send a request; give its number, by which its replies are known."""
        self._last += 1
        number = self._last
        # Where it dies twice in a row, at once, no third will live.
        failed = Failed(FailureKind.NOT_STARTED, "it ends at once.")
        for _ in range(2):
            self.start()
            try:
                if self._process is not None and self._process.ask(number, request):
                    return number
            except OSError as error:  # such as a full disk
                failed = Failed(FailureKind.FILE_REFUSED, str(error))
                break
        self._received.append(Received(number, failed))
        return number

    def cancel(self, number: int) -> None:
        """Stop a request that runs or waits; it ends with ``Cancelled``."""
        self._control(Cancel(number))

    def look_here(self, number: int, l0_xy: tuple[float, float] | None) -> None:
        """Let a running analysis go on around a place of the slide."""
        self._control(LookHere(number, l0_xy))

    def poll(self) -> list[Received]:
        """Everything since the last call."""
        found = []
        while True:
            try:
                found.append(self._received.popleft())
            except IndexError:
                return found

    def close(self) -> None:
        """End the engine, within a few seconds at most, and leave nothing behind."""
        current, self._process = self._process, None
        for one in (*self._old, *(() if current is None else (current,))):
            one.close()
        self._old = []
        self._received.clear()

    def _control(self, control: Control) -> None:
        if self._process is not None and self._process.is_alive:
            self._process.control(control)


class _EngineProcess:
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
        self._folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
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


def _remove_stale_folders() -> None:
    """Remove what is left of sessions that were killed together with their engine."""
    now = time.time()
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*-*"):
        with suppress(OSError, ValueError):
            age = now - folder.stat().st_mtime
            pid = int(folder.name.removeprefix(_PREFIX).partition("-")[0])
            if age > _STALE_SECONDS or (age > _ORPHANED_SECONDS and _is_dead(pid)):
                shutil.rmtree(folder, ignore_errors=True)


def _is_dead(pid: int) -> bool:
    """Whether there is surely no such process any more."""
    if os.name == "nt":
        return False  # asking, there, is ending it
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


_shared: EngineClient | None = None


def shared_engine() -> EngineClient:
    """The one engine of this process; not started by asking for it."""
    global _shared
    if _shared is None:
        _shared = EngineClient()
        atexit.register(close_shared_engine)
    return _shared


def close_shared_engine() -> None:
    """End the shared engine, if there is one."""
    global _shared
    engine, _shared = _shared, None
    if engine is not None:
        engine.close()
        atexit.unregister(close_shared_engine)
