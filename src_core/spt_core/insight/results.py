"""What insight gives: plain arrays and sentences, without torch."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spt_core.tokens.tokens import TokenFacts


class Verdict(StrEnum):
    """What comes of asking a model about a slide."""

    EMPTY = "empty"
    UNLIKE = "unlike"
    UNDECIDED = "undecided"
    ANSWERED = "answered"
    NO_CLASSES = "no classes"


class RemarkKind(StrEnum):
    """What else a reader of a prediction should know."""

    TRAINED_ON_SLIDE = "trained on this slide"
    TRAINED_ON_PATIENT = "trained on this patient"
    PATIENT_NOT_CHECKED = "patient not checked"
    ENCODER_ASSUMED = "encoder assumed"  # value: its name
    PIXEL_SIZE_ASSUMED = "pixel size assumed"  # value: micrometres
    NO_STATISTICS = "no statistics of the training slides"
    FEW_TRAINING_SLIDES = "few training slides"  # value: how many
    FEW_PATCHES = "few patches"  # value: how many
    IN_GROUPS = "attended in groups"  # value: how many


@dataclass(frozen=True)
class Remark:
    """One such fact; ``value`` is what its kind says."""

    kind: RemarkKind
    value: str | int | float | None = None


# Two classes closer than this are not told apart.
MARGIN = 0.1

NOT_FOR_DIAGNOSIS = "For research, not for diagnosis."
UNLIKE_SENTENCE = "Unlike the slides this model learned from."
WITHHELD = "No class is named: this model is a demonstration on synthetic tissue."
CALIBRATED = "calibrated probability"
UNCALIBRATED = "uncalibrated score"


@dataclass(frozen=True)
class Likeness:
    """How far a slide lies from the training slides, in their own spread.

    Attributes
    ----------
    distances, limits
        By what was looked at: ``mean_token`` (scanner, stain, organ) and ``embedding``
        (arrangement). Above its limit a slide is unlike.
    """

    distances: Mapping[str, float]
    limits: Mapping[str, float]

    @property
    def is_unlike(self) -> bool:
        return any(self.distances[name] > self.limits[name] for name in self.limits)


@dataclass(frozen=True, eq=False)
class Prediction:
    """What a model says of one slide, or of the part of it that it has seen.

    Attributes
    ----------
    p, xy : (n, 2)
        Grid (row, col) and level-0 (x, y) of the patches that were seen.
    probabilities : (classes,) or None without classes
        None too where a demonstration is asked about a slide unlike its own: it names
        no class then, though it has ``classes``.
    calibrated
        Whether they are calibrated probabilities; else they are scores.
    embedding : (dim,)
    attention : (heads, n)
        Softmax weights of the CLS token over itself and all patches, its own left out.
    seen, total
        Patches seen, of the patches of the slide.
    answer
        The class, where the verdict allows one.
    groups
        More than 1 where the slide was too long to be attended in one pass.
    trained_on
        Whether the model's card knows this slide or its patient from training.
    """

    facts: TokenFacts
    p: NDArray[np.int64]
    xy: NDArray[np.int64]
    classes: tuple[str, ...]
    probabilities: NDArray[np.float64] | None
    calibrated: bool
    embedding: NDArray[np.float32]
    attention: NDArray[np.float32]
    seen: int
    total: int
    verdict: Verdict
    answer: str | None = None
    likeness: Likeness | None = None
    groups: int = 1
    trained_on: bool = False
    remarks: tuple[Remark, ...] = ()
    fingerprint: str = ""

    def __len__(self) -> int:
        return len(self.p)

    @property
    def name(self) -> str:
        return self.facts.name

    @property
    def pseudonym(self) -> str:
        """What exports call the slide: the same for the same pixels, and no name."""
        return pseudonym(self.fingerprint)

    @property
    def is_whole(self) -> bool:
        return self.seen >= self.total

    @property
    def from_how_much(self) -> str:
        """The share of the tissue that was seen, in words, without a full stop."""
        if self.is_whole:
            return f"From all of the tissue ({self.seen:,} patches)"
        share = min(99, max(1, round(100 * self.seen / self.total)))
        return f"From {share} % of the tissue ({self.seen:,} of {self.total:,} patches)"

    @property
    def kind_of_number(self) -> str:
        return CALIBRATED if self.calibrated else UNCALIBRATED

    @property
    def top(self) -> int | None:
        """The number of the most likely class, whatever the verdict."""
        return None if self.probabilities is None else int(self.probabilities.argmax())

    @property
    def sentence(self) -> str:
        """The answer in words, what to doubt first."""
        if self.verdict == Verdict.EMPTY:
            return "No tissue: this slide has no patch to look at."
        words = []
        if self.verdict == Verdict.UNLIKE:
            words.append(UNLIKE_SENTENCE)
        if self.probabilities is None or self.top is None:
            words.append(WITHHELD if self.classes else "This model names no classes.")
        else:
            best = self.classes[self.top]
            share = f"{self.probabilities[self.top]:.2f}, {self.kind_of_number}"
            if self.verdict == Verdict.UNDECIDED:
                words.append(f"Undecided; the most likely is {best} ({share}).")
            elif self.verdict == Verdict.UNLIKE:
                words.append(f"It would say {best} ({share}), which may mean nothing.")
            else:
                words.append(f"{best} ({share}).")
        if not self.is_whole:
            words.append(f"Seen so far: {self.seen} of {self.total} patches.")
        return " ".join((*words, *map(remark_sentence, self.remarks)))

    def record(self, *, slide: str) -> dict[str, Any]:
        """The result as plain data; ``slide`` is what to call it."""
        shares = {} if self.probabilities is None else self._shares()
        return {
            "slide": slide,
            "verdict": self.verdict,
            "answer": self.answer,
            "probabilities": shares,
            "number": self.kind_of_number if shares else None,
            "seen": self.seen,
            "total": self.total,
            "trained_on": self.trained_on,
            "distances": dict(self.likeness.distances) if self.likeness else {},
            "limits": dict(self.likeness.limits) if self.likeness else {},
            "sentence": self.sentence,
        }

    def _shares(self) -> dict[str, float]:
        if self.probabilities is None:
            return {}
        pairs = zip(self.classes, self.probabilities.tolist(), strict=True)
        return {name: round(share, 6) for name, share in pairs}


@dataclass(frozen=True, eq=False)
class ClassMap:
    """Class probabilities of each patch from windows around it.

    Attributes
    ----------
    xy : (n, 2)
        Level-0 (x, y) of the patches.
    probabilities : (n, classes)
        NaN where a patch has too few neighbours to say.
    side, stride
        Of the windows, in grid cells.
    limit
        The most tokens of a window that were looked at.
    margin
        The least distance between the two likeliest classes for an answer, as for
        whole slides.
    """

    classes: tuple[str, ...]
    xy: NDArray[np.int64]
    probabilities: NDArray[np.float32]
    calibrated: bool
    side: int
    stride: int
    limit: int
    windows: int
    margin: float = MARGIN

    @property
    def alone(self) -> NDArray[np.bool_]:
        """Where a patch has too few neighbours, (n,)."""
        return np.isnan(self.probabilities[:, 0])

    @property
    def close(self) -> NDArray[np.bool_]:
        """Where the likeliest class leads by too little to be named, (n,)."""
        if self.probabilities.shape[1] < 2:
            return np.zeros(len(self.probabilities), bool)
        ordered = np.sort(np.nan_to_num(self.probabilities), axis=1)
        return ~self.alone & (ordered[:, -1] - ordered[:, -2] < self.margin)

    @property
    def unsure(self) -> NDArray[np.bool_]:
        """Where no class is named, (n,)."""
        return self.alone | self.close

    @property
    def labels(self) -> NDArray[np.int64]:
        """The number of each patch's most likely class, -1 where unsure, (n,)."""
        filled = np.nan_to_num(self.probabilities, nan=-1.0)
        return np.where(self.unsure, -1, filled.argmax(axis=1))

    def name_of(self, label: int) -> str:
        return "unsure" if label < 0 else self.classes[label]


