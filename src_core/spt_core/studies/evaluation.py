"""How good a model is: kNN, linear and its own classifier, in folds by patient.

Every slide goes through ``predict``, so that a table says of a model what its heatmap
will show.
"""

import warnings
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import f1_score, roc_auc_score
from sklearn.model_selection import StratifiedGroupKFold

from spt_core.errors import InputError
from spt_core.events import Note, Progress
from spt_core.insight.calibration import calibration_error, fit_temperature, softmax
from spt_core.insight.class_map import mean_window_embedding
from spt_core.insight.predicting import (
    device_of,
    fingerprint_of,
    logits,
    predict,
    read_for,
)
from spt_core.insight.results import pseudonym
from spt_core.learning.cohort import (
    Cohort,
    CohortSlide,
    feature_files,
    open_cohort,
)
from spt_core.learning.knn import knn_probabilities, mean_class_accuracy
from spt_core.learning.linear_head import fit_linear_head
from spt_core.learning.model_card import Stage
from spt_core.learning.model_file import SlideModel
from spt_core.tokens import Labels, check_labels

METRICS = ("accuracy", "f1", "auc")
EMBEDDINGS = ("whole", "windows")
OWN = "own classifier"
CALIBRATED = f"{OWN}, calibrated"

Shares = NDArray[np.float64]


@dataclass(frozen=True)
class Row:
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

    rows: tuple[Row, ...]
    classes: tuple[str, ...]
    slides: int
    patients: int
    folds: int
    seeds: int
    left_out: int
    predictions: list[dict[str, Any]] = field(default_factory=list)
    temperature: float | None = None
    remarks: tuple[str, ...] = ()

    def row(self, method: str, embedding: str = "whole") -> Row:
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


@dataclass(frozen=True, eq=False)
class _Slides:
    """What is known of each slide: embeddings, own scores, class, patient."""

    h: dict[str, NDArray[np.float32]]
    scores: dict[str, Shares] | None
    y: NDArray[np.int64]
    patients: list[str]
    names: list[str]


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
    cohort, remarks = _fair_part(model, cohort, key)
    left_out = sum(1 for name in names if _labelled(labels, name)) - len(cohort)
    part = Labels(
        {slide.name: labels.by_slide[slide.name] for slide in cohort}, labels.remarks
    )
    check_labels(part, [slide.name for slide in cohort], supervised=True, folds=folds)
    for remark in remarks:
        yield Note(remark)
    known = yield from _look_at_all(model, cohort, features)
    classes = cohort.classes
    if known.scores is None and model.classes:
        remarks.append("The labels are not the model's classes: its own are left out.")
    pooled = _in_folds(known, len(classes), folds, seeds)
    rows, shares = _table(known, pooled)
    temperature = None
    if known.scores is not None:
        temperature = fit_temperature(known.scores["whole"], known.y)
    found = Evaluation(
        rows=rows,
        classes=tuple(classes),
        slides=len(cohort),
        patients=len(set(known.patients)),
        folds=folds,
        seeds=seeds,
        left_out=left_out,
        predictions=_predictions(known, classes, shares),
        temperature=temperature,
        remarks=tuple(remarks),
    )
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


def _fair_part(
    model: SlideModel, cohort: Cohort, key: bytes | None
) -> tuple[Cohort, list[str]]:
    """The labelled slides whose answers the model has not learned, and remarks."""
    slides = {i: slide for i, slide in enumerate(cohort) if slide.label}
    prints = {i: slide.fingerprint() for i, slide in slides.items()}

    def seen_in(stage: Stage) -> set[int]:
        return {
            i
            for i, slide in slides.items()
            if stage.has_slide(prints[i])
            or (key and slide.patient and stage.has_patient(slide.patient, key))
        }

    stages = model.stages()
    remarks = _unchecked(stages, list(slides.values()), key)
    seen = set().union(*(seen_in(stage) for stage in stages))
    told = set().union(*(seen_in(stage) for stage in stages if stage.with_labels))
    if seen - told:
        remarks.append(
            f"The model was trained, without labels, on {len(seen - told)} of these "
            "slides."
        )
    if told:
        remarks.append(
            f"{len(told)} slides are left out: the model was trained with their labels."
        )
    if told and len(told) == len(slides):
        raise InputError(
            "The model was trained with the labels of all these slides or their "
            "patients: nothing is left that it has not seen. Evaluate it on others."
        )
    return cohort.subset(i for i in slides if i not in told), remarks


def _unchecked(
    stages: list[Stage], slides: list[CohortSlide], key: bytes | None
) -> list[str]:
    """What cannot be said of whether the model knows these slides."""
    remarks = []
    if not all(stage.known for stage in stages):
        remarks.append(
            "The model began from another, and does not say what that was trained on: "
            "slides that it saw are not left out."
        )
    keyed = [stage for stage in stages if stage.patient_hmacs]
    if not any(slide.patient for slide in slides) or not keyed:
        return remarks
    if key is None:
        remarks.append(
            "Whether the model was trained on these patients is not checked: the key "
            "of its run is not beside it. Give --patients-key."
        )
    elif not all(stage.same_key for stage in keyed):
        remarks.append(
            "Whether an earlier stage of the model's training had these patients is "
            "not checked: it kept them under another key."
        )
    return remarks


