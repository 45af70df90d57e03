"""Which of many patches are in memory: a window that moves along a fixed order."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Window:
    """A function of the epoch alone, so that a run can go on at any of them.

    After each epoch the ``fresh`` oldest make room for the next ones in the order,
    which begins again at its end. All come equally often, and none is there twice.
    """

    total: int
    held: int
    fresh: int = 0

    @classmethod
    def of(cls, total: int, held: int, share: float) -> "Window":
        """A window that renews a share of what it holds; none of it if it holds all."""
        held = min(held, total)
        return cls(total, held, ceil(share * held) if held < total else 0)

    def at(self, epoch: int) -> NDArray[np.int64]:
        """(held,) places in the order; what stays keeps its own place here."""
        first = epoch * self.fresh
        slots = np.arange(self.held)
        if self.held == 0:
            return slots
        return (first + (slots - first) % self.held) % self.total

    def used(self, epoch: int) -> int:
        """How many of the order have been in memory by an epoch."""
        return min(self.total, self.held + epoch * self.fresh)


def held_in(sizes: Sequence[int], memory: int) -> int:
    """How many in a row fit in memory, wherever in the order the window is."""
    count = len(sizes)
    if sum(sizes) <= memory:
        return count
    around = np.cumsum([0, *sizes, *sizes])
    ends = np.searchsorted(around, around[:count] + memory, side="right") - 1
    return int((ends - np.arange(count)).min())
