"""Which square patches of a slide are encoded, and how each is read.

The lattice starts at (0, 0) of the full level-0 canvas; its step is a whole number of
level-0 pixels, one per axis. Coordinates are prefixed: ``g_`` grid (row, col), ``l0_``
level-0 pixels (x, y), ``lv_`` pixels of the level that is read.
"""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from spt_core.errors import InputError
from spt_core.slides.slide import Slide
from spt_core.slides.tissue_mask import Tissue

# The paper's: 300 pixels of 0.5 micrometres.
PATCH_SIZE = 300
TARGET_MPP = 0.5
# A patch is kept when at least this share of it is tissue.
MIN_TISSUE = 0.25
# Pixel sizes that differ by less are the same magnification.
MPP_TOLERANCE = 0.05
# Beyond this a slide is too coarse to be upsampled without being asked.
COARSEST = 1.5
# A level may be this much coarser than wanted: 221.5 pixels serve for 224.
_NEARLY = 1.02


class MissingPixelSizeError(InputError):
    """A slide does not say how large its pixels are, and the user did not either."""


class TooCoarseError(InputError):
    """A slide's pixels are too large for the patches that are wanted."""

    def __init__(
        self, message: str, *, mpp: float = 0.0, target_mpp: float = 0.0
    ) -> None:
        super().__init__(message)
        self.mpp, self.target_mpp = mpp, target_mpp


class TooSmallError(InputError):
    """A slide shows less than one patch."""


@dataclass(frozen=True, eq=False)
class PatchGrid:
    """The patches of one slide.

    Attributes
    ----------
    g_rc : (n, 2) int64
        Grid cells (row, col) of the patches, sorted.
    l0_step_xy
        Level-0 pixels from one patch to the next, which is also what a patch covers.
    patch_size, target_mpp
        Side of a patch in pixels, and micrometres per pixel, as an encoder sees it.
    level
        The pyramid level to read from, one of the file's own.
    lv_scale_xy
        Level-0 pixels per pixel of that level.
    notes
        Says that patches are enlarged, where they are.
    """

    g_rc: NDArray[np.int64]
    l0_step_xy: tuple[int, int]
    patch_size: int
    target_mpp: float
    level: int
    lv_scale_xy: tuple[float, float]
    notes: tuple[str, ...] = field(default=())

    def __len__(self) -> int:
        return len(self.g_rc)

    @property
    def l0_xy(self) -> NDArray[np.int64]:
        """Level-0 (x, y) of each patch's top left corner, (n, 2)."""
        return self.g_rc[:, ::-1] * np.asarray(self.l0_step_xy, np.int64)

    @property
    def g_origin(self) -> tuple[int, int]:
        """The smallest (row, col), from which a slide encoder counts."""
        row, col = self.g_rc.min(axis=0) if len(self) else (0, 0)
        return int(row), int(col)

    @cached_property
    def lv_size_xy(self) -> tuple[float, float]:
        """Pixels of the level that a patch covers; not always a whole number."""
        return (
            self.l0_step_xy[0] / self.lv_scale_xy[0],
            self.l0_step_xy[1] / self.lv_scale_xy[1],
        )

    @property
    def is_whole(self) -> bool:
        """Whether every patch begins and ends at whole pixels of the level."""
        return all(size == round(size) for size in self.lv_size_xy)


