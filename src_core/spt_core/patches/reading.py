"""Reading the pixels of a block of patches."""

import math

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from spt_core.slides import Slide, UnreadableRegionError
from spt_core.slides.grid import PatchGrid
from spt_core.slides.source import Pixels

# A block is read as one region unless it holds more unwanted area per patch than this.
_WASTE = 2.0


def read_patches(
    slide: Slide, grid: PatchGrid, rows: NDArray[np.int64], out: Pixels
) -> NDArray[np.bool_]:
    """Read patches into ``out`` (n, h, w, 3); returns which could be read.

    Where patches lie on whole pixels of their level they are handed on as they are,
    to be resampled on the device; elsewhere they are resampled here, from exactly the
    area that each covers.
    """
    if len(rows) > 1 and _are_close(grid, rows):
        try:
            _read_together(slide, grid, rows, out)
            return np.ones(len(rows), bool)
        except UnreadableRegionError:
            pass  # one by one: most of them may be intact
    readable = np.ones(len(rows), bool)
    for i in range(len(rows)):
        try:
            _read_together(slide, grid, rows[i : i + 1], out[i : i + 1])
        except UnreadableRegionError:
            readable[i] = False
            out[i] = 255
    return readable


def _are_close(grid: PatchGrid, rows: NDArray[np.int64]) -> bool:
    g_rc = grid.g_rc[rows]
    extent = g_rc.max(axis=0) - g_rc.min(axis=0) + 1
    return bool(extent.prod() <= _WASTE * len(rows))


def _read_together(
    slide: Slide, grid: PatchGrid, rows: NDArray[np.int64], out: Pixels
) -> None:
    level = slide.levels[grid.level]
    lv_w, lv_h = grid.lv_size_xy
    # (n, 2): where each patch begins in the level's pixels
    lv_xy = grid.g_rc[rows][:, ::-1] * np.array([lv_w, lv_h])
    left, top = (math.floor(n) for n in lv_xy.min(axis=0))
    right = min(level.width, math.ceil(lv_xy[:, 0].max() + lv_w - 1e-6))
    bottom = min(level.height, math.ceil(lv_xy[:, 1].max() + lv_h - 1e-6))
    region = slide.read(grid.level, left, top, right - left, bottom - top)
    if grid.is_whole:
        w, h = round(lv_w), round(lv_h)
        for patch, (x, y) in zip(out, lv_xy.round().astype(int), strict=True):
            part = region[y - top : y - top + h, x - left : x - left + w]
            if part.shape != patch.shape:  # the level ends a pixel early
                spare = ((0, h - part.shape[0]), (0, w - part.shape[1]), (0, 0))
                part = np.pad(part, spare, mode="edge")
            patch[:] = part
        return
    height, width = out.shape[1:3]
    for patch, (x, y) in zip(out, lv_xy, strict=True):
        # Its own pixels and no others, whatever it was read together with.
        x0, y0 = math.floor(x), math.floor(y)
        x1 = min(level.width, math.ceil(x + lv_w - 1e-6))
        y1 = min(level.height, math.ceil(y + lv_h - 1e-6))
        picture = Image.fromarray(region[y0 - top : y1 - top, x0 - left : x1 - left])
        box = (
            x - x0,
            y - y0,
            min(x - x0 + lv_w, picture.width),
            min(y - y0 + lv_h, picture.height),
        )
        patch[:] = np.asarray(
            picture.resize((width, height), Image.Resampling.BILINEAR, box=box)
        )
