"""A benchmark that is open: its slides, its folds and the cells to be done."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from spt_core._version import __version__
from spt_core.errors import InputError
from spt_core.files import refuse_no_file
from spt_core.insight.results import pseudonym
from spt_core.learning.cohort import Cohort, open_cohort
from spt_core.learning.model_card import SITE, SLIDE
from spt_core.learning.settings import TrainSettings
from spt_core.learning.sites import usual_kind, usual_negatives
from spt_core.studies.benchmark_methods import (
    ABLATED,
    ABLATIONS,
    METHODS,
    AblationPlan,
    Method,
    Variant,
)
from spt_core.studies.benchmark_settings import BenchmarkSettings
from spt_core.studies.cells import Cell, CellFolder, CellResult
from spt_core.studies.divisions import (
    Division,
    Divisions,
    check_divisions,
    divide_as_given,
    divide_by_file,
    divide_by_patient,
    divide_by_site,
)
from spt_core.tokens import Labels, check_labels, read_labels

# Cells hold results of this kind; others are not read.
FORMAT = 1
# What does not change a cell's result.
NOT_IN_RECIPE = (
    "out",
    "methods",
    "ablations",
    "baseline",
    "seeds",
    "repeats",
    "ordered",
    "include_slide_name",
    "device",
    "workers",
    "scheduler",
    "tls_ca",
    "tls_cert",
    "tls_key",
    "title",
    "features",
    "labels",
    "slide_table",
    "splits",
    "only",
    "init",
    "pretrain_steps",
)


@dataclass(frozen=True, eq=False)
class Bench:
    """
    Attributes
    ----------
    cohorts
        By the features' short name; the same slides in the same order.
    remarks
        What the reader of the table must know.
    notes
        What may name slides and patients: for whoever runs it, not for the report.
    labels_sha256
        Of the labels file as it was read.
    """

    settings: BenchmarkSettings
    cohorts: dict[str, Cohort]
    divisions: Divisions
    remarks: tuple[str, ...]
    notes: tuple[str, ...]
    labels_sha256: str

    @property
    def cohort(self) -> Cohort:
        return next(iter(self.cohorts.values()))

    @cached_property
    def labelled(self) -> NDArray[np.int64]:
        """Numbers of the slides that have a label: the rows of every table."""
        return np.flatnonzero(self.cohort.class_numbers() >= 0)

    @cached_property
    def sites(self) -> list[str]:
        found = {self.cohort[int(i)].site for i in self.labelled}
        return sorted(site for site in found if site)

    def site_numbers(self) -> NDArray[np.int64]:
        """For each slide the number of its site, -1 where it is not known."""
        number = {name: index for index, name in enumerate(self.sites)}
        return np.array([number.get(slide.site or "", -1) for slide in self.cohort])

    @cached_property
    def standardise(self) -> str:
        """How tokens are standardised: the same for every method and fold."""
        return self.settings.standardise or usual_kind(self.cohort, [])

    def division(self, cell: Cell) -> Division:
        return next(
            one
            for one in self.divisions.folds
            if (one.repeat, one.fold) == (cell.repeat, cell.fold)
        )

    @cached_property
    def folder(self) -> CellFolder:
        return CellFolder(Path(self.settings.out) / "cells", self._recipe())

    def result(self, cell: Cell) -> CellResult:
        """What a finished cell found, once it is seen to be of these slides.

        Raises
        ------
        InputError
            Where its file is damaged, or of another cell or benchmark.
        """
        found = self.folder.read(cell)
        asked = np.searchsorted(self.labelled, self.division(cell).test)
        counts = len(self.labelled), len(self.cohort.classes), len(self.sites)
        if not found.fits(asked, *counts):
            raise InputError(
                f"{self.folder.result(cell)} does not fit its slides and labels: it "
                "is damaged. Remove it; the cell is done again."
            )
        return found

    def _recipe(self) -> str:
        """A hash of what results depend on: settings, tokens, labels and folds."""
        plain = self.settings.plain()
        wanted = {name: plain[name] for name in plain if name not in NOT_IN_RECIPE}
        # Benchmarks that were begun before there was a choice go on.
        wanted["details"] = self.settings.details.changed()
        if not wanted["details"]:
            del wanted["details"]
        digest = hashlib.sha256(f"{FORMAT} {__version__}".encode())
        digest.update(json.dumps(wanted, sort_keys=True).encode())
        if self.settings.pretrain_steps:
            digest.update(f"pretrain {self.settings.pretrain_steps}".encode())
        if self.settings.init:
            digest.update(Path(self.settings.init).read_bytes())
        if self.settings.splits:
            digest.update(Path(self.settings.splits).name.encode())
            for one in self.divisions.folds:
                for part in (one.train, one.val, one.test):
                    digest.update(np.asarray(part, np.int64).tobytes())
        for name, cohort in self.cohorts.items():
            digest.update(f"{name} {cohort.dim} {cohort.facts}\n".encode())
        for slide in self.cohort:
            about = (slide.label, slide.patient, slide.site, slide.split)
            digest.update(f"{len(slide)} {slide.fingerprint()} {about}\n".encode())
        return digest.hexdigest()

    def cells(self) -> list[Cell]:
        """All cells, quick ones first, each once."""
        found = [
            cell
            for features in self.cohorts
            for method in self.settings.all_methods()
            for cell in self.cells_of(features, method.name)
        ]
        if self.settings.permute_labels:
            found += [
                replace(cell, permuted=True)
                for cell in found
                if METHODS[cell.method].uses_labels and cell.seed == 0
            ]
        for ablation in self.settings.ablations:
            for features in self.cohorts:
                for variant in ABLATIONS[ablation].variants:
                    found += self.cells_of(
                        features, self.ablated, ablation, variant.name
                    )
        return list(dict.fromkeys(found))

    def cells_of(
        self, features: str, method: str, ablation: str = "", variant: str = ""
    ) -> list[Cell]:
        """One per fold and seed; those of a variant that changes nothing are the
        method's own."""
        if variant and self.is_unchanged(features, method, ablation, variant):
            ablation = variant = ""
        seeds = self.settings.seeds if METHODS[method].has_seeds else 1
        return [
            Cell(features, method, one.repeat, one.fold, seed, ablation, variant)
            for one in self.divisions.folds
            for seed in range(seeds)
        ]

    @property
    def ablated(self) -> str:
        """The method that ablations vary: the first self-supervised SPT."""
        names = (method.name for method in self.settings.all_methods())
        return next((name for name in names if name.startswith("ssspt-")), ABLATED)

    def is_unchanged(
        self, features: str, method: str, ablation: str, variant: str
    ) -> bool:
        plain = Cell(features, method, 0, 0, 0)
        varied = replace(plain, ablation=ablation, variant=variant)
        if not self.has_method(method):
            return False
        return self.train_settings(plain) == self.train_settings(varied)

    def has_method(self, name: str) -> bool:
        return any(method.name == name for method in self.settings.all_methods())

    def train_settings(self, cell: Cell) -> TrainSettings:
        """How the model of a cell is trained; ``out`` is for the caller to fill."""
        settings, method = self.settings, METHODS[cell.method]
        variant = variant_of(cell)
        views = replace(method.view_settings(settings.views), **variant.views)
        folder = dict(settings.named_features())[cell.features]
        objective = variant.objective or method.objective or "classify"
        return TrainSettings(
            features=str(folder),
            objective=objective,
            out="",
            labels=settings.labels,
            model=method.model or settings.model or self.usual_model,
            architecture=dict(variant.architecture),
            init=settings.init if method.from_init else None,
            region_weights=settings.hipt_weights if cell.method == "hipt" else None,
            views=views,
            # A model that is there goes on as it was trained.
            standardise=None if method.from_init else self.standardise,
            site_batches=settings.site_batches,
            negatives=self._negatives(objective),
            steps=settings.steps,
            batch_size=settings.batch_size,
            learning_rate=settings.learning_rate,
            **settings.details.of_training(),
            seed=cell.seed,
            device=settings.device,
        )

    def _negatives(self, objective: str) -> str | None:
        """The same in every fold, however few slides of a site it leaves."""
        return usual_negatives(
            objective,
            self.standardise,
            self.cohort,
            batch_size=self.settings.batch_size,
            site_batches=self.settings.site_batches,
        )

    def pretrain_settings(self, cell: Cell) -> TrainSettings:
        """How the model of a cell is trained before, without labels."""
        objective = self.settings.details.pretraining
        return replace(
            self.train_settings(cell),
            objective=objective,
            negatives=self._negatives(objective),
            labels=None,
            steps=self.settings.pretrain_steps,
        )

    @cached_property
    def usual_model(self) -> str:
        from spt_core.devices import choose_device

        return "small" if choose_device(self.settings.device).type == "cpu" else "paper"

    def keeps_model(self, cell: Cell) -> bool:
        """Of the first fold and seed: their attention is shown in the report."""
        is_first = (cell.repeat, cell.fold, cell.seed) == (0, 0, 0)
        return is_first and not cell.permuted and not cell.variant