def lay_grid(
    slide: Slide,
    tissue: Tissue | None = None,
    *,
    patch_size: int = PATCH_SIZE,
    target_mpp: float = TARGET_MPP,
    min_tissue: float = MIN_TISSUE,
    allow_upsampling: bool = False,
) -> PatchGrid:
    """Lay the lattice over a slide and keep the patches that show tissue.

    Without ``tissue`` every patch inside the scanned part is kept.

    Raises
    ------
    MissingPixelSizeError
        Where the size of the slide's pixels is not known.
    TooCoarseError, TooSmallError
        Where the slide is too coarse, or smaller than one patch.
    """
    name = slide.title
    l0_step_xy, notes = patch_step(
        slide,
        patch_size=patch_size,
        target_mpp=target_mpp,
        allow_upsampling=allow_upsampling,
    )
    x, y, w, h = slide.bounds
    first_col, first_row = -(-x // l0_step_xy[0]), -(-y // l0_step_xy[1])
    end_col, end_row = (x + w) // l0_step_xy[0], (y + h) // l0_step_xy[1]
    if end_col <= first_col or end_row <= first_row:
        raise TooSmallError(
            f"{name} is smaller than one patch: it shows {w} × {h} pixels, and a patch "
            f"of {patch_size} pixels at {target_mpp:g} µm covers {l0_step_xy[0]} × "
            f"{l0_step_xy[1]} of them. Choose a smaller --patch-size or --target-mpp."
        )
    rows, cols = np.mgrid[first_row:end_row, first_col:end_col]
    g_rc = np.stack([rows.ravel(), cols.ravel()], axis=1).astype(np.int64)
    if tissue is not None:
        l0_xy = g_rc[:, ::-1] * np.asarray(l0_step_xy)
        g_rc = g_rc[tissue.shares(l0_xy, l0_step_xy) >= max(min_tissue, 1e-6)]
    level, lv_scale_xy = _best_level(slide, l0_step_xy, patch_size)
    return PatchGrid(
        g_rc, l0_step_xy, patch_size, target_mpp, level, lv_scale_xy, tuple(notes)
    )


def patch_step(
    slide: Slide, *, patch_size: int, target_mpp: float, allow_upsampling: bool = False
) -> tuple[tuple[int, int], list[str]]:
    """The lattice's step in level-0 pixels (x, y), and what the user should know."""
    name = slide.title
    if patch_size < 1 or target_mpp <= 0:
        raise InputError(
            f"A patch of {patch_size} pixels at {target_mpp:g} µm cannot be read: both "
            "must be greater than 0."
        )
    if slide.mpp_xy is None or slide.mpp is None:
        raise MissingPixelSizeError(
            f"{name} does not say how large its pixels are. What is its pixel size in "
            "micrometres (0.25 at 40x, 0.5 at 20x)? Give it with --slide-mpp, in the "
            "column 'mpp' of labels.csv, or in the window."
        )
    notes = []
    ratio = slide.mpp / target_mpp
    if ratio > COARSEST and not allow_upsampling:
        raise TooCoarseError(
            f"{name} has pixels of {slide.mpp:.3g} µm, too coarse for patches at "
            f"{target_mpp:g} µm. Choose a --target-mpp of {slide.mpp:.2g} or more, or "
            "take blurred patches with --allow-upsampling.",
            mpp=slide.mpp,
            target_mpp=target_mpp,
        )
    if ratio > 1 + MPP_TOLERANCE:
        notes.append(
            f"{name} has pixels of {slide.mpp:.3g} µm: they are enlarged to "
            f"{target_mpp:g} µm, and patches look blurred."
        )
    size = patch_size * target_mpp
    x, y = (max(1, round(size / mpp)) for mpp in slide.mpp_xy)
    return (x, y), notes


def _best_level(
    slide: Slide, l0_step_xy: tuple[int, int], patch_size: int
) -> tuple[int, tuple[float, float]]:
    """The coarsest level of the file that is at least as fine as wanted."""
    width, height = slide.dimensions
    best = (0, (1.0, 1.0))
    for index, level in enumerate(slide.levels):
        if level.is_made:
            continue
        scale_xy = (width / level.width, height / level.height)
        # A scale of 4.0008 is what rounding a level's size makes of 4.
        scale_xy = (_whole(scale_xy[0], level.width), _whole(scale_xy[1], level.height))
        if all(
            step / scale * _NEARLY >= patch_size
            for step, scale in zip(l0_step_xy, scale_xy, strict=True)
        ):
            best = (index, scale_xy)
    return best


def _whole(scale: float, pixels: int) -> float:
    """The whole number that a scale rounds to, if rounding one pixel explains it."""
    whole = round(scale)
    return float(whole) if abs(scale - whole) * pixels <= whole else scale