@dataclass(frozen=True)
class Refreshed:
    """A prediction at one moment, as plain data for a log or a pipe."""

    slide: str
    seen: int
    total: int
    verdict: Verdict
    answer: str | None
    probabilities: Mapping[str, float]

    @classmethod
    def of(cls, prediction: Prediction) -> "Refreshed":
        return cls(
            prediction.name,
            prediction.seen,
            prediction.total,
            prediction.verdict,
            prediction.answer,
            prediction._shares(),
        )


def pseudonym(fingerprint: str) -> str:
    """A name for a slide that says nothing of whose it is."""
    return "slide-" + hashlib.sha256(fingerprint.encode()).hexdigest()[:10]


def remark_sentence(remark: Remark) -> str:
    """A remark in words, for commands and reports."""
    value = remark.value
    match remark.kind:
        case RemarkKind.TRAINED_ON_SLIDE:
            return "This model was trained on this very slide."
        case RemarkKind.TRAINED_ON_PATIENT:
            return "This model was trained on another slide of this patient."
        case RemarkKind.PATIENT_NOT_CHECKED:
            return (
                "Whether an earlier stage of the model's training had this patient is "
                "not checked: it kept its patients under another key."
            )
        case RemarkKind.ENCODER_ASSUMED:
            return (
                f"The features do not state their encoder; it is taken to be {value}."
            )
        case RemarkKind.PIXEL_SIZE_ASSUMED:
            return (
                "The features do not state their pixel size; it is taken to be "
                f"{value}."
            )
        case RemarkKind.NO_STATISTICS:
            return "The model does not say what its training slides were like."
        case RemarkKind.FEW_TRAINING_SLIDES:
            return f"Learned from {value} slides: too few to notice an unlike one."
        case RemarkKind.FEW_PATCHES:
            return (
                f"{value} patches are too few to tell whether the slide is unlike "
                "those of the training."
            )
        case RemarkKind.IN_GROUPS:
            return f"Attended in {value} evenly interleaved groups."