def variant_of(cell: Cell) -> Variant:
    if not cell.variant:
        return Variant("")
    plan: AblationPlan = ABLATIONS[cell.ablation]
    return next(one for one in plan.variants if one.name == cell.variant)


def method_of(cell: Cell) -> Method:
    return METHODS[cell.method]


def open_bench(settings: BenchmarkSettings) -> Bench:
    """Open all slides and lay the folds."""
    labels = read_labels(
        settings.labels,
        slides=settings.slide_table,
        patients_from=settings.patient_from,
    )
    cohorts = {
        name: open_cohort(folder, labels) for name, folder in settings.named_features()
    }
    if settings.only:
        wanted = read_slide_list(Path(settings.only))
        cohorts = {name: _listed(one, wanted) for name, one in cohorts.items()}
    cohorts, notes = _same_slides(cohorts)
    cohort = next(iter(cohorts.values()))
    if settings.only:
        kept = {slide.name for slide in cohort}
        rows = {name: row for name, row in labels.by_slide.items() if name in kept}
        labels = replace(labels, by_slide=rows)
    names = cohort.names
    notes += [*cohort.remarks, *check_labels(labels, names, supervised=True)]
    divisions = _divisions(cohort, settings, labels)
    check_divisions(cohort, divisions)
    remarks = [*divisions.remarks, *_remarks(cohort, settings)]
    if settings.init and any(one.from_init for one in settings.all_methods()):
        remarks += _of_start(cohort, settings.init)
    remarks += _standardising(cohort, settings)
    digest = hashlib.sha256(Path(settings.labels).read_bytes()).hexdigest()
    return Bench(settings, cohorts, divisions, tuple(remarks), tuple(notes), digest)


