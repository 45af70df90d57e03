"""What a run of encoding is asked to do, and what it says while it does it."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from spt_core.bundled import ENCODER
from spt_core.errors import InputError
from spt_core.hints import Device, Hint, check
from spt_core.precision import PRECISIONS
from spt_core.slides.grid import MIN_TISSUE, PatchGrid
from spt_core.slides.recipe import asked_recipe
from spt_core.slides.slide import Slide
from spt_core.slides.stain import NO_STAIN, STAINS
from spt_core.slides.tissue_mask import Tissue
from spt_core.tokens.tokens import Tokens

if TYPE_CHECKING:
    from spt_core.patches.encoder import EncoderCard


@dataclass(frozen=True)
class EncodeSettings:
    """How slides are encoded. None takes the encoder's or the device's default."""

    encoder: Annotated[
        str,
        Hint(
            "name of a patch encoder (see 'spt encoders'), or a file written by "
            "'spt train-patches'",
            label="Patch encoder",
            metavar="NAME_OR_FILE",
        ),
    ] = ENCODER
    weights: Annotated[
        Path | None,
        Hint(
            "file with the encoder's weights",
            label="Encoder weights",
            automatic="the encoder's own",
            advanced=True,
            flags=("--encoder-weights",),
        ),
    ] = None
    patch_size: Annotated[
        int | None,
        Hint(
            "side of a patch",
            above=0,
            unit="px",
            automatic="the encoder's own",
            metavar="PX",
        ),
    ] = None
    target_mpp: Annotated[
        float | None,
        Hint(
            "pixel size at which patches are encoded",
            label="Patch pixel size",
            above=0,
            unit="µm",
            automatic="the encoder's own",
            digits=4,
            metavar="UM",
        ),
    ] = None
    slide_mpp: Annotated[
        float | None,
        Hint(
            "pixel size of slides whose file does not state it",
            label="Slide pixel size",
            above=0,
            unit="µm",
            digits=4,
            metavar="UM",
        ),
    ] = None
    channels: Annotated[
        str | None,
        Hint(
            "what the encoder sees as red, green and blue: one to three channels by "
            "name or number, as DAPI,FITC,TRITC, or srh, stimulated Raman histology",
            automatic="all channels in their colours",
            metavar="CHANNELS",
        ),
    ] = None
    min_tissue: Annotated[
        float,
        Hint(
            "smallest share of a patch that must be tissue",
            label="Least tissue",
            minimum=0,
            maximum=1,
            advanced=True,
            metavar="SHARE",
        ),
    ] = MIN_TISSUE
    allow_upsampling: Annotated[
        bool,
        Hint("accept slides that are coarser than the patches", advanced=True),
    ] = False
    stain: Annotated[
        str,
        Hint(
            "normalise the stains of all slides to one reference",
            label="Stain normalisation",
            choices=STAINS,
            choice_labels=("None", "Macenko"),
        ),
    ] = NO_STAIN
    redo: Annotated[
        bool,
        Hint(
            "encode again what is finished or was begun with other settings",
            label="Encode again",
        ),
    ] = False
    device: Device = "auto"
    precision: Annotated[
        str,
        Hint(
            "in which the encoder runs; auto is float16 on a GPU that is faster in it, "
            "else float32",
            choices=PRECISIONS,
            advanced=True,
        ),
    ] = "auto"
    batch_size: Annotated[
        int | None,
        Hint(
            "patches encoded at once; halved where memory runs out",
            above=0,
            automatic="chosen for the device",
            advanced=True,
        ),
    ] = None
    readers: Annotated[
        int | None,
        Hint("threads that read patches", above=0, advanced=True),
    ] = None
    lanes: Annotated[
        int | None,
        Hint("threads that encode batches", above=0, advanced=True),
    ] = None
    threads: Annotated[
        int | None,
        Hint("threads that torch uses for each batch", above=0, advanced=True),
    ] = None

    def __post_init__(self) -> None:
        check(self)
        asked_recipe(self.channels)

    def patch(self, card: "EncoderCard") -> tuple[int, float]:
        """Patch size and target mpp for this encoder."""
        return self.patch_size or card.patch_size, self.target_mpp or card.mpp

    def identity(self, card: "EncoderCard", sha256: str) -> dict[str, Any]:
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
