"""A slide as tokens: one row per encoded patch, and where they came from."""

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

# Two pixel sizes closer than this are the same magnification.
MPP_TOLERANCE = 0.05


@dataclass(frozen=True)
class TokenFacts:
    """Where tokens came from. ``None`` means that the file does not say.

    Attributes
    ----------
    mpp, patch_size
        Micrometres per pixel, and side in pixels, of a patch as the encoder saw it.
    stain_done
        What was done to this slide where ``stain`` was asked for: the same, or
        ``none`` and why.
    channels
        What the encoder saw as red, green and blue; see ``spt_core.slides.recipe``.
    channels_done
        Which numbers of this slide's channels are black and full brightness there.
    l0_patch_xy
        Level-0 pixels (x, y) that a patch covers.
    l0_step_xy
        Level-0 pixels (x, y) from one patch to the next.
    l0_size_xy
        Width and height of the slide's level 0.
    g_origin
        The full grid's smallest (row, col); ``Tokens.p`` counts from it.
    off_lattice
        The patches fit no single grid, so ``Tokens.p`` is the nearest cell and two
        patches may share one.
    scanner
        Its maker, model, objective and pixel size, as far as the slide states them.
    site
        Where the slide was stained and scanned, as whoever reads the tokens says.
    has_positions
        Whether the file says where its patches lie; without that all tokens are at
        one place, which tells a model nothing.
    source
        Whose form the file has.
    assumed
        Names of the facts that were guessed from a folder's name, a magnification or
        the coordinates, because the file does not state them.
    """

    name: str = ""
    encoder: str | None = None
    encoder_sha256: str | None = None
    mpp: float | None = None
    patch_size: int | None = None
    patch_um: float | None = None
    stain: str | None = None
    stain_done: str | None = None
    channels: str | None = None
    channels_done: str | None = None
    l0_patch_xy: tuple[int, int] | None = None
    l0_step_xy: tuple[int, int] | None = None
    l0_size_xy: tuple[int, int] | None = None
    l0_magnification: float | None = None
    target_magnification: float | None = None
    overlap: int = 0
    slide_fingerprint: str | None = None
    g_origin: tuple[int, int] = (0, 0)
    off_lattice: bool = False
    spt_version: str | None = None
    scanner: str | None = None
    site: str | None = None
    has_positions: bool = True
    source: str = ""
    assumed: tuple[str, ...] = ()

    def differences(self, other: "TokenFacts") -> dict[str, tuple[object, object]]:
        """Facts that both state differently and that one model needs to be the same."""
        differ: dict[str, tuple[object, object]] = {}
        for name in ("encoder", "encoder_sha256", "patch_size", "stain", "channels"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine is not None and theirs is not None and mine != theirs:
                differ[name] = (mine, theirs)
        if self.mpp and other.mpp:
            ratio = max(self.mpp, other.mpp) / min(self.mpp, other.mpp)
            if ratio > 1 + MPP_TOLERANCE:
                differ["mpp"] = (self.mpp, other.mpp)
        return differ


@dataclass(frozen=True, eq=False)
class Tokens:
    """The patch tokens of one slide.

    Attributes
    ----------
    x : (n, d) float array
        What the patch encoder made of each patch.
    p : (n, 2) int64 array
        Grid (row, col) counted from the full grid's smallest row and column: what a
        slide encoder takes.
    xy : (n, 2) int64 array
        Level-0 pixels (x, y) of each patch's top left corner.
    facts : TokenFacts
    """

    x: NDArray[np.floating]
    p: NDArray[np.int64]
    xy: NDArray[np.int64]
    facts: TokenFacts = field(default_factory=TokenFacts)

    def __post_init__(self) -> None:
        n = len(self.x)
        if self.x.ndim != 2 or self.p.shape != (n, 2) or self.xy.shape != (n, 2):
            raise ValueError(
                "Tokens need x (n, d), p (n, 2) and xy (n, 2), not "
                f"{self.x.shape}, {self.p.shape} and {self.xy.shape}."
            )

    def __len__(self) -> int:
        return len(self.x)

    @property
    def dim(self) -> int:
        return int(self.x.shape[1])

    @property
    def name(self) -> str:
        return self.facts.name

    @property
    def g_rc(self) -> NDArray[np.int64]:
        """Grid (row, col) on the slide's own lattice, (n, 2)."""
        return self.p + np.asarray(self.facts.g_origin, dtype=np.int64)

    def take(self, rows: NDArray[np.integer]) -> "Tokens":
        """Some of the tokens, with the same facts."""
        return replace(self, x=self.x[rows], p=self.p[rows], xy=self.xy[rows])
