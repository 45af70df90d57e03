"""The card of a model file: what the model is, takes and learned from. Without torch.

Written into the file's metadata as JSON (:mod:`spt_core.card_file`) and read from it
strictly: a value of another type is refused with a sentence that names it.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spt_core import card_file
from spt_core.card_file import DataSource
from spt_core.errors import InputError
from spt_core.learning.views import THE_PAPERS, ViewSettings
from spt_core.records import from_record, the_rest, to_record
from spt_core.tokens.tokens import TokenFacts
from spt_core.training.stages import Stage

KIND = "spt-slide-model"
FORMAT = 1


# As long as a cell of a table of labels.
_LONGEST_NAME = 10_000


@dataclass(frozen=True)
class Architecture:
    """How to build the slide encoder.

    Attributes
    ----------
    name
        One of :data:`spt_core.learning.aggregators.AGGREGATORS`.
    options
        Its arguments by name, such as ``in_dim``, ``dim``, ``depth`` and ``heads``.
    """

    name: str
    options: Mapping[str, float] = the_rest()


@dataclass(frozen=True)
class TokenKind:
    """The tokens that the model takes; None where the training tokens did not say.

    Attributes
    ----------
    dim
        Length of a token.
    encoder, encoder_sha256
        The patch encoder, by its name and hash.
    mpp, patch_size, patch_um
        Micrometres per pixel, pixels and micrometres of a patch as the encoder sees it.
    stain
        How stains are normalised before.
    channels
        What the encoder sees as red, green and blue; see ``spt_core.slides.recipe``.
    """

    dim: int
    encoder: str | None = None
    encoder_sha256: str | None = None
    mpp: float | None = None
    patch_size: int | None = None
    patch_um: float | None = None
    stain: str | None = None
    channels: str | None = None

    def __post_init__(self) -> None:
        for what, value, least, most in (
            ("dim", self.dim, 1, 2**20),
            ("mpp", self.mpp, 1e-3, 1e3),
            ("patch_size", self.patch_size, 1, 2**20),
            ("patch_um", self.patch_um, 1e-3, 1e7),
        ):
            if value is not None and not least <= value <= most:
                raise InputError(f"a {what} of {value:.6g} is not possible.")

    @classmethod
    def of(cls, facts: TokenFacts, dim: int) -> "TokenKind":
        """The kind of tokens of length ``dim`` with these facts."""
        return cls(
            dim,
            facts.encoder,
            facts.encoder_sha256,
            facts.mpp,
            facts.patch_size,
            facts.patch_um,
            facts.stain,
            facts.channels,
        )

    @property
    def facts(self) -> TokenFacts:
        return TokenFacts(
            encoder=self.encoder,
            encoder_sha256=self.encoder_sha256,
            mpp=self.mpp,
            patch_size=self.patch_size,
            patch_um=self.patch_um,
            stain=self.stain,
            channels=self.channels,
        )


@dataclass(frozen=True)
class TrainingSummary:
    """What the model learned from, and how, in numbers; it names nobody.

    Attributes
    ----------
    slides, tokens, patients
        How many of each; no patients where none are known.
    class_counts
        Slides of each class.
    slide_fingerprints, patient_hmacs
        The slides by their pixels; the patients under the key in the run's folder.
    earlier
        The trainings of the model that this one began from; None in files written
        before cards stated them.
    epochs, steps, batch_size, learning_rate, weight_decay, head, seed
        The settings of the run.
    site_batches
        Whether each batch was of slides of one site.
    negatives
        Which other slides SimCLR kept each apart from: ``all`` or those of its
        ``site``; None for other objectives, and where the file does not say.
    from_pretrained
        Whether it began from another model.
    frozen_encoder
        Whether the classifier alone was trained.
    epoch_chosen_by
        How the epoch of the weights was chosen, in words; None where the file does
        not say.
    choice_fingerprints
        The slides whose labels chose it.
    torch
        The version of torch.
    """

    slides: int
    tokens: int | None = None
    patients: int | None = None
    class_counts: Mapping[str, int] = field(default_factory=dict)
    slide_fingerprints: frozenset[str] = frozenset()
    patient_hmacs: frozenset[str] = frozenset()
    earlier: tuple[Stage, ...] | None = None
    epochs: int | None = None
    steps: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    weight_decay: float | None = None
    head: str | None = None
    seed: int | None = None
    site_batches: bool = False
    negatives: str | None = None
    from_pretrained: bool = False
    frozen_encoder: bool = False
    epoch_chosen_by: str | None = None
    choice_fingerprints: frozenset[str] = frozenset()
    torch: str | None = None

    def __post_init__(self) -> None:
        _check_measured(self)


@dataclass(frozen=True)
class Metrics:
    """What was last seen of the embeddings of slides in training.

    Attributes
    ----------
    step
        The training step of the weights.
    knn
        Mean class accuracy of nearest neighbours.
    knn_held_out
        Whether those were slides that it did not learn from.
    site_knn
        The same of the slides' sites: how well the scanner can be told.
    spread, effective_rank
        See :class:`spt_core.training.signals.Validation`.
    """

    step: int | None = None
    knn: float | None = None
    knn_held_out: bool = False
    site_knn: float | None = None
    spread: float | None = None
    effective_rank: float | None = None

    def __post_init__(self) -> None:
        _check_measured(self, "knn", "site_knn")


# How tokens are standardised.
SITE, SLIDE, NONE = "site", "slide", "no"
# How slides' sites are known.
LABELS, FOUND, SCANNER = "labels", "found", "scanner"


@dataclass(frozen=True)
class SiteFacts:
    """A site whose statistics the model file holds.

    Attributes
    ----------
    name
        What the site is called.
    slides, tokens
        From how many of each they were measured.
    added
        Whether the site was added later; else it was trained on.
    slide_fingerprints
        Those slides by their pixels, and others that were found to be of the site:
        they need not be asked where they are from.
    """

    name: str
    slides: int
    tokens: int
    added: bool = False
    slide_fingerprints: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Standardising:
    """How tokens are standardised before the model sees them.

    Attributes
    ----------
    kind
        ``SITE``: by the mean and spread of all tokens of the slide's site; ``SLIDE``:
        of the slide itself; ``NONE``: not at all, as in files that do not say.
    sites
        The sites whose statistics the file holds, in their order.
    sites_from
        How the training slides' sites were known: by their ``labels``, ``found`` among
        the slides' mean tokens, or by what their files say of the ``scanner``.
    """

    kind: str = NONE
    sites: tuple[SiteFacts, ...] = ()
    sites_from: str | None = None

    def __post_init__(self) -> None:
        if self.kind not in (SITE, SLIDE, NONE):
            raise InputError(
                f"tokens standardised by {self.kind!r} are unknown to this version of "
                "napari-spt: update napari-spt to use the file."
            )
        _check_names("site", self.site_names)
        if self.kind != SITE and self.sites:
            raise InputError(f"it names sites, but tokens go by {self.kind!r}.")

    @property
    def site_names(self) -> tuple[str, ...]:
        return tuple(one.name for one in self.sites)

    def known_site(self, facts: TokenFacts) -> str | None:
        """Where a slide is from of which nobody says so; None where that is unknown.

        It is a slide that a site was measured with, or sites are kinds of scanner and
        the file states its own.
        """
        for one in self.sites:
            if facts.slide_fingerprint in one.slide_fingerprints:
                return one.name
        return facts.scanner if self.sites_from == SCANNER else None


def _check_names(what: str, names: tuple[str, ...]) -> None:
    if len(set(names)) < len(names):
        raise InputError(f"{what} names are given twice.")
    if any(not name.strip() or len(name) > _LONGEST_NAME for name in names):
        raise InputError(f"a {what} has no name, or one that is longer than any.")


def _check_measured(found: Any, *shares: str) -> None:
    """Refuse what nobody can have measured: it would be shown as if somebody had."""
    for name in shares:
        value = getattr(found, name)
        if value is not None and not 0 <= value <= 1:
            raise InputError(f"a {name} of {value:.6g} is not possible.")
    for name in ("slides", "patients", "folds"):
        count = getattr(found, name, None)
        if count is not None and count < 0:
            raise InputError(f"{count} {name} are not possible.")


@dataclass(frozen=True)
class Calibration:
    """What temperature scaling was measured to do.

    Attributes
    ----------
    temperature
        None where it does not help.
    slides, folds
        On how many slides, in how many folds, it was measured.
    error_before, error_after
        The calibration error without it and with it.
    """

    temperature: float | None = None
    slides: int | None = None
    folds: int | None = None
    error_before: float | None = None
    error_after: float | None = None

    def __post_init__(self) -> None:
        if self.temperature is not None and not 1e-3 <= self.temperature <= 1e3:
            raise InputError(
                f"a temperature of {self.temperature:.6g} is not possible."
            )
        _check_measured(self, "error_before", "error_after")

    @property
    def helpful_temperature(self) -> float | None:
        """The temperature, None where it leaves the error as it is, or raises it."""
        before, after = self.error_before, self.error_after
        if before is not None and after is not None and not after < before:
            return None
        return self.temperature or None


@dataclass(frozen=True)
class JudgedOn:
    """How well the model does on slides that it has not seen.

    Attributes
    ----------
    cohort
        Which slides, in words.
    slides, patients, folds
        How many of each.
    accuracy, f1, auc, calibration_error
        As ``spt evaluate`` measures them.
    """

    cohort: str = ""
    slides: int | None = None
    patients: int | None = None
    folds: int | None = None
    accuracy: float | None = None
    f1: float | None = None
    auc: float | None = None
    calibration_error: float | None = None

    def __post_init__(self) -> None:
        _check_measured(self, "accuracy", "f1", "auc", "calibration_error")


@dataclass(frozen=True)
class ModelCard:
    """What a model is, takes and learned from.

    Attributes
    ----------
    architecture
        How to build the slide encoder.
    tokens
        The tokens that it takes.
    training
        What it learned from.
    classes
        Their names, in the order of the classifier's scores.
    objective
        What it was trained by.
    views
        How views were made in training; the paper's where the file does not say.
    metrics
        What was seen of it in training.
    standardising
        What is done to tokens first.
    calibration
        What temperature scaling does, where that was measured.
    judged_on
        How well it does on other slides, where that was measured.
    demonstration
        Whether it learned from synthetic tissue alone, and names classes only of
        slides like those.
    title, about
        What to call it and what it is for; empty where the file does not say.
    data
        Where the training slides came from.
    licence
        On which terms it may be used.
    encoder_terms
        What the licence of the patch encoder forbids or asks for, as published.
    version
        The version of napari-spt that trained it.
    more
        What else the file states, kept as it is.
    """

    architecture: Architecture
    tokens: TokenKind
    training: TrainingSummary
    classes: tuple[str, ...] = ()
    objective: str | None = None
    views: ViewSettings = THE_PAPERS
    metrics: Metrics = field(default_factory=Metrics)
    standardising: Standardising = field(default_factory=Standardising)
    calibration: Calibration | None = None
    judged_on: JudgedOn | None = None
    demonstration: bool = False
    title: str = ""
    about: str = ""
    data: tuple[DataSource, ...] = ()
    licence: str = ""
    encoder_terms: tuple[str, ...] = ()
    version: str | None = None
    more: Mapping[str, Any] = the_rest()

    def __post_init__(self) -> None:
        _check_names("class", self.classes)

    @property
    def temperature(self) -> float | None:
        """By which scores become probabilities; None leaves them scores."""
        return self.calibration.helpful_temperature if self.calibration else None

    def stages(self) -> list[Stage]:
        """The trainings that led to the model, its own first."""
        training = self.training
        own = Stage(
            self.objective,
            training.slide_fingerprints,
            training.patient_hmacs,
            same_key=True,
        )
        if training.earlier is None and training.from_pretrained:
            unknown = Stage(None, frozenset(), frozenset(), same_key=False, known=False)
            return [own, unknown]
        return [own, *(training.earlier or ())]


def read_model_card(path: str | os.PathLike[str]) -> ModelCard:
    """Read the card of a model file, without its weights.

    Raises
    ------
    InputError
        Where there is no file, it is no slide model, or its card cannot be read.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"There is no model file {path}.")
    try:
        record = card_file.read_record(path) or {}
    except InputError as error:
        raise InputError(
            f"{path.name} is not a slide model: it is damaged or another kind of file. "
            "Choose a file that 'spt train' wrote (its name ends in "
            f"{card_file.ENDING})."
        ) from error
    if record.get("kind") != KIND:
        kind = record.get("kind")
        found = f"its card is of a {kind}" if kind else "its card is missing"
        raise InputError(
            f"{path.name} holds weights, but is not a slide model of 'spt train': "
            f"{found}."
        )
    known = card_file.without_header(path, record, FORMAT)
    return from_record(ModelCard, known, f"{path.name}: the card")


def model_metadata(card: ModelCard) -> dict[str, str]:
    """The card as the metadata of a model file."""
    return card_file.metadata(KIND, FORMAT, to_record(card))
