"""Whether one method is better than another, on the same slides in the same folds."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite, lcm

import numpy as np
from numpy.typing import NDArray

from spt_core.studies.scores import (
    DRAWS,
    Floats,
    OutOfFold,
    interval,
    mean_of_folds,
    mean_of_known,
    metric_of,
    patient_weights,
)

PERMUTATIONS = 2000
NAN = float("nan")


@dataclass(frozen=True)
class Difference:
    """Ours minus theirs, of one score.

    Attributes
    ----------
    mean, low, high
        The difference and its 95 % interval over patients: each draw of patients
        scores both methods.
    p
        How often as large a difference comes of swapping the two methods' predictions,
        patient by patient; two-sided. NaN where no run of both can be compared.
    p_holm
        The same after Holm's correction for all comparisons of a table.
    """

    mean: float
    low: float
    high: float
    p: float
    p_holm: float | None = None


def paired_difference(
    ours: Sequence[OutOfFold],
    theirs: Sequence[OutOfFold],
    patients: Sequence[str],
    metric: str,
    *,
    draws: int = DRAWS,
    permutations: int = PERMUTATIONS,
    seed: int = 0,
) -> Difference:
    """Compare two methods by their runs of one cohort.

    A method's score is the mean over its runs. Runs in the same folds are paired; where
    one method has more of them (training seeds, say), the other's are repeated in turn
    until both come out even. Slides that only one of a pair was asked are left out.

    Parameters
    ----------
    patients
        Of each slide, in the order of the runs' rows.
    """
    pairs = list(_pairs(ours, theirs))
    if not pairs:
        return Difference(NAN, NAN, NAN, NAN)
    first, second = [a for a, _ in pairs], [b for _, b in pairs]
    asked = np.any([run.fold >= 0 for run in first], axis=0)
    first, second = ([_rows(run, asked) for run in runs] for runs in (first, second))
    names = np.asarray(patients)[asked]
    groups = np.unique(names, return_inverse=True)[1]

    weights = patient_weights(first[0].y, names.tolist(), draws=draws, seed=seed)
    drawn = mean_of_folds(first, metric, weights) - mean_of_folds(
        second, metric, weights
    )
    bounds = interval(drawn)
    observed = float(mean_of_folds(first, metric)[0] - mean_of_folds(second, metric)[0])
    if not isfinite(observed):
        return Difference(NAN, NAN, NAN, NAN)
    rng = np.random.default_rng([seed, 47])
    swaps = rng.random((permutations, int(groups.max()) + 1)) < 0.5
    by_chance = _swapped_differences(first, second, metric, swaps[:, groups])
    # Differences that are equal but for rounding count as equal.
    count = int((np.abs(by_chance) >= abs(observed) - 1e-9).sum())
    return Difference(
        observed, bounds.low, bounds.high, (1 + count) / (1 + permutations)
    )


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's correction; values that are NaN stay so and do not count."""
    known = sorted((p, i) for i, p in enumerate(p_values) if isfinite(p))
    found, highest = [NAN] * len(p_values), 0.0
    for rank, (p, i) in enumerate(known):
        highest = max(highest, min(1.0, (len(known) - rank) * p))
        found[i] = highest
    return found


def _swapped_differences(
    ours: Sequence[OutOfFold],
    theirs: Sequence[OutOfFold],
    metric: str,
    swaps: NDArray[np.bool_],
) -> Floats:
    """The difference for each pattern of swapped slides (permutations, n).

    Both methods' predictions stand one under the other, with weight 1 where they are
    taken and 0 where not: so any weighted score is that of the mixture.
    """
    score = metric_of(metric)
    scores_ours, scores_theirs = [], []
    for a, b in zip(ours, theirs, strict=True):
        for rows, y, shares in a.parts():
            swapped = swaps[:, rows].astype(float)
            both_y = np.concatenate([y, y])
            both_shares = np.concatenate([shares, b.shares[rows]])
            taken = np.concatenate([1 - swapped, swapped], axis=1)
            scores_ours.append(score(both_y, both_shares, taken))
            scores_theirs.append(score(both_y, both_shares, 1 - taken))
    return mean_of_known(np.stack(scores_ours, axis=1)) - mean_of_known(
        np.stack(scores_theirs, axis=1)
    )


def _pairs(
    ours: Sequence[OutOfFold], theirs: Sequence[OutOfFold]
) -> Iterator[tuple[OutOfFold, OutOfFold]]:
    """Runs of both in the same folds, on the slides that both were asked."""
    left = list(ours)
    while left:
        like = [run for run in left if _same_folds(left[0], run)]
        left = [run for run in left if not any(run is one for one in like)]
        others = [run for run in theirs if _same_folds(like[0], run)]
        if not others:
            continue
        for i in range(lcm(len(like), len(others))):
            a, b = like[i % len(like)], others[i % len(others)]
            fold = np.where(b.fold >= 0, a.fold, -1)
            if (fold >= 0).any():
                yield OutOfFold(a.y, fold, a.shares), OutOfFold(b.y, fold, b.shares)


def _same_folds(a: OutOfFold, b: OutOfFold) -> bool:
    """Whether two runs are in the same folds, of which some may be missing in one.

    They agree wherever both were asked; and as single parts of several drawings agree
    too, they must share two folds or one must hold all slides of the other.
    """
    asked_a, asked_b = a.fold >= 0, b.fold >= 0
    both = asked_a & asked_b
    if not both.any() or (a.fold[both] != b.fold[both]).any():
        return False
    is_within = (both == asked_a).all() or (both == asked_b).all()
    return bool(is_within or len(np.unique(a.fold[both])) > 1)


def _rows(run: OutOfFold, kept: NDArray[np.bool_]) -> OutOfFold:
    return OutOfFold(run.y[kept], run.fold[kept], run.shares[kept])
