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
    """

    step: int
    spread: float
    effective_rank: float
    knn: float | None = None
    loss: float | None = None


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
