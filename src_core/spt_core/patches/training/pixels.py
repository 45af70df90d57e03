"""Where the pixels of patch training come from: pictures, and the tissue of slides."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from spt_core.errors import InputError
from spt_core.patches.encoder import resized
from spt_core.patches.reading import read_patches
from spt_core.patches.training.settings import PatchTrainSettings
from spt_core.patches.training.tiles import Origin
from spt_core.slides import open_slide
from spt_core.slides.grid import PatchGrid, lay_grid
from spt_core.slides.source import Pixels
from spt_core.slides.tissue import find_tissue

# A slide's patches are read larger than views, so that crops have room to move.
ROOM = 1.5
# Tiles finer than the views by more than this are kept coarser.
FINEST = 2.5


@dataclass(frozen=True, eq=False)
class SlideTissue:
    """The patches that a slide's tissue has, in the order of their turns.

    Attributes
    ----------
    order : (n,)
        Rows of the grid.
    slide_mpp
        By which the slide is opened, where its file does not state it.
    channels
        What is asked for as red, green and blue.
    um
        Micrometres per pixel of the patches as they are kept.
    """

    origin: Origin
    grid: PatchGrid
    order: NDArray[np.int64]
    slide_mpp: float | None
    channels: str | None
    um: float
    fingerprint: str

    @property
    def patch_bytes(self) -> int:
        return 3 * self.grid.patch_size**2


@dataclass(frozen=True)
class Tile:
    """A picture, and how it is kept in memory.

    Attributes
    ----------
    um
        Micrometres per pixel as it is kept.
    """

    origin: Origin
    width: int
    height: int
    um: float

    @property
    def nbytes(self) -> int:
        return 3 * self.width * self.height


def find_slide_tissue(
    origin: Origin, settings: PatchTrainSettings, rng: np.random.Generator
) -> SlideTissue:
    """Lay a grid over a slide's tissue, and draw the order of its patches."""
    slide_mpp = origin.mpp or settings.slide_mpp
    slide = open_slide(origin.path, slide_mpp, channels=settings.channels)
    side = round(ROOM * (settings.view_size or 1))
    mpp = settings.mpp or 1.0
    grid = lay_grid(slide, find_tissue(slide), patch_size=side, target_mpp=mpp)
    if len(grid) == 0:
        raise InputError("no tissue was found on it")
    order = rng.permutation(len(grid)).astype(np.int64)
    return SlideTissue(
        origin, grid, order, slide_mpp, settings.channels, mpp, slide.fingerprint
    )


def read_slide_patches(tissue: SlideTissue, rows: Sequence[int]) -> list[Pixels | None]:
    """Patches at some rows of the grid; None for those that cannot be read."""
    path, mpp = tissue.origin.path, tissue.slide_mpp
    slide = open_slide(path, mpp, channels=tissue.channels)
    grid, side = tissue.grid, tissue.grid.patch_size
    shape = (side, side)
    if grid.is_whole:
        width, height = grid.lv_size_xy
        shape = (round(height), round(width))
    patches: list[Pixels | None] = []
    for row in rows:  # one by one: they lie far apart
        out = np.empty((1, *shape, 3), np.uint8)
        readable = read_patches(slide, grid, np.array([row]), out)[0]
        patches.append(_at_side(out, side) if readable else None)
    return patches


def measure_tile(origin: Origin, settings: PatchTrainSettings) -> Tile | str:
    """How large a picture will be in memory, or why it cannot be opened."""
    try:
        with Image.open(origin.path) as picture:
            width, height = picture.size
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        return str(error)
    mpp = settings.mpp or 1.0
    um = origin.mpp or settings.tile_mpp or mpp
    coarser = max(1.0, mpp / um / FINEST)
    if coarser > 1:
        width, height = (max(1, round(side / coarser)) for side in (width, height))
    return Tile(origin, width, height, um * coarser)


def read_tile(tile: Tile) -> tuple[Pixels, str]:
    """A tile's pixels as they are kept, and a fingerprint of the file's own."""
    try:
        with Image.open(tile.origin.path) as file:
            picture = file.convert("RGB")
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        raise InputError(str(error)) from error
    digest = hashlib.sha256(repr(picture.size).encode())
    digest.update(picture.tobytes())
    size = (tile.width, tile.height)
    if picture.size != size:
        picture = picture.resize(size, Image.Resampling.BILINEAR)
    # A copy: the decoder's own array may not be written to, and torch minds.
    return np.array(picture), f"tile:{digest.hexdigest()[:32]}"


def _at_side(pixels: Pixels, side: int) -> Pixels:
    planes = resized(torch.from_numpy(pixels), side)  # (1, 3, side, side)
    return np.ascontiguousarray(planes[0].permute(1, 2, 0).numpy())
