"""Seeing in another process whether a slide's file takes its reader down.

openslide crashes on some damaged files. Where a process must not go down with it, each
file is opened and read a little by a helper first, once for its path, size, time and
the hash of its ends. The helper is started with the first file and kept.
"""

import atexit
import hashlib
import json
import os
import queue
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from threading import Lock, Thread
from typing import Any

# A single step of the helper's may take so long, and all of them together.
STEP_SECONDS, MOST_STEPS = 10.0, 400
_START_SECONDS = 60.0
_END_BYTES = 2**16

_is_on = False
_lock = Lock()
_proved: dict[str, str] = {}
_helper: "_Helper | None" = None


class ReaderLostError(Exception):
    """The helper did not survive a file, or did not come to an end with it."""


def switch_on() -> None:
    """Prove every slide before this process opens it: the window and commands do."""
    global _is_on
    _is_on = True


def switch_off() -> None:
    """Open slides at once: in processes that may be lost, such as workers."""
    global _is_on
    _is_on = False


def prove(path: Path) -> None:
    """Let the helper open a file, unless that is off or the file is proved.

    Raises
    ------
    ReaderLostError
        Where opening or reading it ends or holds up the helper.
    """
    if not _is_on or path.is_dir():
        return
    with _lock:
        state = _state(path)
        if _proved.get(str(path)) == state:
            return
        _ask({"do": "open", "path": str(path)})
        _proved[str(path)] = state


def series_of(path: Path) -> str | None:
    """The series of a DICOM file, by the helper."""
    with _lock:
        return _ask({"do": "series", "path": str(path)})


def is_on() -> bool:
    return _is_on


def _state(path: Path) -> str:
    with path.open("rb") as file:
        digest = hashlib.sha256(file.read(_END_BYTES))
        file.seek(0, os.SEEK_END)
        size = file.tell()
        file.seek(max(0, size - _END_BYTES))
        digest.update(file.read(_END_BYTES))
    return f"{size}-{path.stat().st_mtime_ns}-{digest.hexdigest()}"


def _ask(what: dict[str, str]) -> Any:
    global _helper
    if _helper is None or _helper.process.poll() is not None:
        _helper = _Helper()
    try:
        return _helper.ask(what)
    except ReaderLostError:
        _helper.close()
        _helper = None
        raise


class _Helper:
    def __init__(self) -> None:
        # In no module's folder: a file beside the script must not be imported.
        script = Path(__file__).parent / "slides" / "prover.py"
        self.process = subprocess.Popen(
            [sys.executable, "-P", str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
        )
        self.said: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self.is_warm = False
        self.thread = Thread(target=self._listen, name="slide helper", daemon=True)
        self.thread.start()
        atexit.register(self.close)

    def _listen(self) -> None:
        stream = self.process.stdout
        if stream is not None:
            with stream:
                for line in stream:
                    self.said.put(line)
        self.said.put(b"")

    def ask(self, what: dict[str, str]) -> Any:
        try:
            if self.process.stdin is not None:
                self.process.stdin.write(json.dumps(what).encode() + b"\n")
                self.process.stdin.flush()
            for _ in range(MOST_STEPS):
                seconds = STEP_SECONDS if self.is_warm else _START_SECONDS
                line = self.said.get(timeout=seconds)
                if not line:
                    raise ReaderLostError(f"it ended with {self.process.wait()}")
                self.is_warm = True
                answer = json.loads(line)
                if "done" in answer:
                    return answer["done"]
        except queue.Empty:
            raise ReaderLostError("it took too long") from None
        except OSError as error:
            raise ReaderLostError(str(error)) from error
        raise ReaderLostError("it did not come to an end")

    def close(self) -> None:
        atexit.unregister(self.close)
        with suppress(OSError):
            if self.process.stdin is not None:
                self.process.stdin.close()
        self.process.kill()
        self.process.wait()
        self.thread.join(5)
