"""One analysis of one slide: what was asked, and what is known so far. No Qt."""

from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from napari_spt.analysis.lattice import Lattice
from napari_spt.slides.slide_source import SlideSource, key_of
from spt_core.engine.protocol import (
    Analyse,
    Analysed,
    Cancelled,
    ClassesMapped,
    Failed,
    FaithfulnessChecked,
    Noticed,
    Predicted,
    Reply,
    Started,
    TissueMapped,
    WithoutAnswered,
    Working,
)
from spt_core.insight.results import ClassMap, Faithfulness, Prediction, WhatIf
from spt_core.insight.tissue_map import TissueMap
from spt_core.slides.tissue_mask import Tissue

if TYPE_CHECKING:
    from napari.layers import Layer

    from spt_core.insight.similarity import LookAlikes


class Phase(StrEnum):
    """How far an analysis is."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    CANCELLED = "cancelled"
    FAILED = "failed"


class Change(Enum):
    """What of an analysis has changed."""

    BEGUN = auto()
    PROGRESS = auto()
    NOTICE = auto()
    STARTED = auto()
    PREDICTION = auto()
    CLASS_MAP = auto()
    TISSUE_MAP = auto()
    LOOK_ALIKES = auto()
    FEATURES = auto()  # they may have been cleared
    ENDED = auto()
    FORGOTTEN = auto()  # its slide is gone


@dataclass(eq=False)
class Analysis:
    """What is known of one analysis of one slide; replies bring it up to date.

    Attributes
    ----------
    asked
        What the engine was asked for.
    request
        The number by which the engine knows it.
    features
        The feature file, once the whole slide is encoded.
    look_alikes_xy : (n, 2)
        Level-0 (x, y) of the patches that ``look_alikes`` knows.
    tissue_request
        The number by which the engine knows the question for kinds of tissue.
    faithfulness, what_ifs
        Questions that were asked of it, answered.
    """

    layer: "Layer"
    slide: SlideSource
    asked: Analyse
    model_name: str = ""
    request: int | None = None
    phase: Phase = Phase.WAITING
    is_stopping: bool = False
    is_mapping_tissue: bool = False
    working: Working | None = None
    notices: list[Noticed] = field(default_factory=list)
    started: Started | None = None
    prediction: Prediction | None = None
    class_map: ClassMap | None = None
    tissue_map: TissueMap | None = None
    tissue: Tissue | None = None
    failure: Failed | None = None
    features: Path | None = None
    reused: bool = False
    look_alikes: "LookAlikes | None" = None
    look_alikes_xy: NDArray[np.int64] | None = None
    tissue_request: int | None = None
    faithfulness: Faithfulness | None = None
    what_ifs: list[WhatIf] = field(default_factory=list)

    @property
    def key(self) -> str:
        return key_of(self.layer)

    @property
    def is_open(self) -> bool:
        return self.phase in (Phase.WAITING, Phase.RUNNING)

    @property
    def has_attention(self) -> bool:
        return self.prediction is not None and len(self.prediction.attention) > 0

    @property
    def names_class(self) -> bool:
        return self.prediction is not None and self.prediction.probabilities is not None

    @property
    def lattice(self) -> Lattice | None:
        if self.started is None:
            return None
        slide = self.slide
        return Lattice(self.started.l0_patch_xy, slide.l0_size_xy, slide.l0_bounds_xy)

    @property
    def mpp_xy(self) -> tuple[float, float] | None:
        """Micrometres per level-0 pixel, as the file or its user said."""
        return self.slide.mpp_xy if self.started is None else self.started.mpp_xy

    def asks_the_same(self, other: "Analysis") -> bool:
        """Whether another analysis is of the same slide, by the same model."""
        mine, its = self.asked, other.asked
        return all(
            getattr(mine, name) == getattr(its, name)
            for name in ("slide", "model", "slide_mpp", "channels", "site")
        )

    def carry_over(self, before: "Analysis") -> None:
        """Know what an earlier analysis found, until there is something new."""
        for name in (
            "started",
            "prediction",
            "class_map",
            "tissue_map",
            "tissue",
            "features",
            "look_alikes",
            "look_alikes_xy",
            "faithfulness",
            "what_ifs",
        ):
            setattr(self, name, getattr(before, name))

    def apply(self, reply: Reply) -> Change | None:
        """Learn from one reply of the engine; tells what has changed by it."""
        if self.phase == Phase.WAITING:
            self.phase = Phase.RUNNING
        match reply:
            case Working():
                self.working = reply
                return Change.PROGRESS
            case Noticed():
                self.notices.append(reply)
                return Change.NOTICE
            case Started():
                self.started, self.tissue = reply, reply.tissue
                return Change.STARTED
            case Predicted():
                self.prediction = reply.prediction
                return Change.PREDICTION
            case ClassesMapped():
                self.class_map = reply.class_map
                return Change.CLASS_MAP
            case TissueMapped():
                self.tissue_map = reply.tissue_map
                return Change.TISSUE_MAP
            case FaithfulnessChecked():
                self.faithfulness = reply.faithfulness
                return None
            case WithoutAnswered():
                self.what_ifs.append(reply.what_if)
                return None
            case Analysed():
                self.phase = Phase.DONE
                self.features, self.reused = reply.features, reply.reused
                return Change.ENDED
            case Cancelled():
                self.phase = Phase.CANCELLED
                return Change.ENDED
            case Failed():
                self.phase, self.failure = Phase.FAILED, reply
                self.tissue = reply.tissue or self.tissue
                return Change.ENDED
        return None

    def likeness_to(self, other: "Analysis", row: int) -> "NDArray[np.float32] | None":
        """How like a patch of another slide, or of this, all of this one's are, (n,).

        None where the two cannot be compared.
        """
        mine, theirs = self.look_alikes, other.look_alikes
        if mine is None or theirs is None or self.started is None:
            return None
        if other is not self and (
            other.started is None
            or mine.dim != theirs.dim
            or self.started.encoder != other.started.encoder
        ):
            return None
        return mine.like_vector(theirs.vector(row))

    def row_at(self, l0_xy: tuple[float, float]) -> int | None:
        """The patch of ``look_alikes`` at a place; None where there is none."""
        if self.lattice is None or self.look_alikes_xy is None:
            return None
        step = np.asarray(self.lattice.l0_step_xy)
        corner = np.asarray(l0_xy) // step * step
        rows = np.flatnonzero((self.look_alikes_xy == corner).all(axis=1))
        return int(rows[0]) if len(rows) else None
