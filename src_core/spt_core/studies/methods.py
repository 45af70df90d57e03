"""The ways from embeddings to class shares of slides that were not learned from."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from spt_core.insight.calibration import fit_temperature, softmax
from spt_core.learning.linear_head import fit_linear_head
from spt_core.studies.embeddings import EMBEDDINGS, EmbeddedSlides
from spt_core.studies.folds import Indices, Parts
from spt_core.studies.scores import OutOfFold
from spt_core.training.knn import knn_probabilities

KNN = "kNN"
LINEAR = "linear"
OWN = "own classifier"
CALIBRATED = f"{OWN}, calibrated"

# By method and embedding, one for each model and each drawing of the folds.
SharesByMethod = dict[tuple[str, str], list[OutOfFold]]


def shares_by_method(
    slides: EmbeddedSlides,
    repeats: Sequence[Parts],
    *,
    classes: int,
    unlearned: NDArray[np.bool_] | None = None,
) -> SharesByMethod:
    """Every asked slide's shares by each method, fitted on the slides of its part.

    Parameters
    ----------
    repeats
        The parts of each drawing of the folds.
    unlearned : (n,)
        Slides whose labels the model has not learned; a temperature is fitted on
        these alone. All, where not given.
    """
    found: SharesByMethod = {}
    for parts in repeats:
        fold = np.full(len(slides.y), -1, np.int64)
        for number, (_, asked) in enumerate(parts):
            fold[asked] = number
        for embedding in EMBEDDINGS:
            h, y = slides.h[embedding], slides.y
            runs = {KNN: _knn(h, y, parts, classes)}
            runs[LINEAR] = _linear(h, y, slides.patients, parts, classes)
            for method, shares in runs.items():
                key = (method, embedding)
                found.setdefault(key, []).append(OutOfFold(y, fold, shares))
            if slides.scores is None or slides.own_y is None:
                continue
            own, own_y = slides.scores[embedding], slides.own_y
            plain = OutOfFold(own_y, fold, softmax(own))
            found.setdefault((OWN, embedding), []).append(plain)
            tempered = _calibrated(own, own_y, parts, unlearned)
            if tempered is not None:
                calibrated = OutOfFold(own_y, fold, tempered)
                found.setdefault((CALIBRATED, embedding), []).append(calibrated)
    return found


def _knn(
    h: NDArray[np.floating], y: NDArray[np.int64], parts: Parts, classes: int
) -> NDArray[np.float64]:
    shares = np.zeros((len(y), classes))
    for learn, asked in parts:
        shares[asked] = knn_probabilities(h[learn], y[learn], h[asked], classes)
    return shares


def _linear(
    h: NDArray[np.floating],
    y: NDArray[np.int64],
    patients: Sequence[str],
    parts: Parts,
    classes: int,
) -> NDArray[np.float64]:
    shares = np.zeros((len(y), classes))
    for learn, asked in parts:
        head = fit_linear_head(h[learn], y[learn], [patients[i] for i in learn])
        with torch.no_grad():
            scores = head(torch.from_numpy(h[asked])).double().numpy()
        # A class that is missing from the part is never named.
        columns = np.ix_(asked, np.unique(y[learn]))
        shares[columns] = softmax(scores)
    return shares


def _calibrated(
    scores: NDArray[np.float64],
    y: NDArray[np.int64],
    parts: Parts,
    unlearned: NDArray[np.bool_] | None,
) -> NDArray[np.float64] | None:
    """Shares by a temperature of the other slides; None where it cannot be fitted."""
    shares = np.zeros_like(scores)
    for learn, asked in parts:
        usable: Indices = learn if unlearned is None else learn[unlearned[learn]]
        if len(usable) == 0:
            return None
        shares[asked] = softmax(
            scores[asked], fit_temperature(scores[usable], y[usable])
        )
    return shares
