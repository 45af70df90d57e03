"""What goes wrong in training, noticed while it runs: collapse, no learning, NaN."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from spt_core.errors import InputError
from spt_core.events import Note

# Embeddings have collapsed when they spread less than this, or than this share of the
# widest spread that was seen in the run, before its first step too.
COLLAPSED_SPREAD = 1e-4
COLLAPSED_SHARE = 0.1
CHANCE_MARGIN = 0.01
CHANCE_STEPS = 20  # losses that are averaged before they are compared with chance
CHANCE_WINDOW = 100  # steps: a loss on its way down passes the level of chance sooner
# Runs that went on to learn have stayed at the level of chance for some hundred steps.
LEAST_PATIENCE = 300
PATIENCE_SHARE = 0.25


@dataclass(frozen=True)
class NotLearning(Note):
    """The loss has not left the level of chance."""


@dataclass(frozen=True)
class Collapsed(Note):
    """All embeddings are one and the same."""


class DivergedError(InputError):
    """The loss became NaN or infinite; the last good model is kept."""


def patience(steps: int, warm_up: float) -> int:
    """Steps before a loss at the level of chance is a reason to worry.

    A quarter of the run, the whole warm-up and some hundred steps; a shorter run is
    judged at its end.
    """
    share = max(warm_up, PATIENCE_SHARE)
    return min(steps, max(LEAST_PATIENCE, round(share * steps)))


def advice(*, plain_head: bool) -> str:
    """What may help where the loss stays at the level of chance."""
    if plain_head:
        return "Try --head batchnorm."
    return "Try a larger --learning-rate, more epochs, or larger crops."


@dataclass
class Alarms:
    """Each alarm is raised once per run, resumed or not.

    Attributes
    ----------
    chance
        The loss of a model that has learned nothing, where that is known.
    patience
        Steps before a loss at the level of chance is a reason to worry.
    advice
        What to do about it.
    recent, widest, raised
        The last losses, the widest spread of embeddings, and the alarms raised so far;
        checkpoints keep them.
    """

    chance: float | None
    patience: float
    advice: str = ""
    recent: list[float] = field(default_factory=list)
    widest: float = 0.0
    raised: set[str] = field(default_factory=set)

    def still_at_chance(self, loss: float, step: int) -> Iterator[NotLearning]:
        """Raised after ``step`` steps whose losses stayed at the level of chance."""
        if self.chance is None or "chance" in self.raised:
            return
        self.recent = [*self.recent, loss][-CHANCE_WINDOW:]
        if step < self.patience or len(self.recent) < CHANCE_STEPS:
            return
        before = sum(self.recent[:CHANCE_STEPS]) / CHANCE_STEPS
        mean = sum(self.recent[-CHANCE_STEPS:]) / CHANCE_STEPS
        margin = CHANCE_MARGIN * self.chance
        if max(abs(before - self.chance), abs(mean - self.chance)) <= margin:
            self.raised.add("chance")
            yield NotLearning(
                f"Not learning: after {step} steps the loss {mean:.3f} is still that "
                f"of chance ({self.chance:.3f}). {self.advice}"
            )

    def has_collapsed(self, spread: float) -> bool:
        """Whether embeddings that spread so far are one and the same by now."""
        self.widest = max(self.widest, spread)
        return spread < max(COLLAPSED_SPREAD, COLLAPSED_SHARE * self.widest)

    def collapsed(self, spread: float, items: str) -> Iterator[Collapsed]:
        """Raised when embeddings have collapsed; ``items`` says of what they are."""
        if "collapsed" not in self.raised:
            self.raised.add("collapsed")
            yield Collapsed(
                f"All {items} have nearly the same embedding (spread {spread:.1e}): "
                "the model has collapsed. Try a lower learning rate, a larger batch, "
                "or another objective."
            )
