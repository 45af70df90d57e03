"""Scores of class shares, and their intervals by resampling patients.

Every score is a weighted one: with weights of 1 it is scikit-learn's, with the counts
of a bootstrap draw it is that of the drawn patients. So a score and its interval come
of one formula.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

DRAWS = 2000
LEVEL = 0.95
# A fold of more slides is compared in pieces, to bound memory.
MOST_PAIRS = 4_000_000

Floats = NDArray[np.float64]
# Of classes (n,), shares (n, classes) and weights (draws, n), a score for each draw.
Metric = Callable[[NDArray[np.integer], Floats, Floats], Floats]


@dataclass(frozen=True)
class Interval:
    """From ``low`` to ``high``; NaN where nothing can be resampled."""

    low: float
    high: float


@dataclass(frozen=True, eq=False)
class OutOfFold:
    """What was predicted of each slide by models that had not seen its patient.

    Attributes
    ----------
    y : (n,) class numbers
    fold : (n,)
        The fold in which each slide was asked; -1 where it was not.
    shares : (n, classes)
    """

    y: NDArray[np.int64]
    fold: NDArray[np.int64]
    shares: Floats

    def parts(self) -> list[tuple[NDArray[np.intp], NDArray[np.int64], Floats]]:
        """Rows, classes and shares of each fold."""
        found = [np.flatnonzero(self.fold == k) for k in np.unique(self.fold) if k >= 0]
        return [(rows, self.y[rows], self.shares[rows]) for rows in found]


def mean_class_accuracy(
    y: NDArray[np.integer], shares: Floats, weights: Floats
) -> Floats:
    """The mean over the classes present of the share of each that was found.

    Parameters
    ----------
    weights : (draws, n)

    Returns
    -------
    (draws,), NaN where a draw holds no slide.
    """
    right = shares.argmax(axis=1) == y
    found, present = _by_class(y, shares.shape[1], weights, right)
    with np.errstate(invalid="ignore", divide="ignore"):
        recall = np.where(present > 0, found / present, np.nan)
    return mean_of_known(recall)


def f1(y: NDArray[np.integer], shares: Floats, weights: Floats) -> Floats:
    """F1 of the second of two classes, else the mean over the classes present."""
    predicted, classes = shares.argmax(axis=1), shares.shape[1]
    found, present = _by_class(y, classes, weights, predicted == y)
    _, named = _by_class(predicted, classes, weights, predicted == y)
    total = present + named
    with np.errstate(invalid="ignore", divide="ignore"):
        score = np.where(total > 0, 2 * found / total, 0.0)
    if classes == 2:
        return np.where(present.sum(axis=1) > 0, score[:, 1], np.nan)
    return mean_of_known(np.where(present > 0, score, np.nan))


def auc(y: NDArray[np.integer], shares: Floats, weights: Floats) -> Floats:
    """The area under the ROC curve, one class against the rest, mean over classes.

    NaN where only one class is present.
    """
    classes = shares.shape[1]
    each = [
        _two_class_auc(y == one, shares[:, one], weights)
        for one in ((1,) if classes == 2 else range(classes))
    ]
    return mean_of_known(np.stack(each, axis=1))


def auprc(y: NDArray[np.integer], shares: Floats, weights: Floats) -> Floats:
    """Average precision, one class against the rest, mean over the classes present.

    Of two classes the second's. NaN where only one class is present.
    """
    classes = shares.shape[1]
    each = [
        _average_precision(y == one, shares[:, one], weights)
        for one in ((1,) if classes == 2 else range(classes))
    ]
    return mean_of_known(np.stack(each, axis=1))


def brier(y: NDArray[np.integer], shares: Floats, weights: Floats) -> Floats:
    """The mean squared distance of the shares from the truth: 0 is best.

    The sum over classes, halved for two, so that it is the usual Brier score there.
    """
    classes = shares.shape[1]
    error = ((shares - (y[:, None] == np.arange(classes))) ** 2).sum(axis=1)
    total = weights.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(total > 0, weights @ error / total, np.nan)
    return mean / 2 if classes == 2 else mean


def quadratic_kappa(y: NDArray[np.integer], shares: Floats, weights: Floats) -> Floats:
    """Agreement beyond chance, errors counted by the square of how far they are off.

    Class numbers must be in the order of the classes (``in_order``). NaN where truth
    and predictions are all of one class.
    """
    classes = shares.shape[1]
    pairs = y * classes + shares.argmax(axis=1)
    found = weights @ (pairs[:, None] == np.arange(classes**2)).astype(float)
    table = found.reshape(-1, classes, classes)
    far = np.subtract.outer(np.arange(classes), np.arange(classes)) ** 2.0
    chance = np.einsum("dij,dkl->dil", table, table, optimize=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        chance = chance / table.sum(axis=(1, 2))[:, None, None]
        expected = (far * chance).sum(axis=(1, 2))
        kappa = 1 - (far * table).sum(axis=(1, 2)) / expected
    return np.where(expected > 0, kappa, np.nan)


METRICS = {
    "accuracy": mean_class_accuracy,
    "f1": f1,
    "auc": auc,
    "auprc": auprc,
    "brier": brier,
}
# Of classes that have an order, such as grades.
ORDERED_METRICS = {"kappa": quadratic_kappa}
# What the table of an evaluation shows.
TABLE_METRICS = ("accuracy", "f1", "auc")
# Of which less is better.
ERRORS = frozenset({"brier"})


def metric_of(name: str) -> Metric:
    """The function of a score's name, of ``METRICS`` or ``ORDERED_METRICS``."""
    return METRICS[name] if name in METRICS else ORDERED_METRICS[name]


