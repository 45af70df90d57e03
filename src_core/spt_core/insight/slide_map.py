"""A map of slides as plain data: which are alike, and which are like no other."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# How far a slide is from so many neighbours says how unusual it is.
NEIGHBOURS = 5


@dataclass(frozen=True, eq=False)
class MapOfSlides:
    """n slides by what one model, or mean pooling, makes of them.

    Attributes
    ----------
    names
        As their feature files are called.
    pseudonyms
        What exports call them.
    h : (n, dim)
        Embeddings of length 1.
    directions : (n, 2)
        Places by the two directions in which the embeddings differ most.
    neighbours : (n, 2) or None
        Places by which those that are alike lie together; None before that is known.
    classes
        Of the model's own answers; none where it has none.
    shares : (n, classes) or None
    learned : (n,)
        Whether the model has learned from the slide.
    unusual : (n,)
        How far each is from its neighbours, in times of what is usual.
    by_themselves
        Slides that were judged by themselves alone, by a model that judges a slide
        among others of its site.
    """

    names: tuple[str, ...]
    pseudonyms: tuple[str, ...]
    h: NDArray[np.float32]
    directions: NDArray[np.float32]
    neighbours: NDArray[np.float32] | None
    classes: tuple[str, ...]
    shares: NDArray[np.float32] | None
    learned: NDArray[np.bool_]
    unusual: NDArray[np.float32]
    by_themselves: int = 0

    def __len__(self) -> int:
        return len(self.names)

    @property
    def predicted(self) -> tuple[str | None, ...]:
        """The model's answer for each slide; None without answers."""
        if self.shares is None:
            return (None,) * len(self)
        return tuple(self.classes[best] for best in self.shares.argmax(axis=1))

    def distances(self, slide: int) -> NDArray[np.float32]:
        """Of all slides to one: 0 where alike, 1 unrelated, 2 opposite, (n,)."""
        return np.clip(1 - self.h @ self.h[slide], 0, 2)

    def nearest(self, slide: int, count: int) -> list[tuple[int, float]]:
        """The slides that one is most like, with their distances."""
        far = self.distances(slide)
        far[slide] = np.inf
        order = np.argsort(far, kind="stable")[: min(count, len(self) - 1)]
        return [(int(one), float(far[one])) for one in order]


def unusualness(h: NDArray[np.floating]) -> NDArray[np.float32]:
    """How far rows (n, dim) of length 1 are from their neighbours, (n,).

    In times of what is usual. Takes seconds for 10,000: not for a window.
    """
    n = len(h)
    k = min(NEIGHBOURS, n - 1)
    if k < 1:
        return np.ones(n, np.float32)
    far = np.empty(n, np.float32)
    for start in range(0, n, 1024):
        part = np.clip(1 - h[start : start + 1024] @ h.T, 0, 2)
        rows = np.arange(len(part))
        part[rows, rows + start] = np.inf
        far[start : start + 1024] = np.partition(part, k - 1)[:, :k].mean(axis=1)
    usual = float(np.median(far))
    return far / usual if usual > 0 else np.ones(n, np.float32)


def unit_length(h: NDArray[np.floating]) -> NDArray[np.float32]:
    """Embeddings (n, dim) divided by their length."""
    h = np.asarray(h, np.float32)
    return h / np.maximum(np.linalg.norm(h, axis=1, keepdims=True), 1e-12)
