"""The window's end of the pipe to the engine, which does all work with torch.

One thread reads what the engine says; the window polls. Nothing here knows Qt.
"""

import atexit
import json
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
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock, Thread
from typing import Any

import numpy as np

_log = logging.getLogger(__name__)

OFF, STARTING, READY, LOST = "off", "starting", "ready", "lost"
_ENDS = ("done", "cancelled", "failed")
_PREFIX = "napari-spt-"
_LOG = "engine.log"
# What is left of others goes after an hour if they are dead, after days in any case.
_ORPHANED_SECONDS, _STALE_SECONDS = 3600, 3 * 24 * 3600

_CRASHED = (
    "The analysis stopped unexpectedly. What was found so far is kept: start it again "
    "and it goes on from there."
)
_KILLED = (
    "The computer ended the analysis, most likely because its memory was full. What "
    "was found so far is kept: close other programs, start it again, and it goes on "
    "from there."
)
# What libraries that end the process themselves leave behind, glib above all.
_NO_MEMORY = ("failed to allocate", "bad_alloc", "MemoryError", "allocate memory")
_UNREADABLE = "The result cannot be read ({reason}). Start again."
_NEVER_STARTED = "The analysis cannot be started: {reason}"


@dataclass(frozen=True)
class Message:
    """What the engine said: of which request, which event, facts and arrays."""

    request: int | None
    event: str
    facts: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)


class Engine:
    """Starts the engine when it is needed, and again after it was lost.

    All methods are called from one thread and none of them waits, but for ``close``.
    """

    def __init__(self) -> None:
        self._child: _Child | None = None
        self._messages: deque[Message] = deque()
        self._last = 0
        self._old: list[_Child] = []

    @property
    def state(self) -> str:
        """``off``, ``starting``, ``ready`` or ``lost``."""
        return OFF if self._child is None else self._child.state

    @property
    def about(self) -> dict[str, Any]:
        """Device, devices and versions, once the engine is ready."""
        return {} if self._child is None else self._child.about

    @property
    def pid(self) -> int | None:
        return None if self._child is None else self._child.process.pid

    def start(self) -> None:
        """Start the engine, unless it runs; it gets ready by itself."""
        if self._child is not None:
            if self._child.is_alive:
                return
            self._old = [one for one in (*self._old, self._child) if one.is_reading]
        else:
            _remove_stale_folders()
        self._child = _Child(self._messages)

    def submit(self, do: str, **facts: Any) -> int:
        """Send a request; give its number, by which its messages are known."""
        self._last += 1
        number = self._last
        line = _line({"id": number, "do": do, **facts})
        for _ in range(2):
            self.start()
            if self._child is not None and self._child.ask(number, line):
                return number
        # It died twice in a row, at once.
        reason = "it ends at once."
        facts = {"kind": "crash", "sentence": _NEVER_STARTED.format(reason=reason)}
        self._messages.append(Message(number, "failed", facts))
        return number

    def cancel(self, request: int) -> None:
        """Stop a request that runs or waits; it ends with ``cancelled``."""
        self._tell({"do": "cancel", "id": request})

    def look_here(self, request: int, l0_xy: tuple[float, float] | None) -> None:
        """Let a running analysis go on around a place of the slide."""
        place = None if l0_xy is None else [float(l0_xy[0]), float(l0_xy[1])]
        self._tell({"do": "from_here", "id": request, "l0_xy": place})

    def poll(self) -> list[Message]:
        """Everything since the last call."""
        found = []
        while True:
            try:
                found.append(self._messages.popleft())
            except IndexError:
                return found

    def close(self) -> None:
        """End the engine, within a few seconds at most, and leave nothing behind."""
        child, self._child = self._child, None
        for one in (*self._old, *(() if child is None else (child,))):
            one.close()
        self._old = []
        self._messages.clear()

    def _tell(self, message: dict[str, Any]) -> None:
        if self._child is not None and self._child.is_alive:
            self._child.write(_line(message))


