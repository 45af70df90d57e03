"""One small image of a whole slide, and where its pixels lie on level 0."""

import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy import ndimage

from spt_core.slides.slide import Slide
from spt_core.slides.source import Pixels, UnreadableRegionError

# Nuclei blur into texture, and membranes between fat cells can still be seen.
UM_A_PIXEL = 8.0
_LARGEST_SIDE = 1600
_SMALLEST_SIDE = 360
# Used where the pixel size is not known.
_UNKNOWN_SIDE = 1200
_CHUNK = 1024
# More pixels than this are not decoded for a made level: its tiles are sampled.
_WHOLE_PIXELS = 256 * 2**20
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
        What cannot be decoded.
    l0_scale_xy
        Level-0 pixels per pixel, in x and y.
    um_pixel
        Micrometres per pixel, assumed to be 8 where the slide does not state it.
    """

    rgb: Pixels
    padding: NDArray[np.bool_]
    unreadable: NDArray[np.bool_]
    l0_scale_xy: tuple[float, float]
    um_pixel: float


def read_overview(slide: Slide) -> Overview:
    """Read the whole slide at about 8 µm per pixel, within a second or so."""
    width, height = slide.dimensions
    scale = _wanted_scale(slide)
    downsamples = slide.level_downsamples
    index = max(i for i, n in enumerate(downsamples) if i == 0 or n <= scale * 1.02)
    level = slide.levels[index]
    base = next(n for n in slide.levels if n.file_level == level.file_level)
    if level.is_made and base.width * base.height > _WHOLE_PIXELS:
        index = slide.levels.index(base)
        rgb, unreadable, step_xy = _sample_tiles(slide, index, scale)
    else:
        # A whole number, so that all pixels of the overview cover the same area.
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
    """Level-0 pixels per pixel of the overview."""
    side = max(slide.dimensions)
    if slide.mpp is None:
        return max(1.0, side / _UNKNOWN_SIDE)
    scale = min(UM_A_PIXEL / slide.mpp, side / _SMALLEST_SIDE)
    return max(1.0, scale, side / _LARGEST_SIDE)


def _reduce(
    slide: Slide, index: int, factor: int
) -> tuple[Pixels, NDArray[np.bool_], tuple[float, float]]:
    """Read a level whole and average ``factor`` x ``factor`` pixels."""
    level = slide.levels[index]
    size = max(1, _CHUNK // factor)

    def chunk(top: int, left: int, rows: int, cols: int) -> Pixels:
        x, y = left * factor, top * factor
        w = min(cols * factor, level.width - x)
        h = min(rows * factor, level.height - y)
        pixels = slide.read(index, x, y, w, h)
        if factor == 1:
            return pixels
        return np.asarray(Image.fromarray(pixels).reduce(factor))

    shape = (-(-level.height // factor), -(-level.width // factor))
    rgb, unreadable = _fill(shape, size, chunk, smallest=64)
    return rgb, unreadable, (factor, factor)


def _sample_tiles(
    slide: Slide, index: int, scale: float
) -> tuple[Pixels, NDArray[np.bool_], tuple[float, float]]:
    """Read every k-th tile across and down, and let it represent those around it."""
    level = slide.levels[index]
    tw, th = (n if 64 <= n <= _CHUNK else 512 for n in slide.tile_size(index))
    across, down = -(-level.width // tw), -(-level.height // th)
    k = max(2, math.ceil(math.sqrt(level.width * level.height / _WHOLE_PIXELS)))
    wanted = scale / slide.level_downsamples[index]
    parts = max(1, min(tw, th, round(k * min(tw, th) / wanted)))

    def chunk(top: int, left: int, rows: int, cols: int) -> Pixels:
        row, col = top // parts, left // parts
        # The last tiles are cut off at the slide's edge: use the ones before them.
        x = min((col * k + k // 2) * tw, max(0, level.width - tw))
        y = min((row * k + k // 2) * th, max(0, level.height - th))
        pixels = slide.read(
            index, x, y, min(tw, level.width - x), min(th, level.height - y)
        )
        picture = Image.fromarray(pixels)
        return np.asarray(picture.resize((parts, parts), Image.Resampling.BOX))

    shape = (-(-down // k) * parts, -(-across // k) * parts)
    rgb, unreadable = _fill(shape, parts, chunk, smallest=parts)
    return rgb, unreadable, (k * tw / parts, k * th / parts)


def _fill(
    shape: tuple[int, int],
    size: int,
    chunk: Callable[[int, int, int, int], Pixels],
    *,
    smallest: int,
) -> tuple[Pixels, NDArray[np.bool_]]:
    """Assemble an image; ``chunk`` takes top, left, rows and columns of it.

    A chunk that cannot be read is tried again in quarters, down to ``smallest``.
    """
    rgb = np.full((*shape, 3), 255, np.uint8)
    unreadable = np.zeros(shape, bool)

    def fill(top: int, left: int, side: int) -> None:
        rows, cols = min(side, shape[0] - top), min(side, shape[1] - left)
        if rows <= 0 or cols <= 0:
            return
        here = np.s_[top : top + rows, left : left + cols]
        try:
            rgb[here] = chunk(top, left, rows, cols)
        except UnreadableRegionError as error:
            if side <= smallest or error.is_whole:
                unreadable[here] = True
                return
            half = -(-side // 2)
            for down in (0, half):
                for right in (0, half):
                    fill(top + down, left + right, half)

    tops = range(0, shape[0], size)
    places = [(top, left) for top in tops for left in range(0, shape[1], size)]
    with ThreadPoolExecutor(_THREADS) as threads:
        list(threads.map(lambda place: fill(place[0], place[1], size), places))
    return rgb, unreadable


def _padding(rgb: Pixels) -> NDArray[np.bool_]:
    exact = (darkest(rgb) == 255) | (brightest(rgb) == 0)
    if not exact.any():
        return exact
    core = ndimage.minimum_filter(exact, _PADDING_SIDE, mode="nearest")
    return ndimage.maximum_filter(core, _PADDING_SIDE) & exact


def brightest(rgb: Pixels) -> Pixels:
    """The largest of each pixel's three values, (h, w)."""
    # Ten times as quick as rgb.max(axis=-1).
    return np.maximum(np.maximum(rgb[..., 0], rgb[..., 1]), rgb[..., 2])


def darkest(rgb: Pixels) -> Pixels:
    """The smallest of each pixel's three values, (h, w)."""
    return np.minimum(np.minimum(rgb[..., 0], rgb[..., 1]), rgb[..., 2])
