"""The learning rate over a run: linear warm-up, then half a cosine down to zero."""

from dataclasses import dataclass
from math import cos, pi


@dataclass(frozen=True)
class Schedule:
    """
    Attributes
    ----------
    peak
        The rate at the end of the warm-up.
    warm_up
        Share of all steps that the rate rises in; one step at least.
    steps
        Steps of the whole run.
    """

    peak: float
    warm_up: float
    steps: int

    def rate(self, step: int) -> float:
        """The rate of a step, the first being 0."""
        warm = max(1, round(self.warm_up * self.steps))
        if step < warm:
            return self.peak * (step + 1) / warm
        done = (step - warm) / max(1, self.steps - warm)
        return self.peak * (1 + cos(pi * done)) / 2
