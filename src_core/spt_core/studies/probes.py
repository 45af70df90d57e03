"""What is asked of finished embeddings: nearest neighbours, linear, a small network."""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from spt_core.insight.calibration import softmax
from spt_core.learning.linear_head import fit_linear_head
from spt_core.studies.benchmark_result import MLP
from spt_core.studies.divisions import Division
from spt_core.studies.methods import KNN, LINEAR
from spt_core.studies.scores import Floats, mean_class_accuracy
from spt_core.training.knn import knn_probabilities

PERMUTATIONS = 20
HIDDEN = 128


def probe_shares(
    h: NDArray[np.floating],
    y: NDArray[np.int64],
    patients: list[str],
    division: Division,
    classes: int,
    *,
    mlp: bool = False,
    seed: int = 0,
) -> dict[str, Floats]:
    """The asked slides' class shares by each probe.

    Probes learn from the training and the validation part together; the validation
    part chooses the strength of the linear one before, where there is one.

    Parameters
    ----------
    h, y : (n, dim), (n,) of all slides
    """
    known = np.concatenate([division.train, division.val])
    chooses = np.arange(len(known)) >= len(division.train)
    asked = division.test
    found = {KNN: knn_probabilities(h[known], y[known], h[asked], classes)}
    columns = np.ix_(np.arange(len(asked)), np.unique(y[known]))
    shares = np.zeros((len(asked), classes))
    # A class that is missing from the part is never named.
    if len(np.unique(y[known])) == 1:
        shares[columns] = 1.0
        return {**found, LINEAR: shares}
    head = fit_linear_head(
        h[known],
        y[known],
        [patients[i] for i in known],
        chooses=chooses if chooses.any() else None,
    )
    with torch.no_grad():
        scores = head(torch.from_numpy(np.asarray(h[asked], np.float32)))
    shares[columns] = softmax(scores.double().numpy())
    found[LINEAR] = shares
    if mlp:
        network = make_pipeline(
            StandardScaler(),
            MLPClassifier((HIDDEN,), alpha=1e-2, max_iter=400, random_state=seed),
        ).fit(h[known], y[known])
        found[MLP] = np.zeros_like(shares)
        found[MLP][columns] = network.predict_proba(h[asked])
    return found


def site_shares(
    h: NDArray[np.floating],
    sites: NDArray[np.int64],
    patients: list[str],
    asked: NDArray[np.int64],
    count: int,
) -> Floats:
    """kNN of each asked slide's site; all slides of other patients vote."""
    voters = np.flatnonzero(sites >= 0)
    named = np.asarray(patients, dtype=object)
    return knn_probabilities(
        h[voters],
        sites[voters],
        h[asked],
        count,
        forbidden=named[asked][:, None] == named[voters][None, :],
    )


def permuted_labels(
    y: NDArray[np.int64], patients: list[str], rows: NDArray[np.int64], seed: int
) -> NDArray[np.int64]:
    """Labels of patients given to other patients with as many slides, if there are.

    Patients keep their slides together: each gets the labels of one other patient. So
    the numbers of patients per class stay, and what is learned is nothing.

    Parameters
    ----------
    rows
        The slides that have a label; others keep -1.
    """
    rng = np.random.default_rng([seed, 59])
    names, patient = np.unique(
        np.asarray([patients[i] for i in rows]), return_inverse=True
    )
    slides = [rows[patient == number] for number in range(len(names))]
    found = y.copy()
    order = rng.permutation(len(names))
    for own, other in enumerate(order):
        theirs = y[slides[other]]
        found[slides[own]] = np.resize(theirs, len(slides[own]))
    return found


def control_scores(
    h: NDArray[np.floating],
    y: NDArray[np.int64],
    patients: list[str],
    rows: NDArray[np.int64],
    division: Division,
    classes: int,
) -> dict[str, Floats]:
    """Mean class accuracy of each probe with labels permuted, (PERMUTATIONS,)."""
    found: dict[str, list[float]] = {}
    for false in _permutations(y, patients, rows):
        shares = probe_shares(h, false, patients, division, classes)
        asked = false[division.test]
        for probe, one in shares.items():
            score = mean_class_accuracy(asked, one, np.ones((1, len(asked))))[0]
            found.setdefault(probe, []).append(float(score))
    return {probe: np.array(scores) for probe, scores in found.items()}


def _permutations(
    y: NDArray[np.int64], patients: list[str], rows: NDArray[np.int64]
) -> Iterator[NDArray[np.int64]]:
    for number in range(PERMUTATIONS):
        yield permuted_labels(y, patients, rows, number)
