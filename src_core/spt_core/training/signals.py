"""What the embeddings of a model in training look like: signals of learning."""

from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Validation:
    """What the embeddings look like after some step.

    Attributes
    ----------
    spread
        Standard deviation of unit-length embeddings: 1 = equal in all directions,
        0 = one point.
    effective_rank
        How many directions they use (exponential of the singular values' entropy).
    knn
        Mean class accuracy of nearest neighbours, where there are labels.
    loss
        Of the classifier that is trained, on slides held out: cross-entropy, the mean
        over classes.
    site_knn
        Mean accuracy of nearest neighbours for the site, where slides of two sites or
        more are known: how well the scanner can be told.
    """

    step: int
    spread: float
    effective_rank: float
    knn: float | None = None
    loss: float | None = None
    site_knn: float | None = None

    @property
    def knn_gap(self) -> float | None:
        """By how much the class is told better than the site."""
        if self.knn is None or self.site_knn is None:
            return None
        return self.knn - self.site_knn


@dataclass(frozen=True)
class AskedOf:
    """Among how many classes and sites, and of how many patients, neighbours vote."""

    classes: int
    sites: int
    patients: int


def tells_site_better(site: float, sites: int, label: float, classes: int) -> bool:
    """Whether neighbours tell the site better than the class, chance aside.

    One of two sites is guessed more often than one of five classes.
    """
    return site > label and _above_chance(site, sites) > _above_chance(label, classes)


def _above_chance(accuracy: float, kinds: int) -> float:
    """0 where one of so many kinds is guessed, 1 where all are right."""
    chance = 1 / max(kinds, 1)
    return (accuracy - chance) / (1 - chance) if kinds > 1 else 0.0


def spread(h: NDArray[np.floating]) -> float:
    unit = h / np.maximum(np.linalg.norm(h, axis=1, keepdims=True), 1e-12)
    return float(unit.std(axis=0).mean() * sqrt(h.shape[1]))


def effective_rank(h: NDArray[np.floating]) -> float:
    if not np.isfinite(h).all():  # of tokens that hold NaN: the step will say so
        return float("nan")
    values = np.linalg.svd(h - h.mean(axis=0), compute_uv=False)
    total = values.sum()
    if total < 1e-12:
        return 1.0
    share = values / total
    share = share[share > 0]
    return float(np.exp(-(share * np.log(share)).sum()))
