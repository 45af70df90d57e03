"""Which slides are learned from and which are asked: folds, or a split as given."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedGroupKFold

Indices = NDArray[np.int64]
# The slides to learn from and those to ask, once per fold.
Parts = list[tuple[Indices, Indices]]


def patient_folds(
    y: NDArray[np.integer], patients: Sequence[str], folds: int, seed: int
) -> Parts:
    """Folds that share no patient, with the classes balanced.

    Parameters
    ----------
    y : (n,) class numbers
    patients : of each slide
    """
    groups = np.unique(patients, return_inverse=True)[1]
    splitter = StratifiedGroupKFold(folds, shuffle=True, random_state=seed)
    return list(splitter.split(y, y, groups))


def given_split(splits: Sequence[str | None]) -> Parts:
    """One part: learn from ``train``, ask ``test``; ``val`` is in neither."""
    named = np.array([split or "train" for split in splits])
    return [(np.flatnonzero(named == "train"), np.flatnonzero(named == "test"))]
