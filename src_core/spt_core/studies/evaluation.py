"""How good a model is: kNN, linear and its own classifier, in folds by patient.

Every slide goes through ``predict``, so that a table says of a model what its heatmap
will show.
"""

from collections.abc import Generator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from spt_core.errors import InputError
from spt_core.events import Note
from spt_core.insight.calibration import calibration_error, fit_temperature
from spt_core.learning.cohort import open_cohort
from spt_core.learning.model_file import SlideModel
from spt_core.studies.embeddings import EmbeddedSlides, embed_slides
from spt_core.studies.methods import (
    CALIBRATED,
    LINEAR,
    OWN,
    Shares,
    SharesByMethod,
    shares_in_folds,
)
from spt_core.studies.scores import METRICS, OutOfFold, fold_scores
from spt_core.studies.unseen import unseen_part
from spt_core.tokens import Labels, check_labels


@dataclass(frozen=True)
class EvaluationRow:
    """One line of the table.

    Attributes
    ----------
    values
        Of each metric its mean and standard deviation over folds and seeds.
    calibration_error
        Expected calibration error over all slides, mean over seeds.
    """

    method: str
    embedding: str
    values: dict[str, tuple[float, float]]
    calibration_error: float


@dataclass(frozen=True, eq=False)
class Evaluation:
    """A model's table, with what it was made from.

    Attributes
    ----------
    predictions
        For each slide its pseudonym, label, and each class's share by the own
        classifier where there is one, else by the linear one.
    temperature
        Fitted on all these slides' own scores; None without an own classifier.
    """

    rows: tuple[EvaluationRow, ...]
    classes: tuple[str, ...]
    slides: int
    patients: int
    folds: int
    seeds: int
    left_out: int
    predictions: list[dict[str, Any]] = field(default_factory=list)
    temperature: float | None = None
    remarks: tuple[str, ...] = ()

    def row(self, method: str, embedding: str = "whole") -> EvaluationRow:
        return next(
            r for r in self.rows if (r.method, r.embedding) == (method, embedding)
        )

    @property
    def calibration_helps(self) -> bool:
        """Whether temperatures of the other folds lower the calibration error."""
        if self.temperature is None:
            return False
        after = self.row(CALIBRATED).calibration_error
        return after < self.row(OWN).calibration_error


def evaluate(
    model: SlideModel,
    features: str | Path,
    labels: Labels,
    *,
    folds: int = 5,
    seeds: int = 1,
    key: bytes | None = None,
) -> Generator[Any, None, Evaluation]:
    """Evaluate a model on the labelled slides of a folder.

    Slides (and, with the run's ``key``, patients) that the model, or one that it began
    from, was trained on with labels are left out: it has seen their answers.
    """
    if folds < 2 or seeds < 1:
        raise InputError("An evaluation needs 2 folds or more, and 1 seed or more.")
    cohort = open_cohort(features, labels)
    names = [slide.name for slide in cohort]
    # These name slides and patients: for whoever runs this, not for the report.
    for remark in (*cohort.remarks, *check_labels(labels, names, supervised=True)):
        yield Note(remark)
    cohort, remarks = unseen_part(model, cohort, key)
    left_out = sum(1 for name in names if _labelled(labels, name)) - len(cohort)
    part = Labels(
        {slide.name: labels.by_slide[slide.name] for slide in cohort}, labels.remarks
    )
    check_labels(part, [slide.name for slide in cohort], supervised=True, folds=folds)
    for remark in remarks:
        yield Note(remark)
    slides = yield from embed_slides(model, cohort, features)
    classes = cohort.classes
    if slides.scores is None and model.classes:
        remarks.append("The labels are not the model's classes: its own are left out.")
    by_method = shares_in_folds(slides, len(classes), folds=folds, seeds=seeds)
    temperature = None
    if slides.scores is not None:
        temperature = fit_temperature(slides.scores["whole"], slides.y)
    found = Evaluation(
        rows=_table(by_method),
        classes=tuple(classes),
        slides=len(cohort),
        patients=len(set(slides.patients)),
        folds=folds,
        seeds=seeds,
        left_out=left_out,
        temperature=temperature,
        remarks=tuple(remarks),
    )
    best = _best_method(found)
    shares = by_method[best, "whole"][0].shares
    found = replace(found, predictions=_predictions(slides, classes, shares))
    if temperature is None or found.calibration_helps:
        return found
    remark = (
        "Temperature scaling does not lower the calibration error "
        f"({found.row(OWN).calibration_error:.3f} without, "
        f"{found.row(CALIBRATED).calibration_error:.3f} with it), so these slides do "
        "not calibrate the model."
    )
    yield Note(remark)
    return replace(found, remarks=(*found.remarks, remark))


def _labelled(labels: Labels, name: str) -> bool:
    row = labels.by_slide.get(name)
    return row is not None and row.label is not None


def _table(by_method: SharesByMethod) -> tuple[EvaluationRow, ...]:
    rows = []
    for (method, embedding), runs in by_method.items():
        values = {metric: _mean_and_deviation(runs, metric) for metric in METRICS}
        errors = [calibration_error(run.shares, run.y) for run in runs]
        rows.append(EvaluationRow(method, embedding, values, float(np.mean(errors))))
    return tuple(rows)


def _mean_and_deviation(runs: list[OutOfFold], metric: str) -> tuple[float, float]:
    """Over the folds of all seeds that can be scored."""
    found = np.concatenate([fold_scores(run, metric) for run in runs])
    found = found[np.isfinite(found)]
    mean = float(found.mean()) if len(found) else float("nan")
    return mean, float(found.std(ddof=1)) if len(found) > 1 else 0.0


def _best_method(found: Evaluation) -> str:
    """The own classifier before the linear one, calibrated where that helps."""
    if found.temperature is None:
        return LINEAR
    return CALIBRATED if found.calibration_helps else OWN


def _predictions(
    slides: EmbeddedSlides, classes: list[str], shares: Shares
) -> list[dict[str, Any]]:
    return [
        {
            "slide": name,
            "label": classes[label],
            **{c: round(float(s), 6) for c, s in zip(classes, share, strict=True)},
        }
        for name, label, share in zip(slides.pseudonyms, slides.y, shares, strict=True)
    ]
