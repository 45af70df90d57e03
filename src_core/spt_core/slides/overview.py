"""One small picture of a whole slide, and where its pixels lie on level 0."""

import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy import ndimage

from spt_core.slides.pyramid import chunk_size
from spt_core.slides.slide import Slide
from spt_core.slides.source import Pixels, UnreadableRegionError

# Nuclei blur into texture, and membranes between fat cells can still be seen.
UM_A_PIXEL = 8.0
_LARGEST_SIDE = 1600
_SMALLEST_SIDE = 640
# Used where nobody says how large a pixel is.
_UNKNOWN_SIDE = 1200
_CHUNK = 1024
# More pixels than this are not decoded for a made level: its tiles are sampled.
_WHOLE_PIXELS = 150 * 2**20
_SAMPLED_TILES = 4096
_THREADS = min(8, os.cpu_count() or 1)
# Scanners fill what they did not scan with exact white or black, in large pieces.
_PADDING_SIDE = 9


@dataclass(frozen=True, eq=False)
class Overview:
    """A slide at low resolution.

    Attributes
    ----------
    rgb : (h, w, 3) uint8
    padding : (h, w) bool
        Exact white or black in large pieces: not scanned.
    unreadable : (h, w) bool
        What the file cannot give.
    l0_scale_xy
        Level-0 pixels a pixel in x and y.
    um_pixel
        Micrometres a pixel, supposed to be 8 where the slide does not say.
    """

    rgb: Pixels
    padding: NDArray[np.bool_]
    unreadable: NDArray[np.bool_]
    l0_scale_xy: tuple[float, float]
    um_pixel: float


def read_overview(slide: Slide) -> Overview:
    """Read the whole slide at about 8 µm a pixel, within a second or so."""
    width, height = slide.dimensions
    scale = _wanted_scale(slide)
    downsamples = slide.level_downsamples
    index = max(i for i, n in enumerate(downsamples) if i == 0 or n <= scale * 1.02)
    level = slide.levels[index]
    base = next(n for n in slide.levels if n.file_level == level.file_level)
    if level.is_made and base.width * base.height > _WHOLE_PIXELS:
        index = slide.levels.index(base)
        rgb, unreadable, step_xy = _sample_tiles(slide, index)
    else:
        # A whole number of pixels, so that all pixels of the picture are alike.
        factor = max(1, round(scale / downsamples[index]))
        rgb, unreadable, step_xy = _reduce(slide, index, factor)
    level = slide.levels[index]
    l0_scale_xy = (
        step_xy[0] * width / level.width,
        step_xy[1] * height / level.height,
    )
    um_pixel = UM_A_PIXEL
    if slide.mpp is not None:
        um_pixel = slide.mpp * math.sqrt(math.prod(l0_scale_xy))
    return Overview(rgb, _padding(rgb), unreadable, l0_scale_xy, um_pixel)


def _wanted_scale(slide: Slide) -> float:
    """Level-0 pixels a pixel of the overview."""
    side = max(slide.dimensions)
    if slide.mpp is None:
        return max(1.0, side / _UNKNOWN_SIDE)
    scale = min(UM_A_PIXEL / slide.mpp, side / _SMALLEST_SIDE)
    return max(1.0, scale, side / _LARGEST_SIDE)


def _reduce(
    slide: Slide, index: int, factor: int
) -> tuple[Pixels, NDArray[np.bool_], tuple[int, int]]:
    """Read a level whole and average ``factor`` x ``factor`` pixels."""
    level = slide.levels[index]
    size = max(1, _CHUNK // factor)

    def chunk(row: int, col: int) -> Pixels:
        x, y = col * size * factor, row * size * factor
        w = min(size * factor, level.width - x)
        h = min(size * factor, level.height - y)
        pixels = slide.read(index, x, y, w, h)
        if factor == 1:
            return pixels
        return np.asarray(Image.fromarray(pixels).reduce(factor))

    shape = (-(-level.height // factor), -(-level.width // factor))
    rgb, unreadable = _fill(shape, (size, size), chunk)
    return rgb, unreadable, (factor, factor)


def _sample_tiles(
    slide: Slide, index: int
) -> tuple[Pixels, NDArray[np.bool_], tuple[int, int]]:
    """Give the mean colours of every k-th tile across and down."""
    level = slide.levels[index]
    tw, th = chunk_size(
        slide._source.tile_sizes[level.file_level], (level.width, level.height)
    )
    across, down = -(-level.width // tw), -(-level.height // th)
    k = max(1, math.ceil(math.sqrt(across * down / _SAMPLED_TILES)))

    def chunk(row: int, col: int) -> Pixels:
        x = min(col * k + k // 2, across - 1) * tw
        y = min(row * k + k // 2, down - 1) * th
        pixels = slide.read(
            index, x, y, min(tw, level.width - x), min(th, level.height - y)
        )
        return pixels.mean(axis=(0, 1)).round().astype(np.uint8)

    rgb, unreadable = _fill((-(-down // k), -(-across // k)), (1, 1), chunk)
    return rgb, unreadable, (k * tw, k * th)


def _fill(
    shape: tuple[int, int],
    size: tuple[int, int],
    chunk: Callable[[int, int], Pixels],
) -> tuple[Pixels, NDArray[np.bool_]]:
    rgb = np.full((*shape, 3), 255, np.uint8)
    unreadable = np.zeros(shape, bool)
    places = [
        (row, col)
        for row in range(-(-shape[0] // size[0]))
        for col in range(-(-shape[1] // size[1]))
    ]

    def fill(place: tuple[int, int]) -> None:
        top, left = place[0] * size[0], place[1] * size[1]
        here = np.s_[top : top + size[0], left : left + size[1]]
        try:
            rgb[here] = chunk(*place)
        except UnreadableRegionError:
            unreadable[here] = True

    with ThreadPoolExecutor(_THREADS) as threads:
        list(threads.map(fill, places))
    return rgb, unreadable


def _padding(rgb: Pixels) -> NDArray[np.bool_]:
    exact = (rgb.min(axis=-1) == 255) | (rgb.max(axis=-1) == 0)
    if not exact.any():
        return exact
    core = ndimage.minimum_filter(exact, _PADDING_SIDE, mode="nearest")
    return ndimage.maximum_filter(core, _PADDING_SIDE) & exact
