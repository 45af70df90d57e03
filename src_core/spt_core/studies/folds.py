"""Folds that share no patient."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedGroupKFold

Indices = NDArray[np.int64]


def patient_folds(
    y: NDArray[np.integer], patients: list[str], folds: int, seed: int
) -> Iterator[tuple[Indices, Indices]]:
    """For each fold the slides to learn from and those to ask, classes balanced.

    Parameters
    ----------
    y : (n,) class numbers
    patients : of each slide
    """
    groups = np.unique(patients, return_inverse=True)[1]
    splitter = StratifiedGroupKFold(folds, shuffle=True, random_state=seed)
    yield from splitter.split(y, y, groups)
