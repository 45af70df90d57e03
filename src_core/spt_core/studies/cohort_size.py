"""How large a cohort must be: what pooled features already tell, in seconds.

The learning curve is of mean-pooled features, asked by kNN and a linear classifier in
folds that share no patient. The interval at other sizes follows from the one of today:
it narrows with the square root of the number of patients.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, sqrt

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from spt_core.errors import InputError
from spt_core.learning.cohort import Cohort, CohortSlide
from spt_core.studies.folds import Indices, patient_folds
from spt_core.studies.methods import KNN, LINEAR
from spt_core.studies.scores import (
    OutOfFold,
    interval,
    mean_of_folds,
    patient_weights,
)
from spt_core.training.knn import knn_probabilities

# Half the width of the 95 % interval that is aimed at: 5 points.
TARGET = 0.05
PER_CLASS = (2, 5, 10, 20, 40, 80, 160, 320)
DRAWS = 5
# Of slides whose features are in files, rows that are read; of the linear classifier,
# the directions in which slides differ most that it sees.
MOST_TOKENS = 2000
MOST_DIRECTIONS = 256


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation over drawings of folds and patients."""

    mean: float
    sd: float


@dataclass(frozen=True)
class CurvePoint:
    """Mean class accuracy when so many patients are learned from.

    Attributes
    ----------
    per_class
        Patients of each class; None where all that there are.
    patients
        In all, mean over folds.
    values
        By probe.
    """

    per_class: int | None
    patients: float
    values: dict[str, Spread]


@dataclass(frozen=True)
class CohortPlan:
    """The learning curve so far, and the interval to expect of more patients.

    Attributes
    ----------
    patients_of
        By class; slides where patients are not known.
    probe
        The better of kNN and linear with all patients; the interval is of it.
    half_width
        Of its 95 % interval with these patients.
    expected
        The same with other numbers of patients.
    needed
        Patients for a half width of ``target``.
    """

    slides: int
    patients: int
    patients_of: dict[str, int]
    is_patient_known: bool
    folds: int
    curve: tuple[CurvePoint, ...]
    probe: str
    score: float
    half_width: float
    expected: tuple[tuple[int, float], ...]
    needed: int
    target: float = TARGET
    remarks: tuple[str, ...] = ()


def plan(cohort: Cohort, *, folds: int = 5, seed: int = 0) -> CohortPlan:
    """Look at a cohort's labelled slides by mean-pooled features."""
    cohort = cohort.subset(i for i, slide in enumerate(cohort) if slide.label)
    y, patients = cohort.class_numbers(), np.array(cohort.patients())
    if len(cohort.classes) < 2:
        raise InputError("A plan needs labelled slides of two classes or more.")
    counts = [len(np.unique(patients[y == k])) for k in range(len(cohort.classes))]
    if min(counts) < 2:
        name = cohort.classes[int(np.argmin(counts))]
        raise InputError(
            f"Class {name!r} has one patient: a plan needs two or more of each class."
        )
    remarks = []
    if min(counts) < folds:
        folds = min(counts)
        remarks.append(
            f"The smallest class has {folds} patients, so there are {folds} folds."
        )
    means = np.stack([_mean_token(slide) for slide in cohort])
    curve, runs = _curve(means, y, patients, folds, seed)
    probe = max((KNN, LINEAR), key=lambda name: curve[-1].values[name].mean)
    half_width = _half_width(runs[probe], patients.tolist())
    total = len(np.unique(patients))
    needed = ceil(total * (half_width / TARGET) ** 2)
    sizes = sorted({total, 2 * total, 4 * total, max(needed, 2 * len(counts))})
    return CohortPlan(
        slides=len(cohort),
        patients=total,
        patients_of=dict(zip(cohort.classes, counts, strict=True)),
        is_patient_known=all(slide.patient for slide in cohort),
        folds=folds,
        curve=curve,
        probe=probe,
        score=curve[-1].values[probe].mean,
        half_width=half_width,
        expected=tuple((n, half_width * sqrt(total / n)) for n in sizes),
        needed=needed,
        remarks=tuple(remarks),
    )


