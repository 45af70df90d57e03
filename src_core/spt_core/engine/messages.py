"""What pieces of work say, and how they fail."""

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from spt_core.events import Note, Progress

Request = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Say:
    """One message: its event, plain facts, and arrays by name."""

    event: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, NDArray] = field(default_factory=dict)

    @classmethod
    def progress(cls, event: Progress, *, before: int = 0) -> "Say":
        """Progress, of which ``before`` was there already."""
        return cls(
            "progress",
            {
                "done": event.done + before,
                "total": event.total + before,
                "rate": event.rate,
                "seconds_left": event.seconds_left,
                "message": event.message,
            },
        )

    @classmethod
    def step(cls, message: str, done: int = 0, total: int = 0) -> "Say":
        """What is being done now, where it cannot be counted finely."""
        return cls.progress(Progress(done, total, message=message))

    @classmethod
    def note(cls, note: Note | str) -> "Say":
        text = note if isinstance(note, str) else note.message
        return cls("note", {"sentence": text})


# Work yields what it has to say and returns the last of it, the facts of ``done``.
Work = Generator[Say, None, Say]

NO_TISSUE = "no_tissue"
UNREADABLE = "unreadable"
MEMORY = "memory"
MAGNIFICATION = "magnification"
NO_PIXEL_SIZE = "no_pixel_size"
MODEL = "model"
OTHER = "other"


class Failure(Exception):
    """Why a request cannot be answered, for the person who asked."""

    def __init__(
        self,
        kind: str,
        sentence: str,
        facts: Mapping[str, Any] | None = None,
        arrays: Mapping[str, NDArray] | None = None,
    ) -> None:
        super().__init__(sentence)
        self.kind = kind
        self.sentence = sentence
        self.facts = facts or {}
        self.arrays = arrays or {}

    def said(self) -> Say:
        facts = {"kind": self.kind, "sentence": self.sentence, **self.facts}
        return Say("failed", facts, self.arrays)
