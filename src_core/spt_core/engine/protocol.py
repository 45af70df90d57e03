"""What the window and the engine say to each other: one type per message.

The window sends requests and controls, the engine sends replies. Every request has a
number and ends with exactly one of :data:`END_TYPES`. Facts travel as numbers, enums
and the core's own result types; sentences are made where they are shown.
"""

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from spt_core.events import NoticeKind, Progress
from spt_core.insight.results import ClassMap, Faithfulness, Prediction, WhatIf
from spt_core.insight.slide_map import MapOfSlides
from spt_core.insight.tissue_map import TissueMap
from spt_core.slides.tissue_mask import Tissue

# Raised with every change of a message; an engine of another version is refused.
VERSION = 4


# Requests: what the window asks for


@dataclass(frozen=True)
class Analyse:
    """Encode a slide, or take its kept features, and predict while it grows.

    Attributes
    ----------
    title
        What the person who asks calls the slide.
    features
        The folder that keeps features.
    slide_mpp
        Micrometres per level-0 pixel as the user says; None takes the file's.
    encoder
        A patch encoder's name, or the weights of the model's; None takes the model's,
        or the bundled one without a model.
    channels
        What the encoder sees as red, green and blue, as the user says; None takes the
        model's, or leaves it to the file.
    l0_from
        Level-0 (x, y) to begin at; None covers the whole slide evenly.
    site
        Where the slide is from, for models whose tokens are standardised per site.
    """

    slide: Path
    title: str
    features: Path
    model: Path | None = None
    slide_mpp: float | None = None
    encoder: str | None = None
    device: str | None = None
    batch_size: int | None = None
    stain: str | None = None
    channels: str | None = None
    l0_from: tuple[float, float] | None = None
    class_map: bool = True
    site: str | None = None


@dataclass(frozen=True)
class MapTissue:
    """Sort an analysed slide into kinds of tissue, without a model.

    ``codebooks`` is the folder that keeps the kinds of earlier slides, with their names
    and colours; without one, slides of one session share theirs.
    """

    features: Path
    title: str
    codebooks: Path | None = None


@dataclass(frozen=True, eq=False)
class AskWithout:
    """Predict again without the patches inside polygons of level-0 (x, y)."""

    features: Path
    title: str
    model: Path
    l0_polygons: tuple[NDArray[np.float64], ...]
    device: str | None = None
    site: str | None = None


@dataclass(frozen=True)
class CheckFaithfulness:
    """Check whether what the model attends to is what it decides by."""

    features: Path
    title: str
    model: Path
    device: str | None = None
    class_name: str | None = None
    site: str | None = None


@dataclass(frozen=True)
class MapSlides:
    """Say which slides of a folder of features are alike, by a model or without one.

    ``maps`` is the folder that keeps maps; None keeps none. ``labels`` say where the
    slides are from, for models whose tokens are standardised per site.
    """

    features: Path
    title: str
    model: Path | None = None
    maps: Path | None = None
    device: str | None = None
    labels: Path | None = None


Request = Analyse | MapTissue | AskWithout | CheckFaithfulness | MapSlides
Question = MapTissue | AskWithout | CheckFaithfulness


# Controls: what the window says of requests


@dataclass(frozen=True)
class Cancel:
    """Stop a request that runs or waits."""

    request: int


@dataclass(frozen=True)
class LookHere:
    """Go on around a place of the slide; None goes on evenly."""

    request: int
    l0_xy: tuple[float, float] | None


@dataclass(frozen=True)
class Stop:
    """End the engine."""


Control = Cancel | LookHere | Stop


# Replies without a request


@dataclass(frozen=True)
class Device:
    """What work can run on: ``id`` is torch's name for it."""

    id: str
    name: str


@dataclass(frozen=True)
class Starting:
    """The process is there and loads its libraries."""

    version: int
    pid: int
    priority: str


@dataclass(frozen=True)
class Ready:
    """The engine takes requests; ``device`` is its first choice of ``devices``."""

    device: str
    devices: tuple[Device, ...]
    threads: int
    versions: Mapping[str, str]


# Replies to a request, before its end


class Step(StrEnum):
    """What is being done now."""

    WAITING = "waiting"
    OPENING = "opening"
    LOADING_MODEL = "loading model"
    FINDING_TISSUE = "finding tissue"
    LOOKING = "looking"
    READING_FEATURES = "reading features"
    READING_SLIDE = "reading slide"
    MAPPING_CLASSES = "mapping classes"
    GROUPING_TISSUE = "grouping tissue"
    ASKING_WITHOUT = "asking without"
    REMOVING = "removing"
    EMBEDDING_SLIDES = "embedding slides"
    PLACING_SLIDES = "placing slides"