def in_order(run: OutOfFold, order: Sequence[int]) -> OutOfFold:
    """The same with classes renumbered: ``order`` holds their numbers, lowest first."""
    place = np.argsort(np.asarray(order))
    return OutOfFold(place[run.y], run.fold, run.shares[:, list(order)])


def fold_scores(found: OutOfFold, metric: str) -> Floats:
    """One score per fold, (folds,); NaN where a fold cannot be scored."""
    return np.array(
        [
            metric_of(metric)(y, shares, np.ones((1, len(y))))[0]
            for _, y, shares in found.parts()
        ]
    )


def mean_of_folds(
    runs: Sequence[OutOfFold], metric: str, weights: Floats | None = None
) -> Floats:
    """The mean over repeats and folds, for each draw of slides' weights, (draws,)."""
    each = []
    for run in runs:
        drawn = np.ones((1, len(run.y))) if weights is None else weights
        for rows, y, shares in run.parts():
            each.append(metric_of(metric)(y, shares, drawn[:, rows]))
    return mean_of_known(np.stack(each, axis=1))


def pooled_score(runs: Sequence[OutOfFold], metric: str) -> float:
    """The score of all folds' slides together, mean over repeats.

    For the AUC, scores of different folds' models are compared with one another then.
    """
    found = []
    for run in runs:
        asked = run.fold >= 0
        one = np.ones((1, int(asked.sum())))
        found.append(metric_of(metric)(run.y[asked], run.shares[asked], one)[0])
    return float(np.mean(found))


def of_patients(
    run: OutOfFold, patients: Sequence[str]
) -> tuple[OutOfFold, list[str], int]:
    """The same of patients: the mean of their asked slides' shares.

    Returns
    -------
    The patients' shares, their names in the same order, and how many patients are left
    out because their slides differ in label.
    """
    slides: dict[str, list[int]] = {}
    for row in np.flatnonzero(run.fold >= 0).tolist():
        slides.setdefault(patients[row], []).append(row)
    pure = {
        name: rows
        for name, rows in slides.items()
        if len(set(run.y[rows].tolist())) == 1
    }
    first = [rows[0] for rows in pure.values()]
    shares = [run.shares[rows].mean(axis=0) for rows in pure.values()]
    found = OutOfFold(
        run.y[first],
        run.fold[first],
        np.stack(shares) if shares else run.shares[:0],
    )
    return found, list(pure), len(slides) - len(pure)


