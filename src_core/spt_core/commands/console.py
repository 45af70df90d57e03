"""How commands speak: a progress bar on a terminal, or one JSON object per line."""

import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from tqdm import tqdm

from spt_core.events import LeftOut, Note, Progress, event_record

Result = TypeVar("Result")


# What moves a terminal's cursor, changes its colours or turns text around: a name of a
# file or a class may hold it.
_UNSEEN = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def seen(text: str) -> str:
    """The same, with what a terminal would obey written out."""
    return _UNSEEN.sub(lambda found: ascii(found[0])[1:-1], text)


class Console:
    """Prints results on standard output, and progress and errors on standard error."""

    def __init__(self, *, json_lines: bool = False) -> None:
        self.json_lines = json_lines
        self.is_incomplete = False  # a part of the input was left out

    def say(self, text: str) -> None:
        """Print a line for a person; nothing with ``--json``."""
        if not self.json_lines:
            tqdm.write(seen(text))  # not behind a bar that is shown

    def record(self, record: dict[str, Any]) -> None:
        """Print one JSON object; nothing without ``--json``."""
        if self.json_lines:
            print(json.dumps(record, ensure_ascii=False, default=str), flush=True)

    def error(self, sentence: str) -> None:
        # It may be their end that is told.
        with suppress(OSError):
            self.record({"event": "error", "message": sentence})
        with suppress(OSError):
            print(f"spt: {seen(sentence)}", file=sys.stderr)

    def note(self, note: Note) -> None:
        """Say what the user should know."""
        if isinstance(note, LeftOut):
            self.is_incomplete = True
        if not self.json_lines:
            tqdm.write(seen(note.message), file=sys.stderr)

    def follow(self, events: Generator[Any, None, Result], unit: str = "") -> Result:
        """Run long work to its end, showing its events; give back its result.

        On Ctrl-C the generator is closed, which cancels the work and keeps what is
        done, before the interrupt goes on.
        """
        with interrupts() as interrupted:
            return self._shown(events, unit, interrupted)

    def _shown(
        self,
        events: Generator[Any, None, Result],
        unit: str,
        interrupted: Callable[[], bool],
    ) -> Result:
        bar: tqdm | None = None
        try:
            while True:
                try:
                    event = next(events)
                except StopIteration as stop:
                    return stop.value
                if interrupted():
                    raise KeyboardInterrupt
                self.record(event_record(event))
                if isinstance(event, Note):
                    self.note(event)
                elif self.json_lines:
                    continue
                elif isinstance(event, Progress):
                    if bar is None:
                        bar = tqdm(total=event.total, unit=unit, disable=None)
                    bar.total = event.total
                    bar.set_description_str(seen(event.message), refresh=False)
                    bar.update(event.done - bar.n)
        finally:
            events.close()
            if bar is not None:
                bar.close()


# So long after a signal others change nothing: a second Ctrl-C, or what torchrun sends
# after a terminal did, would break off the keeping of what is done.
_KEEPING_SECONDS = 10.0
# Ctrl-C, what a cluster sends before it kills, and a terminal that is closed.
_STOPPING = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP")
    if hasattr(signal, name)
)


class _Stop:
    """Handles the signals that end a program; nested uses share one."""

    def __init__(self) -> None:
        self.pressed = threading.Event()
        self._first = 0.0

    def __call__(self, number: int, frame: object) -> None:
        now = time.monotonic()
        if self.pressed.is_set() and now - self._first < _KEEPING_SECONDS:
            return
        self._first = now
        self.pressed.set()
        raise KeyboardInterrupt


@contextmanager
def interrupts(*, to_the_end: bool = False) -> Iterator[Callable[[], bool]]:
    """Make each signal that ends a program a KeyboardInterrupt, as Ctrl-C is.

    Gives whether one came, even where the exception itself was lost: Python drops one
    that is raised inside a destructor or a callback, and libraries make others of it
    while they are imported. What somebody else handles or ignores stays theirs.

    Parameters
    ----------
    to_the_end
        Nothing comes after but the end of the process, which another signal hastens.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    known = {number: signal.getsignal(number) for number in _STOPPING}
    stop = next((one for one in known.values() if isinstance(one, _Stop)), _Stop())
    usual = (signal.default_int_handler, signal.SIG_DFL)
    before = {number: one for number, one in known.items() if one in usual}
    for number in before:
        signal.signal(number, stop)
    try:
        yield stop.pressed.is_set
    finally:
        is_ending = to_the_end and stop.pressed.is_set()
        for number, handler in before.items():
            signal.signal(number, _leave if is_ending else handler)


def _leave(number: int, frame: object) -> None:
    os._exit(1)  # as a command that was stopped