def _standardising(cohort: Cohort, settings: BenchmarkSettings) -> list[str]:
    notes: list[str] = []
    kind = settings.standardise or usual_kind(cohort, notes)
    if kind == SITE:
        return [
            "Tokens are standardised per site, for every method: by the slides that "
            "are learned from in a fold, and where those have none of a site, by that "
            "site's own slides without their labels."
        ]
    if kind == SLIDE:
        return ["Tokens are standardised per slide, for every method."]
    return notes


def _divisions(
    cohort: Cohort, settings: BenchmarkSettings, labels: Labels
) -> Divisions:
    if settings.splits:
        return divide_by_file(cohort, Path(settings.splits))
    if settings.leave_site_out:
        return divide_by_site(cohort)
    if labels.has_splits and not settings.ignore_split:
        return divide_as_given(cohort)
    known = {slide.name: labels.by_slide[slide.name] for slide in cohort if slide.label}
    check_labels(Labels(known), list(known), supervised=True, folds=settings.folds)
    return divide_by_patient(cohort, folds=settings.folds, repeats=settings.repeats)


def _same_slides(cohorts: dict[str, Cohort]) -> tuple[dict[str, Cohort], list[str]]:
    """The slides that all sets of features have."""
    shared = set.intersection(
        *({slide.name for slide in cohort} for cohort in cohorts.values())
    )
    if not shared:
        raise InputError("The folders of features have no slide in common.")
    notes = []
    for name, cohort in cohorts.items():
        extra = len(cohort) - len(shared)
        if extra:
            notes.append(f"{extra} slides of {name} are in no other folder: left out.")
    return {
        name: cohort.subset(i for i, slide in enumerate(cohort) if slide.name in shared)
        for name, cohort in cohorts.items()
    }, notes


def read_slide_list(path: Path) -> frozenset[str]:
    """Slides' names or pseudonyms, one a line."""
    refuse_no_file(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"The list of slides cannot be read: {error}.") from error
    return frozenset(line.strip() for line in text.splitlines() if line.strip())


def _listed(cohort: Cohort, wanted: frozenset[str]) -> Cohort:
    chosen = [
        number
        for number, slide in enumerate(cohort)
        if slide.name in wanted or pseudonym(slide.fingerprint()) in wanted
    ]
    if not chosen:
        raise InputError("None of the slides with features is in the list of slides.")
    return cohort.subset(chosen)


def _of_start(cohort: Cohort, init: str) -> list[str]:
    """What the model that finetune starts from knows; labels of these slides never."""
    from spt_core.learning.model_file import load_model
    from spt_core.studies.unseen import known_slides
    from spt_core.training.run_folder import key_in

    known = known_slides(load_model(init), cohort, key_in(Path(init).parent))
    if known.learned or known.chose:
        count = len(known.learned | known.chose)
        raise InputError(
            f"{Path(init).name} has learned from the labels of {count} of these slides "
            "or of their patients: what it says of them would be no test. Start from a "
            "model that was trained without labels, or on other slides."
        )
    said = list(known.remarks)
    if known.seen:
        said.append(
            f"The model that finetune starts from has seen {len(known.seen)} of the "
            f"{int((cohort.class_numbers() >= 0).sum())} labelled slides without their "
            "labels, tested ones among them."
        )
    return said


def _remarks(cohort: Cohort, settings: BenchmarkSettings) -> Iterator[str]:
    slides = [slide for slide in cohort if slide.label]
    if not any(slide.patient for slide in slides):
        yield (
            "The patients are not known: slides of one person may be both learned from "
            "and tested, which makes scores too high and intervals too narrow. Give a "
            "column 'patient'."
        )
    elif unknown := sum(not slide.patient for slide in slides):
        yield (
            f"The patients of {unknown} slides are not known; each counts as a patient "
            "of its own."
        )
    unlabelled = len(cohort) - len(slides)
    if unlabelled and settings.unlabelled:
        yield (
            f"Methods without labels learn from {unlabelled} unlabelled slides too, in "
            "every fold."
        )