def patient_weights(
    y: NDArray[np.integer],
    patients: Sequence[str],
    *,
    draws: int = DRAWS,
    seed: int = 0,
) -> Floats:
    """How often each slide is drawn when patients are, within their class.

    Patients whose slides have several classes are drawn among those that have the
    same ones. All slides of a patient come together.

    Returns
    -------
    (draws, n)
    """
    names, patient = np.unique(np.asarray(patients), return_inverse=True)
    strata: dict[tuple[int, ...], list[int]] = {}
    for one in range(len(names)):
        classes = tuple(np.unique(np.asarray(y)[patient == one]).tolist())
        strata.setdefault(classes, []).append(one)
    rng = np.random.default_rng([seed, 41])
    counts = np.zeros((draws, len(names)))
    for members in strata.values():
        equal = np.full(len(members), 1 / len(members))
        counts[:, members] = rng.multinomial(len(members), equal, size=draws)
    return counts[:, patient]


def asked_weights(runs: Sequence[OutOfFold], patients: Sequence[str]) -> Floats:
    """The same of the slides that any run asks; the others are never drawn.

    Patients who were only learned from are no part of the sample.
    """
    asked = np.flatnonzero(np.any([run.fold >= 0 for run in runs], axis=0))
    weights = np.zeros((DRAWS, len(patients)))
    chosen = [patients[row] for row in asked.tolist()]
    weights[:, asked] = patient_weights(runs[0].y[asked], chosen)
    return weights


def interval(values: Floats, level: float = LEVEL) -> Interval:
    """The middle ``level`` of bootstrap values; draws without a score do not count."""
    known = values[np.isfinite(values)]
    if len(known) < 2:
        return Interval(float("nan"), float("nan"))
    low, high = np.quantile(known, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high))


def _by_class(
    groups: NDArray[np.integer],
    classes: int,
    weights: Floats,
    right: NDArray[np.bool_],
) -> tuple[Floats, Floats]:
    """Weight of the right slides and of all, (draws, classes) each."""
    member = groups[:, None] == np.arange(classes)
    return weights @ (member & right[:, None]), weights @ member.astype(float)


def _two_class_auc(
    positive: NDArray[np.bool_], score: NDArray[np.floating], weights: Floats
) -> Floats:
    """The weighted share of pairs in the right order, ties counted as half."""
    high, low = score[positive], score[~positive]
    w_high, w_low = weights[:, positive], weights[:, ~positive]
    total = w_high.sum(axis=1) * w_low.sum(axis=1)
    won = np.zeros(len(weights))
    step = max(1, MOST_PAIRS // max(1, len(low)))
    for start in range(0, len(high), step):
        part = high[start : start + step, None]
        order = (part > low) + 0.5 * (part == low)
        won += ((w_high[:, start : start + step] @ order) * w_low).sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(total > 0, won / total, np.nan)


def _average_precision(
    positive: NDArray[np.bool_], score: NDArray[np.floating], weights: Floats
) -> Floats:
    """Precision at each distinct score, weighted by the recall that it adds."""
    order = np.argsort(-score, kind="stable")
    last = np.flatnonzero(np.append(np.diff(score[order]) != 0, True))
    found = np.full(len(weights), np.nan)
    step = max(1, MOST_PAIRS // max(1, len(score)))
    for start in range(0, len(weights), step):
        sorted_weights = weights[start : start + step, order]
        named = sorted_weights.cumsum(axis=1)[:, last]
        right = (sorted_weights * positive[order]).cumsum(axis=1)[:, last]
        added = np.diff(right, axis=1, prepend=0)
        total = right[:, -1]
        with np.errstate(invalid="ignore", divide="ignore"):
            precision = np.where(named > 0, right / named, 0.0)
            one = (precision * added).sum(axis=1) / total
        both = (total > 0) & (named[:, -1] > total)
        found[start : start + step] = np.where(both, one, np.nan)
    return found


def mean_of_known(values: Floats) -> Floats:
    """The mean of each row (draws, k) over what is known; NaN where nothing is."""
    known = np.isfinite(values)
    count = known.sum(axis=1)
    total = np.where(known, values, 0).sum(axis=1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
