"""What goes wrong in training, noticed while it runs: collapse, no learning, NaN."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from spt_core.errors import InputError
from spt_core.events import Note

COLLAPSED_SPREAD = 1e-4
CHANCE_MARGIN = 0.01
CHANCE_STEPS = 20  # losses that are averaged before they are compared with chance


@dataclass(frozen=True)
class NotLearning(Note):
    """The loss has not left the level of chance."""


@dataclass(frozen=True)
class Collapsed(Note):
    """All embeddings are one and the same."""


class DivergedError(InputError):
    """The loss became NaN or infinite; the last good model is kept."""


@dataclass
class Alarms:
    """Each alarm is raised once per run, resumed or not.

    Attributes
    ----------
    chance
        The loss of a model that has learned nothing, where that is known.
    patience
        Steps before a loss at the level of chance is a reason to worry.
    recent, raised
        The last losses, and the alarms raised so far; checkpoints keep both.
    """

    chance: float | None
    patience: float
    recent: list[float] = field(default_factory=list)
    raised: set[str] = field(default_factory=set)

    def still_at_chance(self, loss: float, step: int) -> Iterator[NotLearning]:
        """Raised after ``step`` steps whose losses stayed at the level of chance."""
        if self.chance is None or "chance" in self.raised:
            return
        self.recent = [*self.recent, loss][-CHANCE_STEPS:]
        if step < max(self.patience, CHANCE_STEPS) or len(self.recent) < CHANCE_STEPS:
            return
        mean = sum(self.recent) / len(self.recent)
        if abs(mean - self.chance) <= CHANCE_MARGIN * self.chance:
            self.raised.add("chance")
            yield NotLearning(
                f"Not learning: after {step} steps the loss {mean:.3f} is still that "
                f"of chance ({self.chance:.3f}). Try --head batchnorm, another "
                "learning rate, or larger crops."
            )

    def collapsed(self, spread: float, items: str) -> Iterator[Collapsed]:
        """Raised when embeddings have collapsed; ``items`` says of what they are."""
        if "collapsed" not in self.raised:
            self.raised.add("collapsed")
            yield Collapsed(
                f"All {items} have nearly the same embedding (spread {spread:.1e}): "
                "the model has collapsed. Try a lower learning rate, a larger batch, "
                "or another objective."
            )


def has_collapsed(spread: float) -> bool:
    return spread < COLLAPSED_SPREAD
