"""What long work says while it runs.

Long work in the core is a generator: it yields small frozen dataclasses and returns its
result. A command prints them, a widget shows them, a test reads them; closing the
generator cancels the work.
"""

from collections.abc import Callable, Generator, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, TypeVar

Result = TypeVar("Result")


@dataclass(frozen=True)
class Progress:
    """So much is done; ``rate`` is in units of ``done`` per second, where known."""

    done: int
    total: int
    rate: float | None = None
    message: str = ""

    @property
    def seconds_left(self) -> float | None:
        if not self.rate:
            return None
        return (self.total - self.done) / self.rate


class NoticeKind(StrEnum):
    """What the user should know, which stops nothing."""

    SMALLER_BATCHES = "smaller batches"  # memory ran short
    UPSAMPLED = "upsampled"  # values: slide_mpp, target_mpp
    UNREADABLE_PARTS = "unreadable parts"  # values: patches
    OF_ENCODING = "of encoding"  # reason: the core's own sentence


@dataclass(frozen=True)
class Note:
    """A sentence the user should read, which stops nothing.

    Attributes
    ----------
    kind, values
        The same as plain facts, for whoever makes sentences of their own.
    """

    message: str
    kind: NoticeKind | None = None
    values: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class LeftOut(Note):
    """A part of the input that cannot be used: the rest goes on, the command fails."""


def finish(
    events: Generator[Any, None, Result], each: Callable[[Any], object] | None = None
) -> Result:
    """Run long work to its end, showing ``each`` its events; give back its result."""
    while True:
        try:
            event = next(events)
        except StopIteration as stop:
            return stop.value
        if each is not None:
            each(event)


def event_record(event: Any) -> dict[str, Any]:
    """One event as plain data: its kind and its fields."""
    return {"event": type(event).__name__.lower(), **asdict(event)}
