"""Nearest neighbours among embeddings: the quickest honest look at them."""

import numpy as np
from numpy.typing import NDArray

NEIGHBOURS = 10
TEMPERATURE = 0.07


def knn_probabilities(
    h_known: NDArray[np.floating],
    y_known: NDArray[np.integer],
    h_asked: NDArray[np.floating],
    classes: int,
    *,
    k: int = NEIGHBOURS,
    forbidden: NDArray[np.bool_] | None = None,
) -> NDArray[np.float64]:
    """Class shares by cosine similarity, votes weighted by exp(similarity / 0.07).

    Parameters
    ----------
    h_known, y_known : (m, dim), (m,) class numbers
    h_asked : (n, dim)
    k
        Neighbours; all of them where fewer are known.
    forbidden : (n, m), True where a neighbour must not vote (itself, its patient)

    Returns
    -------
    (n, classes), rows sum to 1 (all equal where nobody may vote)
    """
    similarity = _unit(h_asked) @ _unit(h_known).T
    if forbidden is not None:
        similarity = np.where(forbidden, -np.inf, similarity)
    k = min(k, similarity.shape[1])
    nearest = np.argpartition(-similarity, k - 1, axis=1)[:, :k]
    near = np.take_along_axis(similarity, nearest, axis=1)
    votes = np.exp((near - 1) / TEMPERATURE)
    shares = np.zeros((len(h_asked), classes))
    rows = np.repeat(np.arange(len(h_asked)), k)
    np.add.at(shares, (rows, y_known[nearest].ravel()), votes.ravel())
    total = shares.sum(axis=1, keepdims=True)
    return np.where(total > 0, shares / np.where(total > 0, total, 1), 1 / classes)


def mean_class_accuracy(
    y: NDArray[np.integer], predicted: NDArray[np.integer]
) -> float:
    """The mean over classes of the share of each that was found."""
    return float(np.mean([(predicted[y == one] == one).mean() for one in np.unique(y)]))


def _unit(h: NDArray[np.floating]) -> NDArray[np.float64]:
    h = np.asarray(h, dtype=np.float64)
    return h / np.maximum(np.linalg.norm(h, axis=1, keepdims=True), 1e-12)
