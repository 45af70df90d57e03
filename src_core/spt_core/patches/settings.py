"""What a run of encoding is asked to do, and what it says while it does it."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spt_core.bundled import ENCODER
from spt_core.errors import InputError
from spt_core.patches.encoder import EncoderCard
from spt_core.slides.grid import MIN_TISSUE, PatchGrid
from spt_core.slides.slide import Slide
from spt_core.slides.stain import NO_STAIN, STAINS
from spt_core.slides.tissue import Tissue
from spt_core.tokens.tokens import Tokens


@dataclass(frozen=True)
class EncodeSettings:
    """How slides are encoded. None takes the encoder's or the device's default.

    Attributes
    ----------
    slide_mpp
        Micrometres a level-0 pixel, for slides that do not say it.
    stain
        How stains are made alike: one of ``STAINS``.
    redo
        Encode again what is finished or was begun with other settings.
    batch_size
        Patches that are encoded at once; halved where memory does not suffice.
    readers, lanes, threads
        Threads that read patches, that encode batches, and that torch uses in each.
    """

    encoder: str = ENCODER
    weights: Path | None = None
    patch_size: int | None = None
    target_mpp: float | None = None
    slide_mpp: float | None = None
    min_tissue: float = MIN_TISSUE
    allow_upsampling: bool = False
    stain: str = NO_STAIN
    redo: bool = False
    device: str = "auto"
    batch_size: int | None = None
    readers: int | None = None
    lanes: int | None = None
    threads: int | None = None

    def __post_init__(self) -> None:
        if self.stain not in STAINS:
            raise InputError(
                f"There is no stain normalisation {self.stain!r}. Choose one of: "
                f"{', '.join(STAINS)}."
            )

    def patch(self, card: EncoderCard) -> tuple[int, float]:
        """Patch size and target mpp for this encoder."""
        return self.patch_size or card.patch_size, self.target_mpp or card.mpp

    def identity(self, card: EncoderCard, sha256: str) -> dict[str, Any]:
        """What two runs must share for their features to belong together."""
        patch_size, target_mpp = self.patch(card)
        return {
            "encoder": card.name,
            "encoder_sha256": sha256,
            "patch_size": patch_size,
            "mpp": float(target_mpp),
            "stain": self.stain,
            "min_tissue": float(self.min_tissue),
        }


@dataclass(frozen=True)
class SlideTask:
    """One slide to encode, and where its features go.

    ``slide``, ``tissue`` and ``grid`` are given where somebody has opened it, looked
    for its tissue or laid its grid already.
    """

    path: Path
    name: str
    out: Path
    mpp: float | None = None
    slide: Slide | None = field(default=None, compare=False, repr=False)
    tissue: Tissue | None = field(default=None, compare=False, repr=False)
    grid: PatchGrid | None = field(default=None, compare=False, repr=False)

    @property
    def title(self) -> str:
        """What sentences call the slide."""
        return self.name if self.slide is None else self.slide.title


@dataclass(frozen=True)
class SlideStarted:
    """A slide's patches are known; ``done`` of them were there already."""

    name: str
    total: int
    done: int = 0


@dataclass(frozen=True, eq=False)
class PartialTokens:
    """Tokens of one slide as they come, each of them once."""

    name: str
    tokens: Tokens


@dataclass(frozen=True)
class SlideResult:
    """How a slide ended: ``done``, ``skipped``, ``failed`` or ``busy``.

    ``error`` is what ``encode_slide`` raises for the last two; it says the reason.
    """

    name: str
    status: str
    path: Path | None = None
    patches: int = 0
    seconds: float = 0.0
    reason: str = ""
    notes: tuple[str, ...] = field(default=())
    error: InputError | None = field(default=None, compare=False, repr=False)
