"""The engine's end of the pipe: lines of JSON, and arrays as files."""

import json
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

log = logging.getLogger(__name__)


class Channel:
    """Requests in, messages out.

    Parameters
    ----------
    folder
        Where arrays are left for the other side, which reads and removes them.
    """

    def __init__(self, folder: Path, requests: BinaryIO, answers: BinaryIO) -> None:
        self.folder = folder
        self._requests = requests
        self._answers = answers
        self._lock = Lock()
        self._count = 0

    @classmethod
    def on_standard_streams(cls, folder: Path) -> "Channel":
        """Take standard output for messages alone: stray prints go to the errors."""
        answers = os.fdopen(os.dup(1), "wb", buffering=0)
        os.dup2(2, 1)
        sys.stdout = sys.stderr
        return cls(folder, os.fdopen(os.dup(0), "rb"), answers)

    def requests(self) -> Iterator[dict[str, Any]]:
        """Requests as they come, until the input ends."""
        for line in self._requests:
            try:
                request = json.loads(line)
            except ValueError:
                log.warning("What came is no JSON: %r", line[:80])
                continue
            if isinstance(request, dict):
                yield request

    def send(
        self,
        event: str,
        request: int | None = None,
        facts: Mapping[str, Any] | None = None,
        arrays: Mapping[str, NDArray] | None = None,
    ) -> None:
        """Send one message whole; its arrays are there before it is."""
        message: dict[str, Any] = {"event": event, **(facts or {})}
        if request is not None:
            message["id"] = request
        if arrays:
            message["arrays"] = {
                name: self._leave(request, name, values)
                for name, values in arrays.items()
            }
        line = json.dumps(message, default=_plain).encode() + b"\n"
        with self._lock:
            rest = memoryview(line)
            while rest:
                rest = rest[self._answers.write(rest) :]

    def clear(self) -> None:
        """Remove what nobody will read any more, and the folder with it."""
        for path in self.folder.glob("*.npy"):
            with suppress(OSError):
                path.unlink()
        for path in self.folder.glob("*.log"):
            with suppress(OSError):
                path.unlink()
        with suppress(OSError):
            self.folder.rmdir()

    def _leave(self, request: int | None, name: str, values: NDArray) -> str:
        with self._lock:
            self._count += 1
            count = self._count
        file_name = f"{0 if request is None else request}-{count}-{name}.npy"
        temporary = self.folder / f".{file_name}"
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            np.save(temporary, np.ascontiguousarray(values), allow_pickle=False)
            os.replace(temporary, self.folder / file_name)
        finally:
            temporary.unlink(missing_ok=True)
        return file_name


def _plain(value: object) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} cannot be sent")