def plan_text(found: CohortPlan) -> str:
    """The plan as Markdown."""
    groups = "patients" if found.is_patient_known else "slides"
    of_class = ", ".join(f"{name} {n}" for name, n in found.patients_of.items())
    words = [
        "# How large must the cohort be?",
        f"{found.slides} slides of {found.patients} {groups} ({of_class}). Mean-pooled "
        f"features, tested in {found.folds} folds that share none of the {groups}.",
        "## The learning curve so far",
        f"Mean class accuracy by the number of {groups} learned from, mean ± standard "
        "deviation over drawings of them. Chance is "
        f"{1 / len(found.patients_of):.3f}.",
        _table(
            [f"{groups} per class", f"{groups} in all", KNN, LINEAR],
            [
                [
                    "all" if one.per_class is None else str(one.per_class),
                    f"{one.patients:.0f}",
                    *(
                        f"{one.values[name].mean:.3f} ± {one.values[name].sd:.3f}"
                        for name in (KNN, LINEAR)
                    ),
                ]
                for one in found.curve
            ],
        ),
        _trend(found, groups),
        "## The interval to expect",
        f"With these {found.patients} {groups} the 95 % interval of {found.probe} is "
        f"{found.score:.3f} ± {found.half_width:.3f}. It narrows with the square root "
        f"of the number of {groups}, if the score and the shares of the classes stay "
        "as they are:",
        _table(
            [groups, "half the interval's width"],
            [[str(n), f"± {100 * half:.1f} points"] for n, half in found.expected],
        ),
        _verdict(found, groups),
        *found.remarks,
    ]
    return "\n\n".join(words) + "\n"


def _trend(found: CohortPlan, groups: str) -> str:
    if len(found.curve) < 2:
        return f"There are too few {groups} for a curve."
    last = found.curve[-1]
    halves = [one for one in found.curve if one.patients <= 0.6 * last.patients]
    before = halves[-1] if halves else found.curve[0]
    rise = last.values[found.probe].mean - before.values[found.probe].mean
    noise = max(last.values[found.probe].sd, before.values[found.probe].sd)
    still = "still rises" if rise > noise else "hardly rises any more"
    return (
        f"From {before.patients:.0f} to {last.patients:.0f} {groups} {found.probe} "
        f"changes by {100 * rise:+.1f} points: the curve {still}. Trained models may "
        "gain more from more slides than pooling does."
    )


def _verdict(found: CohortPlan, groups: str) -> str:
    aim = f"± {100 * found.target:.0f} points"
    if found.needed <= found.patients:
        return f"These {groups} are enough for {aim}."
    return f"For {aim} about {found.needed} {groups} are needed."


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _mean_token(slide: CohortSlide) -> NDArray[np.float64]:
    """The mean of the slide's tokens, of evenly spread ones where it has many."""
    if slide.x is not None:
        x = np.asarray(slide.x, np.float64)
    else:
        count = min(len(slide), MOST_TOKENS)
        rows = np.linspace(0, len(slide) - 1, count).astype(np.int64)
        stored = np.empty((count, slide.source.shape[1]), slide.source.dtype)
        slide.read(rows, stored)
        x = stored.astype(np.float64)
    known = x[np.isfinite(x).all(axis=1)]
    return known.mean(axis=0) if len(known) else np.zeros(x.shape[1])


