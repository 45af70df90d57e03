"""Whether 0.8 means eight in ten: temperature scaling and calibration error."""

import numpy as np
from numpy.typing import NDArray

BINS = 10
_TEMPERATURES = np.geomspace(0.05, 20, 121)


def softmax(
    logits: NDArray[np.floating], temperature: float = 1.0
) -> NDArray[np.float64]:
    """Class shares (..., classes) of scores."""
    scores = np.asarray(logits, np.float64) / temperature
    scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return scores / scores.sum(axis=-1, keepdims=True)


def negative_log_likelihood(
    logits: NDArray[np.floating], y: NDArray[np.integer], temperature: float
) -> float:
    scores = np.asarray(logits, np.float64) / temperature
    top = scores.max(axis=1, keepdims=True)
    total = np.log(np.exp(scores - top).sum(axis=1)) + top[:, 0]
    return float(np.mean(total - scores[np.arange(len(y)), y]))


def fit_temperature(logits: NDArray[np.floating], y: NDArray[np.integer]) -> float:
    """The temperature under which the labels (n,) are most likely.

    Few slides that are all right would ask for certainty; so it is held between 0.05
    and 20, and one slide's worth of doubt (all classes alike) is added.
    """
    logits = np.asarray(logits, np.float64)
    classes = logits.shape[1]
    doubt = np.tile(logits, (classes, 1))
    every = np.repeat(np.arange(classes), len(logits))
    weight = 1 / len(logits)
    losses = [
        negative_log_likelihood(logits, y, t)
        + weight * negative_log_likelihood(doubt, every, t)
        for t in _TEMPERATURES
    ]
    return float(_TEMPERATURES[int(np.argmin(losses))])


def calibration_error(
    probabilities: NDArray[np.floating], y: NDArray[np.integer], bins: int = BINS
) -> float:
    """Expected calibration error: |confidence - accuracy|, weighted by bin counts."""
    confidence = probabilities.max(axis=1)
    right = probabilities.argmax(axis=1) == y
    place = np.minimum((confidence * bins).astype(int), bins - 1)
    error = 0.0
    for one in np.unique(place):
        members = place == one
        gap = abs(confidence[members].mean() - right[members].mean())
        error += members.mean() * gap
    return float(error)
