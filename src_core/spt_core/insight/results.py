"""A model's results for a slide as plain data: no torch, and no sentences.

``wording`` has the sentences of commands and reports.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from spt_core.tokens.tokens import TokenFacts

# The least distance between the two likeliest classes for an answer.
MARGIN = 0.1


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
    STANDARDISED_BY_SITE = "standardised by its site"  # value: the site
    STANDARDISED_BY_SLIDE = "standardised by itself"
    SITE_NOT_NAMED = "site not named"
    SITE_UNKNOWN = "site without statistics"  # value: the site


@dataclass(frozen=True)
class Remark:
    """One such fact; its kind states what ``value`` is."""

    kind: RemarkKind
    value: str | int | float | None = None


@dataclass(frozen=True)
class Likeness:
    """How far a slide lies from the training slides, in their own spread.

    Attributes
    ----------
    distances, limits
        By what was compared: ``mean_token`` (scanner, stain, organ) and ``embedding``
        (arrangement). Above its limit a slide is unlike.
    """

    distances: Mapping[str, float]
    limits: Mapping[str, float]

    @property
    def is_unlike(self) -> bool:
        return any(self.distances[name] > self.limits[name] for name in self.limits)


@dataclass(frozen=True, eq=False)
class Prediction:
    """A model's answer for one slide, or for the part of it that was seen.

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
        Whether the model's card lists this slide or its patient as trained on.
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
    def top(self) -> int | None:
        """The index of the most likely class, whatever the verdict."""
        return None if self.probabilities is None else int(self.probabilities.argmax())

    @property
    def shares(self) -> dict[str, float]:
        """The probabilities by class, rounded for tables; empty without them."""
        if self.probabilities is None:
            return {}
        pairs = zip(self.classes, self.probabilities.tolist(), strict=True)
        return {name: round(share, 6) for name, share in pairs}


@dataclass(frozen=True, eq=False)
class ClassMap:
    """Class scores of each patch from windows around it.

    Attributes
    ----------
    xy : (n, 2)
        Level-0 (x, y) of the patches.
    probabilities : (n, classes)
        NaN where a patch has too few neighbours for an answer.
    calibrated
        Whether they were calibrated on windows; calibration on whole slides says
        nothing of them.
    side, stride
        Of the windows, in grid cells.
    limit
        The most tokens of a window that were used.
    windows
        How many there were.
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
        """The index of each patch's most likely class, -1 where unsure, (n,)."""
        filled = np.nan_to_num(self.probabilities, nan=-1.0)
        return np.where(self.unsure, -1, filled.argmax(axis=1))

    def name_of(self, label: int) -> str:
        return "unsure" if label < 0 else self.classes[label]

    def at(self, xy: NDArray[np.int64]) -> "ClassMap":
        """The same map for the patches at ``xy`` (m, 2); those it lacks are alone."""
        if np.array_equal(xy, self.xy):
            return self
        rows = {place: row for row, place in enumerate(map(tuple, self.xy.tolist()))}
        found = np.array([rows.get(tuple(place), -1) for place in xy.tolist()], int)
        probabilities = np.full((len(xy), len(self.classes)), np.nan, np.float32)
        probabilities[found >= 0] = self.probabilities[found[found >= 0]]
        return replace(self, xy=xy, probabilities=probabilities)


@dataclass(frozen=True, eq=False)
class Faithfulness:
    """The class's probability as patches are taken away.

    Attributes
    ----------
    removed : (k,)
        Shares of the patches that were removed.
    most_first, random, least_first : (k,)
        The probability when the most attended, any, or the least attended go first.
    thinned
        Whether only ``patches`` of the slide's patches were used.
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
        """Mean of ``random - most_first`` over the removed share.

        Above 0, what is attended matters more than what is not.
        """
        gap = self.random - self.most_first
        between = (gap[1:] + gap[:-1]) / 2 * np.diff(self.removed)
        return float(between.sum() / self.removed[-1])


@dataclass(frozen=True, eq=False)
class WhatIf:
    """A prediction with and without some of the patches."""

    before: Prediction
    after: Prediction
    removed: int


def pseudonym(fingerprint: str) -> str:
    """A name for a slide that does not identify anyone."""
    return "slide-" + hashlib.sha256(fingerprint.encode()).hexdigest()[:10]
