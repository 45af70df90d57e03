"""Whether shares mean what they say: the calibration slope, and a reliability plot."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq, minimize

from spt_core.insight.calibration import BINS, softmax

# A share of 0 that is wrong would be wrong without bound.
SMALLEST = 1e-6
STEEPEST = 1e4


class ReliabilityBin(NamedTuple):
    """Slides of about one confidence, and how many of them were right."""

    confidence: float
    right: float
    slides: int


def calibration_slope(y: NDArray[np.integer], shares: NDArray[np.floating]) -> float:
    """1 where shares are calibrated, below 1 where they are too sure of themselves.

    Of two classes the slope of a logistic regression of the second on its log odds; of
    more, the power to which all shares are raised so that the labels are most likely.

    Parameters
    ----------
    y : (n,) class numbers
    shares : (n, classes)

    Returns
    -------
    NaN where no slope is best: one class only, or all slides in perfect order.
    """
    y = np.asarray(y)
    log_shares = np.log(np.clip(np.asarray(shares, np.float64), SMALLEST, 1))
    if len(y) == 0 or len(np.unique(y)) < 2:
        return float("nan")
    if log_shares.shape[1] == 2:
        return _two_class_slope(y == 1, log_shares[:, 1] - log_shares[:, 0])
    return _shared_slope(y, log_shares)


def reliability(
    y: NDArray[np.integer], shares: NDArray[np.floating], bins: int = BINS
) -> list[ReliabilityBin]:
    """The bins of the calibration error that hold slides, from unsure to sure."""
    confidence = shares.max(axis=1)
    right = shares.argmax(axis=1) == y
    place = np.minimum((confidence * bins).astype(int), bins - 1)
    return [
        ReliabilityBin(
            float(confidence[place == one].mean()),
            float(right[place == one].mean()),
            int((place == one).sum()),
        )
        for one in np.unique(place)
    ]


def _two_class_slope(
    positive: NDArray[np.bool_], log_odds: NDArray[np.float64]
) -> float:
    high, low = log_odds[positive], log_odds[~positive]
    if low.max() <= high.min() or high.max() <= low.min():
        return float("nan")
    sign = np.where(positive, 1.0, -1.0)
    columns = np.stack([np.ones_like(log_odds), log_odds], axis=1)

    def loss(values: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        margin = sign * (columns @ values)
        wrong = np.exp(-np.logaddexp(0, margin))
        return float(np.logaddexp(0, -margin).mean()), -(sign * wrong) @ columns / len(
            sign
        )

    found = minimize(loss, np.array([0.0, 1.0]), jac=True, method="BFGS")
    return float(found.x[1])


def _shared_slope(y: NDArray[np.integer], log_shares: NDArray[np.float64]) -> float:
    true = log_shares[np.arange(len(y)), y]
    if (true == log_shares.max(axis=1)).all() or (true == log_shares.min(axis=1)).all():
        return float("nan")

    def rise(slope: float) -> float:
        mixed = softmax(slope * log_shares)
        return float((true - (mixed * log_shares).sum(axis=1)).mean())

    # The likelihood is concave, so its slope falls and crosses zero once.
    reach = 1.0
    while reach < STEEPEST and (rise(-reach) < 0 or rise(reach) > 0):
        reach *= 2
    return float(brentq(rise, -reach, reach)) if reach < STEEPEST else float("nan")