# A slide without a model

MOST_KINDS = 12
OUTLIER = 3.5  # robust standard deviations

# Twelve colours that stay apart for colour-blind eyes as well as twelve can.
PALETTE = np.array(
    [
        (68, 119, 170), (204, 187, 68), (170, 51, 119), (34, 136, 51),
        (238, 102, 119), (102, 204, 238), (153, 85, 27), (119, 119, 119),
        (102, 37, 160), (238, 153, 51), (0, 153, 136), (160, 190, 120),
    ],
    np.uint8,
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Kinds:
    """Kinds of tissue by which slides of one encoder are mapped alike.

    Hand the kinds of one slide on to the next, and the same tissue keeps its colour.

    Attributes
    ----------
    centres : (k, d)
    colours : (k,)
        Rows of :data:`PALETTE`, each used once.
    """

    centres: NDArray[np.float32]
    colours: NDArray[np.int64]

    @property
    def rgb(self) -> NDArray[np.uint8]:
        return PALETTE[self.colours]


@dataclass(frozen=True, eq=False)
class TissueMap:
    """What a slide is made of.

    Attributes
    ----------
    xy : (n, 2)
        Level-0 (x, y) of the patches.
    labels : (n,)
        The kind of each patch: a row of ``kinds``.
    outlier_score : (n,)
        How far a patch is from its nearest others, in robust standard deviations.
    """

    facts: TokenFacts
    xy: NDArray[np.int64]
    labels: NDArray[np.int64]
    kinds: Kinds
    outlier_score: NDArray[np.float64]

    @property
    def outliers(self) -> NDArray[np.int64]:
        """Rows of patches that are like no others, the strangest first."""
        rows = np.flatnonzero(self.outlier_score > OUTLIER)
        return rows[np.argsort(-self.outlier_score[rows], kind="stable")]


# Questions about an answer

MATTERS = 0.05


@dataclass(frozen=True, eq=False)
class Faithfulness:
    """The class's probability as patches are taken away.

    Attributes
    ----------
    removed : (k,)
        Shares of the patches that were removed.
    most_first, random, least_first : (k,)
        The probability when the most attended, any, or the least attended go first.
    area
        Mean of ``random - most_first`` over the removed share: above 0, what is
        attended matters more than what is not.
    """

    class_name: str
    removed: NDArray[np.float64]
    most_first: NDArray[np.float64]
    random: NDArray[np.float64]
    least_first: NDArray[np.float64]
    patches: int
    thinned: bool

    @property
    def area(self) -> float:
        gap = self.random - self.most_first
        between = (gap[1:] + gap[:-1]) / 2 * np.diff(self.removed)
        return float(between.sum() / self.removed[-1])

    @property
    def sentence(self) -> str:
        what = f"the probability of {self.class_name}"
        if self.area > MATTERS:
            said = f"removing the most attended patches first lowers {what} sooner than"
            verdict = "The attention matters"
        elif self.area < -MATTERS:
            said = f"removing the most attended patches first keeps {what} longer than"
            verdict = "The attention misleads"
        else:
            said = (
                f"removing the most attended patches first changes {what} no more than"
            )
            verdict = "The attention does not explain the answer"
        thinned = ""
        if self.thinned:
            thinned = f" (on {self.patches} evenly chosen patches)"
        return (
            f"{verdict}: {said} removing random ones, by {self.area:+.2f} on "
            f"average{thinned}."
        )


@dataclass(frozen=True, eq=False)
class WhatIf:
    """A prediction with and without some of the patches."""

    before: Prediction
    after: Prediction
    removed: int

    @property
    def sentence(self) -> str:
        if self.after.probabilities is None or self.before.probabilities is None:
            return f"Without these {self.removed} patches: {self.after.sentence}"
        top = self.before.top or 0
        name = self.before.classes[top]
        return (
            f"Without these {self.removed} of {self.before.seen} patches {name} goes "
            f"from {self.before.probabilities[top]:.2f} to "
            f"{self.after.probabilities[top]:.2f}. {self.after.sentence}"
        )
