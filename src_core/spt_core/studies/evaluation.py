"""How good a model is: kNN, linear and its own classifier, on slides it has not seen.

Every slide goes through ``predict``, so that a table says of a model what its heatmap
will show. With a split in the labels, ``train`` is learned from and ``test`` is asked;
without one, slides are asked in folds that share no patient.
"""

from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from spt_core.errors import InputError
from spt_core.events import Note
from spt_core.insight.calibration import fit_temperature
from spt_core.learning.cohort import Cohort, open_cohort
from spt_core.learning.model_file import SlideModel
from spt_core.studies.embeddings import (
    EmbeddedSlides,
    embed_slides,
    knowing_sites,
    pooling_model,
)
from spt_core.studies.encoder_leakage import encoder_remarks, find_encoder
from spt_core.studies.folds import Parts, given_split, patient_folds
from spt_core.studies.methods import (
    CALIBRATED,
    LINEAR,
    OWN,
    SharesByMethod,
    shares_by_method,
)
from spt_core.studies.scores import DRAWS, of_patients
from spt_core.studies.table import PATIENTS, SLIDES, EvaluationRow, table_rows
from spt_core.studies.unseen import KnownSlides, known_slides
from spt_core.tokens import Labels, check_labels

FEW_PATIENTS = 10


@dataclass(frozen=True, eq=False)
class Evaluation:
    """A model's table, with what it was made from.

    Attributes
    ----------
    slides, patients
        That were asked; None where the patients are not known.
    learned_from
        Slides of the split ``train``; None in folds.
    models
        How many models, such as of several training seeds.
    left_out
        Labelled slides that the models learned with their labels.
    mixed_patients
        Patients whose slides differ in label, which have no row of their own.
    predictions
        For each slide what it is called, its label, and each class's share by the own
        classifier where there is one, else by the linear one.
    temperature
        Fitted on all asked slides' own scores; None without an own classifier.
    """

    rows: tuple[EvaluationRow, ...]
    classes: tuple[str, ...]
    slides: int
    patients: int | None
    folds: int | None
    repeats: int
    models: int
    left_out: int
    learned_from: int | None = None
    mixed_patients: int = 0
    predictions: list[dict[str, Any]] = field(default_factory=list)
    temperature: float | None = None
    remarks: tuple[str, ...] = ()
    draws: int = DRAWS
    seed: int = 0

    def row(
        self, method: str, embedding: str = "whole", level: str = SLIDES
    ) -> EvaluationRow:
        return next(
            row
            for row in self.rows
            if (row.method, row.embedding, row.level) == (method, embedding, level)
        )

    @property
    def calibration_helps(self) -> bool:
        """Whether temperatures of other slides lower the calibration error."""
        if not any(row.method == CALIBRATED for row in self.rows):
            return False
        after = self.row(CALIBRATED).calibration_error
        return after < self.row(OWN).calibration_error