def _curve(
    means: NDArray[np.float64],
    y: Indices,
    patients: NDArray[np.str_],
    folds: int,
    seed: int,
) -> tuple[tuple[CurvePoint, ...], dict[str, list[OutOfFold]]]:
    """A point for each number of patients, and the runs that learned from all."""
    reduced = _directions(means)
    classes = int(y.max()) + 1
    scores: dict[tuple[int | None, str], list[float]] = {}
    learned: dict[int | None, list[int]] = {}
    runs: dict[str, list[OutOfFold]] = {KNN: [], LINEAR: []}
    for draw in range(DRAWS):
        rng = np.random.default_rng([seed, draw, 59])
        parts = patient_folds(y, patients.tolist(), folds, seed + draw)
        fold = np.empty(len(y), np.int64)
        for number, (_, asked) in enumerate(parts):
            fold[asked] = number
        orders = [_order(y[learn], patients[learn], rng) for learn, _ in parts]
        most = min(int(np.bincount(order.y).min()) for order in orders)
        for size in (*(n for n in PER_CLASS if n < most), None):
            shares = {name: np.zeros((len(y), classes)) for name in (KNN, LINEAR)}
            for (learn, asked), order in zip(parts, orders, strict=True):
                names = order.first(size)
                rows = learn[np.isin(patients[learn], names)]
                learned.setdefault(size, []).append(len(names))
                shares[KNN][asked] = knn_probabilities(
                    means[rows], y[rows], means[asked], classes
                )
                shares[LINEAR][np.ix_(asked, np.unique(y[rows]))] = _linear(
                    reduced[rows], y[rows], reduced[asked]
                )
            for name, found in shares.items():
                run = OutOfFold(y, fold, found)
                score = float(mean_of_folds([run], "accuracy")[0])
                scores.setdefault((size, name), []).append(score)
                if size is None:
                    runs[name].append(run)
    points = [
        CurvePoint(
            size,
            float(np.mean(learned[size])),
            {
                name: Spread(
                    float(np.mean(scores[size, name])),
                    float(np.std(scores[size, name])),
                )
                for name in (KNN, LINEAR)
            },
        )
        for size in sorted(learned, key=lambda n: np.inf if n is None else n)
    ]
    return tuple(points), runs


@dataclass(frozen=True, eq=False)
class _Order:
    """Patients in an order by chance, with the class of each (its first slide's)."""

    names: NDArray[np.str_]
    y: Indices

    def first(self, per_class: int | None) -> NDArray[np.str_]:
        if per_class is None:
            return self.names
        rows = [np.flatnonzero(self.y == k)[:per_class] for k in np.unique(self.y)]
        return self.names[np.concatenate(rows)]


def _order(y: Indices, patients: NDArray[np.str_], rng: np.random.Generator) -> _Order:
    names, first = np.unique(patients, return_index=True)
    mixed = rng.permutation(len(names))
    return _Order(names[mixed], y[first][mixed])


def _directions(means: NDArray[np.float64]) -> NDArray[np.float64]:
    """Standardised features in the directions in which slides differ most.

    No label is used, and with fewer slides than that nothing is lost: a linear
    classifier answers the same, in a fraction of the time.
    """
    spread = means.std(axis=0)
    z = (means - means.mean(axis=0)) / np.where(spread > 0, spread, 1)
    u, s, _ = np.linalg.svd(z, full_matrices=False)
    return (u * s)[:, :MOST_DIRECTIONS]


def _linear(
    h: NDArray[np.float64], y: Indices, h_asked: NDArray[np.float64]
) -> NDArray[np.float64]:
    if len(np.unique(y)) < 2:
        return np.ones((len(h_asked), 1))
    fitted = LogisticRegression(C=1.0, max_iter=500, class_weight="balanced").fit(h, y)
    return fitted.predict_proba(h_asked)


def _half_width(runs: Sequence[OutOfFold], patients: list[str]) -> float:
    """Half of the 95 % interval; never less than counts of right answers allow.

    Resampling patients that are all right would promise certainty, so it is compared
    with the binomial interval of patients with two right and two wrong ones added.
    """
    y = runs[0].y
    bounds = interval(mean_of_folds(runs, "accuracy", patient_weights(y, patients)))
    names = np.asarray(patients)
    right = np.mean([run.shares.argmax(axis=1) == y for run in runs], axis=0)
    variances = []
    for k in np.unique(y):
        count = len(np.unique(names[y == k]))
        share = (right[y == k].mean() * count + 2) / (count + 4)
        variances.append(share * (1 - share) / (count + 4))
    binomial = 1.96 * sqrt(sum(variances)) / len(variances)
    return max((bounds.high - bounds.low) / 2, binomial)
