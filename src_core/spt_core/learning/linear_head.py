"""A linear classifier fitted on finished embeddings: logistic regression."""

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedGroupKFold
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from spt_core.training.knn import mean_class_accuracy

STRENGTHS = (0.01, 0.1, 1.0, 10.0)
INNER_FOLDS = 3


def fit_linear_head(
    h: NDArray[np.floating],
    y: NDArray[np.integer],
    patients: list[str],
    *,
    chooses: NDArray[np.bool_] | None = None,
) -> nn.Linear:
    """Fit on embeddings (n, dim) and class numbers; standardisation is folded in.

    Parameters
    ----------
    chooses : (n,)
        A part that chooses the strength C, of classes that the rest has too. Without
        one, C is chosen by folds within, which share no patient, where the smallest
        class has patients enough; else it is 1. The head is fitted on all.
    """
    h = np.asarray(h, np.float64)
    groups = np.unique(patients, return_inverse=True)[1]
    enough = min(len(np.unique(groups[y == one])) for one in np.unique(y))
    strength = 1.0
    parts = None
    if chooses is not None and set(y[chooses]) <= set(y[~chooses]):
        parts = [(np.flatnonzero(~chooses), np.flatnonzero(chooses))]
    elif enough >= INNER_FOLDS:
        splitter = StratifiedGroupKFold(INNER_FOLDS, shuffle=True, random_state=0)
        parts = list(splitter.split(h, y, groups))
    if parts is not None:
        scores = [
            np.mean([_score(c, h, y, *part) for part in parts]) for c in STRENGTHS
        ]
        strength = STRENGTHS[int(np.argmax(scores))]
    fitted = _classifier(strength).fit(h, y)
    scaler, regression = fitted[0], fitted[1]
    weight = regression.coef_ / scaler.scale_
    bias = regression.intercept_ - weight @ scaler.mean_
    if len(weight) == 1:  # two classes share one row: p = sigmoid(s)
        weight = np.concatenate([-weight, weight]) / 2
        bias = np.concatenate([-bias, bias]) / 2
    head = nn.Linear(h.shape[1], len(weight))
    with torch.no_grad():
        head.weight.copy_(torch.from_numpy(weight))
        head.bias.copy_(torch.from_numpy(bias))
    return head


def _score(
    strength: float,
    h: NDArray[np.floating],
    y: NDArray[np.integer],
    learn: NDArray[np.integer],
    asked: NDArray[np.integer],
) -> float:
    fitted = _classifier(strength).fit(h[learn], y[learn])
    return mean_class_accuracy(y[asked], fitted.predict(h[asked]))


def _classifier(strength: float) -> Pipeline:
    return make_pipeline(
        StandardScaler(),
        LogisticRegression(C=strength, max_iter=2000, class_weight="balanced"),
    )