def evaluate(
    model: SlideModel | str | Sequence[SlideModel],
    features: str | Path,
    labels: Labels,
    *,
    folds: int = 5,
    repeats: int = 1,
    keys: Sequence[bytes | None] = (),
    encoder: str | Path | None = None,
    ignore_split: bool = False,
    site: str | None = None,
    include_slide_names: bool = False,
) -> Generator[Any, None, Evaluation]:
    """Evaluate a model on the labelled slides of a folder.

    Slides (and, with the run's key, patients) that the model, or one that it began
    from, was trained on with labels are never asked: it has seen their answers.

    Parameters
    ----------
    model
        One, or several of one kind, such as of three training seeds; or ``mean`` or
        ``max`` for pooling, which needs no training.
    repeats
        How often the folds are drawn.
    keys
        Of the models' runs, by which their patients are known.
    encoder
        The file of the patch encoder that made the features, where it is not one that
        is known by its name: slides that it was trained on are remarked.
    ignore_split
        Ask all slides in folds, whatever the labels say of splits.
    site
        Where the slides are from whose site the labels do not state.
    """
    if folds < 2 or repeats < 1:
        raise InputError("An evaluation needs 2 folds or more, and 1 repeat or more.")
    cohort = open_cohort(features, labels)
    if site is not None:
        cohort = cohort.from_site(site)
    names = cohort.names
    # These name slides and patients: for whoever runs this, not for the report.
    yield from cohort.notes()
    for remark in check_labels(labels, names, supervised=True):
        yield Note(remark)
    if isinstance(model, str):
        model = pooling_model(model, cohort)
    models = [model] if isinstance(model, SlideModel) else list(model)
    splits = labels.has_splits and not ignore_split
    whole = cohort
    cohort = cohort.subset(i for i, slide in enumerate(cohort) if slide.label)
    known = [
        known_slides(one, cohort, key)
        for one, key in zip(models, _padded(keys, len(models)), strict=True)
    ]
    cohort, known, remarks, left_out = _fair(cohort, known, splits=splits)
    repeated = _parts(cohort, labels, folds, repeats, splits=splits)
    remarks += _remarks(cohort, labels, known, repeated)
    encoder_card, encoder_key = find_encoder(cohort, encoder)
    if encoder_card is not None:
        remarks += encoder_remarks(encoder_card, cohort, encoder_key)
    knowing = [knowing_sites(one, cohort, whole) for one in models]
    models = [one for one, _ in knowing]
    remarks += dict.fromkeys(said for _, all_said in knowing for said in all_said)
    for remark in remarks:
        yield Note(remark)
    embedded = []
    for one in models:
        embedded.append((yield from embed_slides(one, cohort, features)))
    if embedded[0].scores is None and models[0].classes:
        remarks.append("The labels are not the model's classes: its own are left out.")
    by_method: SharesByMethod = {}
    for slides, one_known in zip(embedded, known, strict=True):
        unlearned = np.array([i not in one_known.learned for i in range(len(cohort))])
        runs = shares_by_method(
            slides, repeated, classes=len(cohort.classes), unlearned=unlearned
        )
        for key, found_runs in runs.items():
            by_method.setdefault(key, []).extend(found_runs)
    found = _result(
        cohort, labels, embedded, by_method, repeated, remarks, models, left_out
    )
    found = replace(
        found,
        folds=None if splits else folds,
        learned_from=len(repeated[0][0][0]) if splits else None,
        predictions=_predictions(
            found, embedded[0], by_method, models[0], include_slide_names
        ),
    )
    if found.temperature is None or found.calibration_helps:
        return found
    remark = _no_calibration(found)
    yield Note(remark)
    return replace(found, remarks=(*found.remarks, remark))


def _padded(keys: Sequence[bytes | None], count: int) -> list[bytes | None]:
    return [*keys, *[None] * count][:count]


def _fair(
    cohort: Cohort, known: list[KnownSlides], *, splits: bool
) -> tuple[Cohort, list[KnownSlides], list[str], int]:
    """The slides that may take part, and what is said of those that may not.

    In folds every slide is asked, so none may have been learned with its label. Of a
    split the slides of ``test`` are asked alone; those learned from may vote.
    """
    learned = frozenset().union(*(one.learned for one in known))
    asked = {i for i, slide in enumerate(cohort) if not splits or slide.split == "test"}
    out = learned & asked
    if asked and asked <= out:
        raise InputError(
            "The model was trained with the labels of all these slides or their "
            "patients: nothing is left that it has not seen. Evaluate it on others; "
            "or give the labels a column 'split', train on its 'train' and evaluate "
            "on its 'test'; or let 'spt benchmark' train and test in folds."
        )
    remarks = list(dict.fromkeys(text for one in known for text in one.remarks))
    seen = (frozenset().union(*(one.seen for one in known)) - learned) & asked
    if seen:
        remarks.append(
            f"The model was trained, without labels, on {len(seen)} of these slides."
        )
    if out:
        remarks.append(
            f"{len(out)} slides are left out: the model was trained with their labels."
        )
    kept = [i for i in range(len(cohort)) if i not in out]
    place = {old: new for new, old in enumerate(kept)}

    def moved(numbers: frozenset[int]) -> frozenset[int]:
        return frozenset(place[i] for i in numbers if i in place)

    known = [
        replace(
            one,
            learned=moved(one.learned),
            seen=moved(one.seen),
            chose=moved(one.chose),
        )
        for one in known
    ]
    return cohort.subset(kept), known, remarks, len(out)


def _parts(
    cohort: Cohort, labels: Labels, folds: int, repeats: int, *, splits: bool
) -> list[Parts]:
    y, patients = cohort.class_numbers(), cohort.patients()
    if splits:
        parts = given_split([slide.split for slide in cohort])
        learn, asked = parts[0]
        if len(asked) == 0:
            raise InputError(
                "The labels have a split, and no slide of it is 'test': there is "
                "nothing to test. Name some, or test all slides in folds with "
                "--ignore-split."
            )
        missing = sorted(set(y[asked]) - set(y[learn]))
        if missing:
            names = ", ".join(cohort.classes[i] for i in missing)
            raise InputError(
                f"No slide of the split 'train' has the label {names}, which slides "
                "of 'test' have: there is nothing to learn it from."
            )
        return [parts]
    part = Labels({slide.name: labels.by_slide[slide.name] for slide in cohort})
    check_labels(part, [slide.name for slide in cohort], supervised=True, folds=folds)
    return [patient_folds(y, patients, folds, seed) for seed in range(repeats)]


