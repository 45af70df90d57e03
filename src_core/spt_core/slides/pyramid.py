"""The lazy pyramid: which levels a slide is shown at, and what each one reads.

Between the file's own levels, and below the smallest, levels are made where there is a
gap of more than 4x, so that a zoomed-out view never has to read the largest level
whole. A made level is the box average of the level above it; where even that would
decode too many tiles for one chunk (a huge file without a pyramid) it is sampled: every
k-th tile across and down gives its mean colour, and the rest is interpolated.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from PIL import Image

from spt_core.slides.source import Pixels

CHUNK = 512
MADE_CHUNK = 256
_LARGEST_GAP = 4.0
# napari reads the smallest level whole, for the thumbnail and the first view.
_SMALLEST_SIDE = 2048
# At most this many tiles are decoded for one chunk of a made level.
_TILES_A_CHUNK = 256
# Pixels of the base level that are reduced at a time, at most.
_BAND_PIXELS = 8 * 2**20

ReadBase = Callable[[int, int, int, int, int], Pixels]


@dataclass(frozen=True)
class Level:
    """One level of the pyramid; ``made_by`` is 1 for a level of the file's own.

    A made level's pixel is ``made_by`` pixels of ``file_level``, across and down.
    """

    width: int
    height: int
    file_level: int
    made_by: int = 1

    @property
    def is_made(self) -> bool:
        return self.made_by > 1


def plan_levels(sizes: tuple[tuple[int, int], ...]) -> tuple[Level, ...]:
    """Fill the gaps between the file's levels; largest first."""
    levels: list[Level] = []
    for index, (width, height) in enumerate(sizes):
        levels.append(Level(width, height, index))
        is_last = index + 1 == len(sizes)
        factor = 1
        while (
            max(width, height) / factor > _SMALLEST_SIDE
            if is_last
            else width / factor > sizes[index + 1][0] * _LARGEST_GAP
        ):
            factor *= 2
            size = math.ceil(width / factor), math.ceil(height / factor)
            levels.append(Level(*size, index, factor))
    return tuple(levels)


def chunk_size(tile: tuple[int, int], level: tuple[int, int]) -> tuple[int, int]:
    """Choose (width, height) of chunks: the multiple of the tile nearest 512 x 512.

    Strip-like tiles (an NDPI has 3968 x 8) and tiles that are far too large say
    nothing about where the data lie, and get 512 x 512.
    """
    tw, th = tile
    if (
        not 16 <= tw <= 2 * CHUNK
        or not 16 <= th <= 2 * CHUNK
        or max(tw, th) > 4 * min(tw, th)
    ):
        tw = th = CHUNK
    return (
        min(tw * max(1, round(CHUNK / tw)), max(level[0], 1)),
        min(th * max(1, round(CHUNK / th)), max(level[1], 1)),
    )


def make_chunk(
    read: ReadBase,
    level: Level,
    base_size: tuple[int, int],
    base_tile: tuple[int, int],
    col: int,
    row: int,
) -> Pixels:
    """Compute chunk (row, col) of a made level from the file's level above it."""
    factor = level.made_by
    x0, y0 = col * MADE_CHUNK * factor, row * MADE_CHUNK * factor
    x1 = min(base_size[0], x0 + MADE_CHUNK * factor)
    y1 = min(base_size[1], y0 + MADE_CHUNK * factor)
    tw, th = (min(n, 4 * CHUNK) if n > 0 else CHUNK for n in base_tile)
    across, down = math.ceil((x1 - x0) / tw), math.ceil((y1 - y0) / th)
    if across * down > _TILES_A_CHUNK:
        return _sample(read, level, (x0, y0, x1, y1), (tw, th))
    height = max(1, _BAND_PIXELS // (x1 - x0) // factor) * factor
    bands = []
    for top in range(y0, y1, height):
        band = read(level.file_level, x0, top, x1 - x0, min(height, y1 - top))
        bands.append(np.asarray(Image.fromarray(band).reduce(factor)))
    return np.concatenate(bands)


def _sample(
    read: ReadBase,
    level: Level,
    box: tuple[int, int, int, int],
    tile: tuple[int, int],
) -> Pixels:
    x0, y0, x1, y1 = box
    tw, th = tile
    across, down = math.ceil((x1 - x0) / tw), math.ceil((y1 - y0) / th)
    step = math.sqrt(across * down / _TILES_A_CHUNK)
    columns = max(1, min(across, round(across / step)))
    rows = max(1, min(down, round(down / step)))
    means = np.empty((rows, columns, 3), np.uint8)
    for i in range(rows):
        y = y0 + int((i + 0.5) * (y1 - y0) / rows) // th * th
        for j in range(columns):
            x = x0 + int((j + 0.5) * (x1 - x0) / columns) // tw * tw
            pixels = read(level.file_level, x, y, min(tw, x1 - x), min(th, y1 - y))
            means[i, j] = pixels.reshape(-1, 3).mean(axis=0)
    size = (
        math.ceil((x1 - x0) / level.made_by),
        math.ceil((y1 - y0) / level.made_by),
    )
    picture = Image.fromarray(means).resize(size, Image.Resampling.BILINEAR)
    return np.asarray(picture)