@dataclass(frozen=True)
class Working:
    """What is being done; ``progress`` where it can be counted."""

    step: Step
    progress: Progress | None = None


@dataclass(frozen=True)
class Noticed:
    """What the user should know; ``values`` and ``reason`` are what its kind says."""

    kind: NoticeKind
    values: Mapping[str, float] = field(default_factory=dict)
    reason: str = ""


@dataclass(frozen=True, eq=False)
class Started:
    """The slide is open and its patches are known; ``done`` of them are encoded.

    Attributes
    ----------
    mpp_xy
        Micrometres per level-0 pixel that the analysis goes by.
    mpp_from_user
        Whether the user said so, because the file does not.
    """

    patches: int
    done: int
    l0_patch_xy: tuple[int, int]
    mpp_xy: tuple[float, float] | None
    mpp_from_user: bool
    tissue: Tissue
    device: str
    encoder: str


@dataclass(frozen=True, eq=False)
class Predicted:
    """What the model says of the patches so far."""

    prediction: Prediction


@dataclass(frozen=True, eq=False)
class ClassesMapped:
    """What the model says of every place so far."""

    class_map: ClassMap


@dataclass(frozen=True, eq=False)
class SlidesEmbedded:
    """All slides are embedded; they lie by their main directions for now."""

    slide_map: MapOfSlides


# Replies that end a request


@dataclass(frozen=True)
class Analysed:
    """The whole slide is predicted; questions may use the feature file."""

    features: Path
    reused: bool
    seconds: float


@dataclass(frozen=True, eq=False)
class TissueMapped:
    tissue_map: TissueMap


@dataclass(frozen=True, eq=False)
class WithoutAnswered:
    """The answer without a region; ``removed`` (n,) says which patches were in it."""

    what_if: WhatIf
    removed: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class FaithfulnessChecked:
    faithfulness: Faithfulness


@dataclass(frozen=True, eq=False)
class SlidesMapped:
    slide_map: MapOfSlides


@dataclass(frozen=True)
class Cancelled:
    """The request was stopped; what was found so far is kept."""


class FailureKind(StrEnum):
    """Why a request cannot be answered.

    Where a reason is a sentence of the core, it calls the slide by its title.
    """

    UNREADABLE = "unreadable"  # reason: a sentence, why the slide cannot be opened
    DAMAGED = "damaged"  # no part of its tissue can be read
    NO_PIXEL_SIZE = "no pixel size"
    TOO_COARSE = "too coarse"  # values: mpp, target_mpp
    NO_TISSUE = "no tissue"  # tissue
    TOO_SMALL = "too small"  # tissue; smaller than one patch
    IN_USE = "in use"  # another window analyses the slide
    MODEL = "model"  # reason: a sentence, why the model cannot be used
    OTHER_ENCODER = "other encoder"  # reason: the encoder's name
    FEATURES = "features"  # reason: a sentence, why they cannot be used
    NOTHING_DRAWN = "nothing drawn"  # the region holds no patch
    ALL_DRAWN = "all drawn"  # the region holds every patch
    NO_CLASS = "no class"  # the model names none to ask about
    OUT_OF_MEMORY = "out of memory"
    FILE_REFUSED = "file refused"  # reason: which, and what the system says
    INPUT = "input"  # reason: a sentence
    DEFECT = "defect"  # reason: the error, for a bug report
    # Found by the window's end of the pipe
    CRASHED = "crashed"
    KILLED = "killed"  # most likely for want of memory
    NOT_STARTED = "not started"  # reason: the last words of the process, or ours
    LOST_RESULT = "lost result"  # reason: why it cannot be read


@dataclass(frozen=True, eq=False)
class Failed:
    """The request ended without an answer; what was found so far is kept.

    Without a request's number: the engine itself is lost. Every request that was open
    has been told before.
    """

    kind: FailureKind
    reason: str = ""
    values: Mapping[str, float] = field(default_factory=dict)
    tissue: Tissue | None = None


End = (
    Analysed
    | TissueMapped
    | WithoutAnswered
    | FaithfulnessChecked
    | SlidesMapped
    | Cancelled
    | Failed
)
Reply = (
    Starting
    | Ready
    | Working
    | Noticed
    | Started
    | Predicted
    | ClassesMapped
    | SlidesEmbedded
    | End
)
Message = Request | Control | Reply

END_TYPES: tuple[type, ...] = get_args(End)

# Work on a request yields its replies and returns the last of them.
Work = Generator[Reply, None, End]
