"""The engine's end of the pipe."""

import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Lock
from typing import BinaryIO

from spt_core.engine.codec import ArrayFolder, ProtocolError, decode, encode
from spt_core.engine.protocol import Control, Failed, FailureKind, Reply, Request

log = logging.getLogger(__name__)

# Bytes of a line: arrays do not travel in it.
LONGEST = 2**24


class Channel:
    """Requests and controls in, replies out.

    Parameters
    ----------
    folder
        Through which arrays are handed over.
    """

    def __init__(self, folder: Path, requests: BinaryIO, replies: BinaryIO) -> None:
        self._arrays = ArrayFolder(folder)
        self._requests = requests
        self._replies = replies
        self._lock = Lock()

    @classmethod
    def on_standard_streams(cls, folder: Path) -> "Channel":
        """Take standard output for replies alone: stray prints go to the errors."""
        replies = os.fdopen(os.dup(1), "wb", buffering=0)
        os.dup2(2, 1)
        sys.stdout = sys.stderr
        return cls(folder, os.fdopen(os.dup(0), "rb"), replies)

    def receive(self) -> Iterator[tuple[int | None, Request | Control]]:
        """What comes, with its number, until the input ends."""
        while line := self._requests.readline(LONGEST):
            try:
                if len(line) == LONGEST and not line.endswith(b"\n"):
                    self._skip_line()
                    raise ProtocolError(f"A line is longer than {LONGEST} bytes.")
                number, message = decode(line, self._arrays.take)
                if not isinstance(message, Request | Control):
                    reason = f"{type(message).__name__} is no request."
                    raise ProtocolError(reason, number)
            except ProtocolError as error:
                log.warning("What came cannot be read: %s", error)
                self.send(Failed(FailureKind.DEFECT, str(error)), error.request)
                continue
            yield number, message

    def _skip_line(self) -> None:
        while (line := self._requests.readline(LONGEST)) and not line.endswith(b"\n"):
            pass

    def send(self, message: Reply, request: int | None = None) -> None:
        """Send one reply whole; its arrays are there before it is."""
        line = encode(message, request, self._arrays.put)
        with self._lock:
            rest = memoryview(line)
            while rest:
                rest = rest[self._replies.write(rest) :]

    def clear(self) -> None:
        """Remove what nobody will read any more."""
        self._arrays.clear()
