"""An engine at the end of a bare pipe, as any program could start it."""

import os
import queue
import subprocess
import sys
import time
from pathlib import Path
from threading import Thread

from spt_core.engine.client import Received
from spt_core.engine.codec import ArrayFolder, decode, encode
from spt_core.engine.protocol import END_TYPES, Analyse


class Pipe:
    """Starts an engine and keeps every line that it says."""

    def __init__(self, folder, *options, env=None):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.arrays = ArrayFolder(folder)
        self.errors = folder.parent / f"{folder.name}-errors.txt"
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "spt_core.engine", "--folder", folder, *options],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, **(env or {})},
            )
        self.lines = []
        self.received = queue.Queue()
        self._next = 0
        self._thread = Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(line)
            try:
                self.received.put(Received(*decode(line, self.arrays.take)))
            except ValueError as error:
                self.received.put(error)
        self.received.put(None)

    def say(self, message, number=None):
        self.process.stdin.write(encode(message, number, self.arrays.put))
        self.process.stdin.flush()

    def ask(self, request):
        self._next += 1
        self.say(request, self._next)
        return self._next

    def take(self, seconds=60.0):
        """The next reply; None at the end."""
        received = self.received.get(timeout=seconds)
        if isinstance(received, Exception):
            raise received
        return received

    def until(self, *types, request=None, seconds=60.0):
        """All replies up to the first of the given types."""
        seen = []
        end = time.monotonic() + seconds
        while True:
            received = self.take(max(0.1, end - time.monotonic()))
            assert received is not None, f"the engine ended: {self.errors.read_text()}"
            seen.append(received)
            of_it = request is None or received.request == request
            if isinstance(received.message, types) and of_it:
                return seen

    def finish(self, request, seconds=60.0):
        """All replies up to the end of a request."""
        return self.until(*END_TYPES, request=request, seconds=seconds)

    def answer(self, request, seconds=60.0):
        """Ask, and give all messages up to the end."""
        number = self.ask(request)
        return [one.message for one in self.finish(number, seconds)]

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self._thread.join(10)
        self.process.stdout.close()


def analysis(slide, features, **options):
    """A request that calls the slide by its file."""
    options = {"title": Path(slide).name, **options}
    return Analyse(slide=Path(slide), features=Path(features), **options)


def of(messages, kind):
    return [one for one in messages if isinstance(one, kind)]


def ends_of(received):
    """Which request ended how, in turn."""
    return [
        (one.request, type(one.message))
        for one in received
        if isinstance(one.message, END_TYPES)
    ]