def _remarks(
    cohort: Cohort, labels: Labels, known: list[KnownSlides], repeated: list[Parts]
) -> list[str]:
    """What the reader of the table must know of the slides that were asked."""
    asked = np.unique(np.concatenate([part for _, part in repeated[0]]))
    remarks = []
    chose = frozenset().union(*(one.chose for one in known)) & set(asked.tolist())
    if chose:
        remarks.append(
            f"The labels of {len(chose)} of the tested slides chose the model's epoch: "
            "its scores on them are too high."
        )
    unknown = sum(not cohort[int(i)].patient for i in asked)
    if unknown == len(asked):
        remarks.append(
            "The patients are not known: slides of one person may be both learned from "
            "and tested, which makes scores too high and intervals too narrow. Give a "
            "column 'patient'."
        )
    elif unknown:
        remarks.append(
            f"The patients of {unknown} slides are not known; each counts as a patient "
            "of its own."
        )
    patients = cohort.patients()
    pairs = {(cohort[int(i)].label, patients[int(i)]) for i in asked}
    groups = "patients" if not unknown else "slides"
    for name, count in sorted(Counter(label for label, _ in pairs).items(), key=str):
        if count < FEW_PATIENTS:
            remarks.append(
                f"Class {name} has {count} {groups}: its scores rest on very few."
            )
    return remarks


def _result(
    cohort: Cohort,
    labels: Labels,
    embedded: list[EmbeddedSlides],
    by_method: SharesByMethod,
    repeated: list[Parts],
    remarks: list[str],
    models: list[SlideModel],
    left_out: int,
) -> Evaluation:
    asked = np.unique(np.concatenate([part for _, part in repeated[0]]))
    patients = cohort.patients()
    is_known = all(cohort[int(i)].patient for i in asked)
    asked_patients = {patients[int(i)] for i in asked}
    rows = table_rows(by_method, patients, SLIDES)
    mixed = 0
    if is_known and len(asked_patients) < len(asked):
        first = next(iter(by_method.values()))[0]
        _, pure, mixed = of_patients(first, patients)
        rows += table_rows(by_method, patients, PATIENTS) if pure else []
    temperature = None
    slides = embedded[0]
    if slides.scores is not None and slides.own_y is not None:
        temperature = fit_temperature(
            slides.scores["whole"][asked], slides.own_y[asked]
        )
    if mixed:
        remarks.append(
            f"{mixed} patients have slides of different labels: they are in the rows "
            "of slides alone."
        )
    return Evaluation(
        rows=tuple(rows),
        classes=tuple(cohort.classes),
        slides=len(asked),
        patients=len(asked_patients) if is_known else None,
        folds=None,
        repeats=len(repeated),
        models=len(models),
        left_out=left_out,
        mixed_patients=mixed,
        temperature=temperature,
        remarks=tuple(remarks),
    )


def _predictions(
    found: Evaluation,
    slides: EmbeddedSlides,
    by_method: SharesByMethod,
    model: SlideModel,
    include_slide_names: bool,
) -> list[dict[str, Any]]:
    """Each asked slide's shares by the best answer there is, mean over all runs."""
    method = LINEAR
    if found.temperature is not None:
        method = CALIBRATED if found.calibration_helps else OWN
    runs = by_method[method, "whole"]
    shares = np.mean([run.shares for run in runs], axis=0)
    columns = found.classes if method == LINEAR else model.classes
    called = slides.names if include_slide_names else slides.pseudonyms
    return [
        {
            "slide": called[i],
            "label": found.classes[slides.y[i]],
            **{c: round(float(s), 6) for c, s in zip(columns, shares[i], strict=True)},
        }
        for i in np.flatnonzero(runs[0].fold >= 0)
    ]


def _no_calibration(found: Evaluation) -> str:
    if not any(row.method == CALIBRATED for row in found.rows):
        return (
            "No temperature could be fitted: the model learned the labels of all the "
            "slides that it could be fitted on."
        )
    return (
        "Temperature scaling does not lower the calibration error "
        f"({found.row(OWN).calibration_error:.3f} without, "
        f"{found.row(CALIBRATED).calibration_error:.3f} with it), so these slides do "
        "not calibrate the model."
    )
