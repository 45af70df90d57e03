"""An engine at the end of a bare pipe, as any program could start it."""

import json
import os
import queue
import subprocess
import sys
import time
from threading import Thread

import numpy as np

ENDS = ("done", "cancelled", "failed")


class Pipe:
    """Starts an engine and keeps every line that it says."""

    def __init__(self, folder, *options, env=None):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
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
        self.messages = queue.Queue()
        self._next = 0
        self._thread = Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(line)
            self.messages.put(json.loads(line))
        self.messages.put(None)

    def say(self, **message):
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def ask(self, do, **facts):
        self._next += 1
        facts = {name: _plain(value) for name, value in facts.items()}
        self.say(id=self._next, do=do, **facts)
        return self._next

    def take(self, seconds=60.0):
        """The next message; None at the end."""
        return self.messages.get(timeout=seconds)

    def until(self, *events, request=None, seconds=60.0):
        """All messages up to the first of the given events."""
        seen = []
        end = time.monotonic() + seconds
        while True:
            message = self.take(max(0.1, end - time.monotonic()))
            assert message is not None, f"the engine ended: {self.errors.read_text()}"
            seen.append(message)
            of_it = request is None or message.get("id") == request
            if message["event"] in events and of_it:
                return seen

    def finish(self, request, seconds=60.0):
        return self.until(*ENDS, request=request, seconds=seconds)

    def array(self, message, name):
        path = self.folder / message["arrays"][name]
        values = np.load(path, allow_pickle=False)
        path.unlink()
        return values

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self._thread.join(10)
        self.process.stdout.close()


def _plain(value):
    return (
        value
        if value is None or isinstance(value, int | float | bool | list | str)
        else str(value)
    )


def of(messages, event):
    return [one for one in messages if one["event"] == event]
