"""How maps are drawn over a slide: plain values, without Qt."""

from dataclasses import dataclass
from typing import Annotated

from spt_core.hints import Hint
from spt_core.insight.colours import FILL_OPACITY, LIMITS

TIMES, PERCENTILE = "times average", "percentile"
# What counts as weak: less than an even share.
WEAK = {TIMES: 1.0, PERCENTILE: 50.0}
MEAN = -1


@dataclass(frozen=True)
class MapSettings:
    """How attention is drawn; ``head`` -1 is the mean of all."""

    head: Annotated[
        int,
        Hint(
            "a model looks in several ways at once; choose one alone",
            label="Attention head",
        ),
    ] = MEAN
    unit: Annotated[
        str,
        Hint(
            "times average is the same on every slide; percentiles use all colours on "
            "each, however even it is",
            label="Attention scale",
            choices=(TIMES, PERCENTILE),
            choice_labels=("Times average", "Percentiles of this slide"),
        ),
    ] = TIMES
    low: float = 0.0
    high: float = 4.0
    hides_weak: bool = False
    smoothing: float = 0.0
    opacity: float = 0.7
    kinds_opacity: float = FILL_OPACITY
    shows_attention: bool = True
    shows_classes: bool = True

    @property
    def limits(self) -> tuple[float, float]:
        return (self.low, self.high) if self.unit == TIMES else LIMITS[PERCENTILE]

    def head_of(self, heads: int) -> int:
        """The chosen head of a model that has so many; else the mean."""
        return self.head if self.head < heads else MEAN
