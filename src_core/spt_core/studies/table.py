"""The rows of an evaluation's table: scores of slides, and of patients."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spt_core.insight.calibration import calibration_error
from spt_core.studies.methods import SharesByMethod
from spt_core.studies.scores import (
    TABLE_METRICS,
    OutOfFold,
    asked_weights,
    fold_scores,
    interval,
    mean_of_folds,
    of_patients,
    pooled_score,
)

SLIDES, PATIENTS = "slides", "patients"


@dataclass(frozen=True)
class Score:
    """One score: mean and standard deviation over folds, repeats and models.

    ``low`` and ``high`` bound the 95 % interval from resampling patients.
    """

    mean: float
    sd: float
    low: float
    high: float


@dataclass(frozen=True)
class EvaluationRow:
    """One line of the table.

    Attributes
    ----------
    level
        Of ``slides``, or of ``patients`` by the mean of their slides' shares.
    pooled_auc
        Of all folds' slides together, though their scores are of different models.
    calibration_error
        Expected calibration error, mean over repeats and models.
    """

    method: str
    embedding: str
    level: str
    values: dict[str, Score]
    pooled_auc: float
    calibration_error: float


def table_rows(
    by_method: SharesByMethod, patients: list[str], level: str
) -> list[EvaluationRow]:
    """A row for each method and embedding, of slides or of patients."""
    rows = []
    for (method, embedding), runs in by_method.items():
        groups = patients
        if level == PATIENTS:
            pooled = [of_patients(run, patients) for run in runs]
            runs, groups = [one for one, _, _ in pooled], pooled[0][1]
        weights = asked_weights(runs, groups)
        errors = [
            calibration_error(run.shares[run.fold >= 0], run.y[run.fold >= 0])
            for run in runs
        ]
        rows.append(
            EvaluationRow(
                method,
                embedding,
                level,
                {metric: score_of(runs, metric, weights) for metric in TABLE_METRICS},
                pooled_score(runs, "auc"),
                float(np.mean(errors)),
            )
        )
    return rows


def score_of(runs: list[OutOfFold], metric: str, weights: NDArray[np.float64]) -> Score:
    each = np.concatenate([fold_scores(run, metric) for run in runs])
    each = each[np.isfinite(each)]
    bounds = interval(mean_of_folds(runs, metric, weights))
    return Score(
        float(each.mean()) if len(each) else float("nan"),
        float(each.std(ddof=1)) if len(each) > 1 else 0.0,
        bounds.low,
        bounds.high,
    )
