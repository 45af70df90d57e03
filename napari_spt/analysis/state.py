"""One analysis of one slide: messages of the engine in, what is known out. No Qt."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from napari_spt.slides.slide_source import SlideSource

WAITING, RUNNING, DONE = "waiting", "running", "done"
CANCELLED, FAILED = "cancelled", "failed"


@dataclass(frozen=True, eq=False)
class Reading:
    """What the model says so far.

    Attributes
    ----------
    l0_xy, g_rc : (n, 2)
    attention : (heads, n)
    """

    seen: float
    patches: int
    total: int
    classes: tuple[str, ...]
    probabilities: NDArray[np.float64] | None
    verdict: str
    sentences: tuple[str, ...]
    l0_xy: NDArray[np.int64]
    g_rc: NDArray[np.int64]
    attention: NDArray[np.float32]
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def top(self) -> int | None:
        if self.probabilities is None or not len(self.probabilities):
            return None
        return int(np.argmax(self.probabilities))


@dataclass(frozen=True, eq=False)
class ClassReading:
    """What the model says of each place: probabilities (n, k), unsure (n,)."""

    classes: tuple[str, ...]
    l0_xy: NDArray[np.int64]
    probabilities: NDArray[np.float32]
    unsure: NDArray[np.bool_]

    @property
    def labels(self) -> NDArray[np.int64]:
        """1 for the first class and so on, one more than the last where unsure."""
        filled = np.nan_to_num(self.probabilities, nan=-1.0)
        labels = filled.argmax(axis=1) + 1
        return np.where(self.unsure, len(self.classes) + 1, labels)


@dataclass(frozen=True)
class Pace:
    """How far the work is."""

    done: int
    total: int
    rate: float | None = None
    seconds_left: float | None = None
    message: str = ""


@dataclass(eq=False)
class Analysis:
    """What is known of one analysis; ``take`` brings it up to date."""

    slide: SlideSource
    model: Path | None
    slide_mpp: float | None = None
    device: str | None = None
    request: int | None = None
    state: str = WAITING
    patches: int = 0
    l0_step_xy: tuple[int, int] | None = None
    tissue: NDArray[np.bool_] | None = None
    l0_tissue_scale: tuple[float, float] = (1.0, 1.0)
    pace: Pace | None = None
    reading: Reading | None = None
    class_reading: ClassReading | None = None
    notes: list[str] = field(default_factory=list)
    kind: str = ""
    sentence: str = ""
    features: Path | None = None
    reused: bool = False
    model_name: str = ""

    def asks_the_same(self, other: "Analysis") -> bool:
        """Whether another analysis is of the same slide, by the same model."""
        return (self.slide.path, self.model, self.slide_mpp) == (
            other.slide.path,
            other.model,
            other.slide_mpp,
        )

    def take_over(self, before: "Analysis") -> None:
        """Know what an analysis before this one found."""
        self.patches, self.l0_step_xy = before.patches, before.l0_step_xy
        self.reading, self.class_reading = before.reading, before.class_reading
        self.tissue, self.l0_tissue_scale = before.tissue, before.l0_tissue_scale
        self.features = before.features

    @property
    def is_open(self) -> bool:
        return self.state in (WAITING, RUNNING)

    @property
    def um_pixel_xy(self) -> tuple[float, float] | None:
        """Micrometres a level-0 pixel, as the file or its user said."""
        if self.slide.mpp_xy is None and self.slide_mpp is not None:
            return self.slide_mpp, self.slide_mpp
        return self.slide.mpp_xy

    def take(
        self, event: str, facts: dict[str, Any], arrays: dict[str, NDArray]
    ) -> None:
        """Learn from one message."""
        if self.state == WAITING and event not in (CANCELLED, FAILED):
            self.state = RUNNING
        if event == "started":
            self._start(facts, arrays)
        elif event == "progress":
            self.pace = Pace(
                int(facts.get("done") or 0),
                int(facts.get("total") or 0),
                facts.get("rate"),
                facts.get("seconds_left"),
                facts.get("message") or "",
            )
        elif event == "prediction":
            self.reading = _reading(facts, arrays, self.patches)
        elif event == "class_map":
            self.class_reading = _class_reading(facts, arrays)
        elif event == "note":
            self.notes.append(str(facts.get("sentence", "")))
        elif event == "done":
            self._finish(facts, arrays)
        elif event in (CANCELLED, FAILED):
            self.state = event
            self.kind = str(facts.get("kind", ""))
            self.sentence = str(facts.get("sentence", ""))
            self._see_tissue(facts, arrays)

    def _start(self, facts: dict[str, Any], arrays: dict[str, NDArray]) -> None:
        self.patches = int(facts.get("patches") or 0)
        step = facts.get("patch_l0")
        if step:
            self.l0_step_xy = (int(step[0]), int(step[1]))
        self._see_tissue(facts, arrays)

    def _see_tissue(self, facts: dict[str, Any], arrays: dict[str, NDArray]) -> None:
        mask = arrays.get("mask")
        if mask is None or mask.ndim != 2:
            return
        self.tissue = np.asarray(mask, bool)
        width, height = self.slide.l0_size_xy
        self.l0_tissue_scale = (width / mask.shape[1], height / mask.shape[0])

    def _finish(self, facts: dict[str, Any], arrays: dict[str, NDArray]) -> None:
        self.state = DONE
        if "attention" in arrays:
            self.reading = _reading(facts, arrays, self.patches)
        if facts.get("features"):
            self.features = Path(facts["features"])
        self.reused = bool(facts.get("reused"))


def _reading(facts: dict[str, Any], arrays: dict[str, NDArray], total: int) -> Reading:
    shares = facts.get("probabilities")
    l0_xy = np.asarray(arrays["l0_xy"], np.int64)
    return Reading(
        seen=float(facts.get("seen") or 0.0),
        patches=int(facts.get("patches") or len(l0_xy)),
        total=int(facts.get("total") or total or len(l0_xy)),
        classes=tuple(facts.get("classes") or ()),
        probabilities=None if shares is None else np.asarray(shares, np.float64),
        verdict=str(facts.get("verdict", "")),
        sentences=tuple(facts.get("sentences") or ()),
        l0_xy=l0_xy,
        g_rc=np.asarray(arrays["g_rc"], np.int64),
        attention=np.asarray(arrays["attention"], np.float32),
        facts=dict(facts),
    )


def _class_reading(facts: dict[str, Any], arrays: dict[str, NDArray]) -> ClassReading:
    shares = np.asarray(arrays["probabilities"], np.float32)
    unsure = arrays.get("unsure")
    if unsure is None:
        unsure = ~np.isfinite(shares).all(axis=1)
    return ClassReading(
        tuple(facts.get("classes") or ()),
        np.asarray(arrays["l0_xy"], np.int64),
        shares,
        np.asarray(unsure, bool),
    )