class _Child:
    """One engine process, with the thread that reads what it says."""

    def __init__(self, messages: deque[Message]) -> None:
        self.state = STARTING
        self.about: dict[str, Any] = {}
        self._messages = messages
        self._open: set[int] = set()
        self._is_closing = False
        self._lock = Lock()
        self.folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
        self.process = _start_process(self.folder)
        self._thread = Thread(target=self._read, name="napari-spt engine", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        return self.state != LOST and self.process.poll() is None

    @property
    def is_reading(self) -> bool:
        return self._thread.is_alive()

    def ask(self, number: int, line: bytes) -> bool:
        """Send a request; False where the engine is gone and nobody will answer."""
        with self._lock:
            if self.state == LOST:
                return False
            self._open.add(number)
        if self.write(line):
            return True
        with self._lock:
            # If the reading thread was there first, it has answered.
            if number not in self._open:
                return True
            self._open.discard(number)
        return False

    def write(self, line: bytes) -> bool:
        if self.process.stdin is None:
            return False
        try:
            self.process.stdin.write(line)
            self.process.stdin.flush()
        except (OSError, ValueError):
            return False
        return True

    def close(self) -> None:
        self._is_closing = True
        self.write(_line({"do": "stop"}))
        with suppress(OSError):
            if self.process.stdin is not None:
                self.process.stdin.close()
        for end, seconds in (
            (lambda: None, 3.0),
            (self.process.terminate, 1.0),
            (self.process.kill, 5.0),
        ):
            end()
            try:
                self.process.wait(seconds)
                break
            except subprocess.TimeoutExpired:
                continue
        self._thread.join(5.0)
        self._forget_folder()

    # The reading thread

    def _read(self) -> None:
        stream = self.process.stdout
        if stream is not None:
            with stream:
                for line in stream:
                    try:
                        self._take(json.loads(line))
                    except (ValueError, OSError) as error:
                        _log.warning("The engine said what cannot be read: %s", error)
        self.process.wait()
        if not self._is_closing:
            self._mourn()
        self._forget_folder()

    def _take(self, said: dict[str, Any]) -> None:
        event, request = str(said.pop("event")), said.pop("id", None)
        names = said.pop("arrays", {})
        try:
            arrays = {name: self._array(file) for name, file in names.items()}
        except (OSError, ValueError) as error:
            _log.warning("What the engine left cannot be read: %s", error)
            if event not in _ENDS:
                return
            # A request must end, whatever happens.
            event, arrays = "failed", {}
            said = {"kind": "other", "sentence": _UNREADABLE.format(reason=error)}
        if event == "ready":
            self.about = said
            self.state = READY
        with self._lock:
            if event in _ENDS:
                self._open.discard(request)
            if not self._is_closing:
                self._messages.append(Message(request, event, said, arrays))

    def _array(self, name: str) -> np.ndarray:
        path = self.folder / Path(name).name
        values = np.load(path, allow_pickle=False)
        path.unlink(missing_ok=True)
        return values

    def _mourn(self) -> None:
        """Tell every open request that its engine is gone."""
        kind, sentence = self._reason()
        _log.warning("The engine ended with %s.", self.process.returncode)
        with self._lock:
            self.state = LOST
            facts = {"kind": kind, "sentence": sentence}
            ends = [
                Message(number, "failed", dict(facts)) for number in sorted(self._open)
            ]
            self._open.clear()
            self._messages.extend(ends)
            self._messages.append(Message(None, "lost", dict(facts)))

    def _reason(self) -> tuple[str, str]:
        words = self._last_words()
        if self.process.returncode in (-getattr(signal, "SIGKILL", 9), 137):
            return "memory", _KILLED
        if any(sign in line for sign in _NO_MEMORY for line in words):
            return "memory", _KILLED
        if not self.about:
            reason = words[-1] if words else f"it ended with {self.process.returncode}."
            return "crash", _NEVER_STARTED.format(reason=reason)
        return "crash", _CRASHED

    def _last_words(self) -> list[str]:
        try:
            text = (self.folder / _LOG).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return []
        return text.strip().splitlines()[-20:]

    def _forget_folder(self) -> None:
        if self.process.stdin is not None:
            with suppress(OSError):
                self.process.stdin.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def _start_process(folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", "-m", "spt_core.engine"]
    command += ["--folder", str(folder), "--parent", str(os.getpid())]
    # What libraries print goes to a file beside the arrays, and goes with them.
    with (folder / _LOG).open("wb") as log:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
        )


def _line(message: dict[str, Any]) -> bytes:
    return json.dumps(message, default=_plain).encode() + b"\n"


def _plain(value: object) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} cannot be sent to the engine")


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


_shared: Engine | None = None


def shared_engine() -> Engine:
    """The one engine of this process; not started by asking for it."""
    global _shared
    if _shared is None:
        _shared = Engine()
        atexit.register(close_shared_engine)
    return _shared


def close_shared_engine() -> None:
    """End the shared engine, if there is one."""
    global _shared
    engine, _shared = _shared, None
    if engine is not None:
        engine.close()
        atexit.unregister(close_shared_engine)
