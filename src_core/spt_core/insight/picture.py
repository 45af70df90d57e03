"""A small picture of a slide's tissue, and single patches of it.

Only pixels within patches are shown: labels, macro images and writing on the glass
never appear in a picture.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from spt_core.insight.maps import CellMap, cell_map
from spt_core.insight.results import Prediction
from spt_core.slides.slide import Slide

SIDE = 1000
PLAIN = 232
GLASS = 255


@dataclass(frozen=True, eq=False)
class Picture:
    """Tissue at low resolution.

    Attributes
    ----------
    rgb : (h, w, 3) uint8
    l0_origin_xy
        Level-0 (x, y) of the top left corner.
    l0_scale
        Level-0 pixels per pixel.
    """

    rgb: NDArray[np.uint8]
    l0_origin_xy: tuple[int, int]
    l0_scale: float

    def cells(self, drawn: CellMap) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """For each pixel row and column the row and column of a map, or outside it."""
        height, width = self.rgb.shape[:2]
        l0_y = self.l0_origin_xy[1] + (np.arange(height) + 0.5) * self.l0_scale
        l0_x = self.l0_origin_xy[0] + (np.arange(width) + 0.5) * self.l0_scale
        rows = np.floor((l0_y - drawn.l0_origin_xy[1]) / drawn.l0_step_xy[1])
        cols = np.floor((l0_x - drawn.l0_origin_xy[0]) / drawn.l0_step_xy[0])
        return rows.astype(np.int64), cols.astype(np.int64)

    def spread(self, drawn: CellMap) -> NDArray[np.float32]:
        """A map's values for each pixel, (h, w) or (h, w, k), NaN outside."""
        rows, cols = self.cells(drawn)
        padded = np.pad(
            drawn.values,
            ((1, 1), (1, 1), *((0, 0) for _ in drawn.values.shape[2:])),
            constant_values=np.nan,
        )
        inside_rows = np.clip(rows + 1, 0, padded.shape[0] - 1)
        inside_cols = np.clip(cols + 1, 0, padded.shape[1] - 1)
        return padded[inside_rows[:, None], inside_cols[None, :]]


def tissue_picture(
    prediction: Prediction, slide: Slide | None, *, side: int = SIDE
) -> Picture:
    """The part of a slide that has patches, at most ``side`` pixels wide and high.

    Without the slide's file the patches are drawn in one grey.
    """
    ones = np.ones(len(prediction))
    drawn = cell_map(ones, prediction.p, prediction.xy, prediction.facts)
    rows, cols = drawn.values.shape[:2]
    step_x, step_y = drawn.l0_step_xy
    left, top = drawn.l0_origin_xy[0] - step_x, drawn.l0_origin_xy[1] - step_y
    width, height = (cols + 2) * step_x, (rows + 2) * step_y
    scale = max(width, height) / side
    if slide is None:
        shape = (max(1, round(height / scale)), max(1, round(width / scale)), 3)
        picture = Picture(np.full(shape, GLASS, np.uint8), (left, top), scale)
        picture.rgb[np.isfinite(picture.spread(drawn))] = PLAIN
        return picture
    rgb = _read(slide, left, top, width, height, scale)
    picture = Picture(rgb, (left, top), scale)
    rgb[~np.isfinite(picture.spread(drawn))] = GLASS
    return picture


def read_patch(
    slide: Slide, l0_xy: NDArray[np.integer], l0_size_xy: tuple[int, int], side: int
) -> Image.Image:
    """One patch, magnified or reduced to ``side`` pixels."""
    x, y = int(l0_xy[0]), int(l0_xy[1])
    scale = max(l0_size_xy) / side
    return Image.fromarray(_read(slide, x, y, *l0_size_xy, scale))


def _read(
    slide: Slide, l0_x: int, l0_y: int, l0_w: int, l0_h: int, scale: float
) -> NDArray[np.uint8]:
    """A level-0 region at ``scale`` level-0 pixels per pixel; white off the slide."""
    shape = (max(1, round(l0_h / scale)), max(1, round(l0_w / scale)))
    downsamples = slide.level_downsamples
    index = max(i for i, d in enumerate(downsamples) if i == 0 or d <= scale)
    level = slide.levels[index]
    down_x = slide.dimensions[0] / level.width
    down_y = slide.dimensions[1] / level.height
    x0, y0 = round(l0_x / down_x), round(l0_y / down_y)
    w, h = max(1, round(l0_w / down_x)), max(1, round(l0_h / down_y))
    canvas = np.full((h, w, 3), GLASS, np.uint8)
    left, top = max(x0, 0), max(y0, 0)
    right, bottom = min(x0 + w, level.width), min(y0 + h, level.height)
    if right > left and bottom > top:
        read = slide.show(index, left, top, right - left, bottom - top)
        canvas[top - y0 : bottom - y0, left - x0 : right - x0] = read
    small = Image.fromarray(canvas).resize(shape[::-1], Image.Resampling.BOX)
    return np.array(small)
