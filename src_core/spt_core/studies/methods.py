"""The ways from embeddings to class shares, each in folds that share no patient."""

import numpy as np
import torch
from numpy.typing import NDArray

from spt_core.insight.calibration import fit_temperature, softmax
from spt_core.learning.linear_head import fit_linear_head
from spt_core.studies.embeddings import EMBEDDINGS, EmbeddedSlides
from spt_core.studies.folds import Indices, patient_folds
from spt_core.studies.scores import OutOfFold
from spt_core.training.knn import knn_probabilities

KNN = "kNN"
LINEAR = "linear"
OWN = "own classifier"
CALIBRATED = f"{OWN}, calibrated"

Shares = NDArray[np.float64]  # (n, classes)


# by method and embedding, one for each seed
SharesByMethod = dict[tuple[str, str], list[OutOfFold]]


def shares_in_folds(
    slides: EmbeddedSlides, classes: int, *, folds: int, seeds: int
) -> SharesByMethod:
    """Every slide's shares by each method when it was in the fold left out."""
    found: SharesByMethod = {}
    for seed in range(seeds):
        parts = list(patient_folds(slides.y, slides.patients, folds, seed))
        fold = np.zeros(len(slides.y), np.int64)
        for number, (_, asked) in enumerate(parts):
            fold[asked] = number
        for embedding in EMBEDDINGS:
            by_method = _by_method(slides, classes, embedding, parts)
            for method, shares in by_method.items():
                key = (method, embedding)
                found.setdefault(key, []).append(OutOfFold(slides.y, fold, shares))
    return found


def _by_method(
    slides: EmbeddedSlides,
    classes: int,
    embedding: str,
    parts: list[tuple[Indices, Indices]],
) -> dict[str, Shares]:
    h, y = slides.h[embedding], slides.y
    methods = [KNN, LINEAR]
    if slides.scores is not None:
        methods += [OWN, CALIBRATED]
    found = {name: np.zeros((len(y), classes)) for name in methods}
    for learn, asked in parts:
        found[KNN][asked] = knn_probabilities(h[learn], y[learn], h[asked], classes)
        head = fit_linear_head(h[learn], y[learn], [slides.patients[i] for i in learn])
        with torch.no_grad():
            found[LINEAR][asked] = softmax(
                head(torch.from_numpy(h[asked])).double().numpy()
            )
        if slides.scores is not None:
            own = slides.scores[embedding]
            found[OWN][asked] = softmax(own[asked])
            # Calibrated by the other folds alone.
            temperature = fit_temperature(own[learn], y[learn])
            found[CALIBRATED][asked] = softmax(own[asked], temperature)
    return found