def _look_at_all(
    model: SlideModel, cohort: Cohort, features: str | Path
) -> Generator[Progress, None, _Slides]:
    classes = cohort.classes
    own = bool(model.classes) and set(classes) <= set(model.classes)
    columns = [model.classes.index(name) for name in classes] if own else []
    paths = {path.stem: path for path in feature_files(features)}
    h: dict[str, list] = {name: [] for name in EMBEDDINGS}
    scores: dict[str, list] = {name: [] for name in EMBEDDINGS}
    names = []
    for done, slide in enumerate(cohort, start=1):
        tokens = read_for(model, paths[slide.name])
        prediction = predict(model, tokens, always_named=True)
        h["whole"].append(prediction.embedding)
        h["windows"].append(mean_window_embedding(model, tokens))
        names.append(pseudonym(fingerprint_of(tokens)))
        if own:
            for name in EMBEDDINGS:
                embedding = torch.from_numpy(h[name][-1]).to(device_of(model))
                scores[name].append(logits(model, embedding)[columns])
        yield Progress(done, len(cohort), message="embedding slides")
    return _Slides(
        {name: np.stack(found) for name, found in h.items()},
        {name: np.stack(found) for name, found in scores.items()} if own else None,
        cohort.class_numbers(),
        cohort.patients(),
        names,
    )


# by method and embedding, for each seed: the fold of each slide, and its shares
Pooled = dict[tuple[str, str], list[tuple[NDArray[np.int64], Shares]]]


def _in_folds(known: _Slides, classes: int, folds: int, seeds: int) -> Pooled:
    """Every slide's shares by each method when it was in the fold left out."""
    pooled: Pooled = {}
    y = known.y
    for seed in range(seeds):
        fold_of = np.zeros(len(y), np.int64)
        parts = list(_split(known, folds, seed))
        for number, (_, asked) in enumerate(parts):
            fold_of[asked] = number
        for embedding in EMBEDDINGS:
            found = _empty_shares(known, classes)
            h = known.h[embedding]
            for learn, asked in parts:
                found["kNN"][asked] = knn_probabilities(
                    h[learn], y[learn], h[asked], classes
                )
                head = fit_linear_head(
                    h[learn], y[learn], [known.patients[i] for i in learn]
                )
                with torch.no_grad():
                    out = head(torch.from_numpy(h[asked])).double().numpy()
                found["linear"][asked] = softmax(out)
                if known.scores is not None:
                    own = known.scores[embedding]
                    found[OWN][asked] = softmax(own[asked])
                    # Calibrated by the other folds alone.
                    warmth = fit_temperature(own[learn], y[learn])
                    found[CALIBRATED][asked] = softmax(own[asked], warmth)
            for method, shares in found.items():
                pooled.setdefault((method, embedding), []).append((fold_of, shares))
    return pooled


def _empty_shares(known: _Slides, classes: int) -> dict[str, Shares]:
    methods = ["kNN", "linear"]
    if known.scores is not None:
        methods += [OWN, CALIBRATED]
    return {name: np.zeros((len(known.y), classes)) for name in methods}


def _split(
    known: _Slides, folds: int, seed: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    groups = np.unique(known.patients, return_inverse=True)[1]
    splitter = StratifiedGroupKFold(folds, shuffle=True, random_state=seed)
    yield from splitter.split(known.y, known.y, groups)


def _table(known: _Slides, pooled: Pooled) -> tuple[tuple[Row, ...], Shares]:
    rows = []
    best: Shares | None = None
    errors: dict[str, float] = {}
    for (method, embedding), runs in pooled.items():
        each = [
            _scores(known.y[fold_of == fold], shares[fold_of == fold])
            for fold_of, shares in runs
            for fold in np.unique(fold_of)
        ]
        values = {}
        for metric in METRICS:
            found = np.array([one[metric] for one in each])
            found = found[np.isfinite(found)]
            mean = float(found.mean()) if len(found) else float("nan")
            spread = float(found.std(ddof=1)) if len(found) > 1 else 0.0
            values[metric] = (mean, spread)
        error = float(np.mean([calibration_error(s, known.y) for _, s in runs]))
        rows.append(Row(method, embedding, values, error))
        if embedding != "whole":
            continue
        errors[method] = error
        # The own classifier before the linear one, calibrated where that helps.
        if method in ("linear", OWN) or (method == CALIBRATED and error < errors[OWN]):
            best = runs[0][1]
    if best is None:
        raise RuntimeError("no method was evaluated")
    return tuple(rows), best


def _scores(y: NDArray[np.int64], shares: Shares) -> dict[str, float]:
    """Mean class accuracy, F1 and AUC of one fold; AUC is NaN with one class."""
    classes = shares.shape[1]
    predicted = shares.argmax(axis=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a class that a small fold lacks
        if classes == 2:
            f1 = f1_score(y, predicted, average="binary", zero_division=0)
        else:
            f1 = f1_score(
                y, predicted, average="macro", labels=np.unique(y), zero_division=0
            )
    aucs = [
        roc_auc_score(y == one, shares[:, one])
        for one in ((1,) if classes == 2 else range(classes))
        if 0 < np.sum(y == one) < len(y)
    ]
    return {
        "accuracy": mean_class_accuracy(y, predicted),
        "f1": float(f1),
        "auc": float(np.mean(aucs)) if aucs else float("nan"),
    }


def _predictions(
    known: _Slides, classes: list[str], shares: Shares
) -> list[dict[str, Any]]:
    return [
        {
            "slide": name,
            "label": classes[label],
            **{c: round(float(s), 6) for c, s in zip(classes, share, strict=True)},
        }
        for name, label, share in zip(known.names, known.y, shares, strict=True)
    ]
