"""One line of a study's data check."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

SHOWN = 5  # names in a sentence


class Rank(StrEnum):
    """How much a finding matters."""

    STOPS = "stops the run"
    DOUBTFUL = "doubtful"
    FINE = "fine"


class About(StrEnum):
    """What a finding is about."""

    SLIDES = "slides"
    PIXEL_SIZE = "pixel size"
    FEATURES = "features"
    LABELS = "labels"
    CLASSES = "classes"
    PATIENTS = "patients"
    FOLDS = "folds"
    SITES = "sites"
    START = "start"
    TIME = "time"
    DISK = "disk"


@dataclass(frozen=True)
class Finding:
    """
    Attributes
    ----------
    says
        What was found, a sentence.
    do
        What to do about it, a sentence; "" where nothing is to be done.
    """

    rank: Rank
    about: About
    says: str
    do: str = ""

    def __str__(self) -> str:
        return f"{self.says} {self.do}".rstrip()


def stops(found: Iterable[Finding]) -> list[Finding]:
    return [one for one in found if one.rank is Rank.STOPS]


def fine(about: About, says: str) -> Finding:
    return Finding(Rank.FINE, about, says)


def doubtful(about: About, says: str, do: str) -> Finding:
    return Finding(Rank.DOUBTFUL, about, says, do)


def stop(about: About, says: str, do: str = "") -> Finding:
    return Finding(Rank.STOPS, about, says, do)


def some(names: list[str], between: str = ", ") -> str:
    """The first few of them, and how many more there are."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return between.join(names[:SHOWN]) + more
