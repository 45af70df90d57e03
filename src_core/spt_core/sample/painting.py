"""Painting one block of a slide: stain concentrations first, then colours."""

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

from spt_core.sample import cells, textures
from spt_core.sample.layout import SCALE, Layout, SlideSpec, plan
from spt_core.sample.marks import fold_density, mark_colours, tear
from spt_core.sample.noise import ROUGH, Floats, cloud, enlarge, window
from spt_core.sample.stain import STEPS, colour_tables
from spt_core.sample.tissue import TissueClass

BLOCK = 512
MARGIN = 32  # painted beyond the block, so that nuclei on its border are whole
GLASS_TILE = 256

Bytes = NDArray[np.uint8]


@dataclass
class Canvas:
    """What is being painted: a block and its margin, in stain concentrations."""

    spec: SlideSpec
    layout: Layout
    left: int  # slide pixels of the canvas' corner
    top: int
    size: int
    classes: Bytes
    h: Floats
    e: Floats
    red: NDArray[np.bool_]
    solid: NDArray[np.bool_]
    present: frozenset[TissueClass]
    strips: dict[float, Floats] = field(default_factory=dict)  # kept by septa()


@dataclass(frozen=True)
class Painter:
    """Paints any block of one slide."""

    spec: SlideSpec
    layout: Layout
    tissue_colours: NDArray[np.uint32]
    red_colours: NDArray[np.uint32]
    grain: NDArray[np.int16]  # the sensor's noise on a block

    def block(self, left: int, top: int) -> Bytes | None:
        """Colours (BLOCK, BLOCK, 3); None where there is nothing but glass."""
        box = (left, top, left + BLOCK, top + BLOCK)
        marks = self.layout.marks.near(*box)
        canvas = self._canvas(left - MARGIN, top - MARGIN, BLOCK + 2 * MARGIN)
        if canvas is None:
            if not marks.on_glass():
                return None
            rgb = self.glass(BLOCK)
        else:
            textures.lay_ground(canvas)
            cells.put_structures(canvas)
            cells.put_nuclei(canvas)
            if marks.folds:
                x, y = _axes(canvas.left, canvas.top, canvas.size)
                layers = fold_density(marks.folds, x, y)
                canvas.h *= layers
                canvas.e *= layers
            if marks.tears:
                x, y = _axes(canvas.left, canvas.top, canvas.size)
                n = canvas.size
                grain = window(cloud(*ROUGH), canvas.top, canvas.left, n, n)
                rest = tear(marks.tears, x, y, grain)
                canvas.h *= rest
                canvas.e *= rest
            rgb = self._colours(canvas)
        if marks.on_glass():
            grain = window(cloud(*ROUGH), top, left, BLOCK, BLOCK)
            mark_colours(rgb, marks, left, top, grain)
        return rgb

    def glass(self, size: int) -> Bytes:
        """Bare glass with the sensor's noise, from the corner of a block."""
        tone = np.rint(np.array(self.spec.site.glass)).astype(np.int16)
        return np.clip(self.grain[:size, :size] + tone, 0, 255).astype(np.uint8)

    def _canvas(self, left: int, top: int, size: int) -> Canvas | None:
        # Whole plan pixels around the canvas, so that every block cuts alike.
        pad = 4
        r0, c0 = top // SCALE - pad, left // SCALE - pad
        n = size // SCALE + 2 * pad + 2
        plan_classes = self.layout.window(r0, c0, n, n)
        kinds = np.unique(plan_classes)
        if kinds.tolist() == [TissueClass.GLASS]:
            return None
        shape = (size, size)
        classes = np.full(shape, kinds[0], np.uint8)
        if len(kinds) > 1:
            x, y = left / SCALE - c0, top / SCALE - r0
            box = (x, y, x + size / SCALE, y + size / SCALE)
            best = np.full(shape, -np.inf, np.float32)
            for kind in kinds.tolist():
                soft = gaussian_filter((plan_classes == kind).astype(np.float32), 0.8)
                score = enlarge(soft, box, shape, smooth=True)
                rough = window(
                    cloud(*ROUGH), top + 391 * kind, left + 173 * kind, size, size
                )
                score += 0.16 * rough
                better = score > best
                np.copyto(classes, np.uint8(kind), where=better)
                np.copyto(best, score, where=better)
        return Canvas(
            spec=self.spec,
            layout=self.layout,
            left=left,
            top=top,
            size=size,
            classes=classes,
            h=np.zeros(shape, np.float32),
            e=np.zeros(shape, np.float32),
            red=np.zeros(shape, bool),
            solid=np.zeros(shape, bool),
            present=frozenset(TissueClass(k) for k in kinds.tolist()),
        )

    def _colours(self, canvas: Canvas) -> Bytes:
        h = _levels(canvas.h, self.spec.site.spread)
        e = _levels(canvas.e, self.spec.site.spread)
        h <<= 8
        h |= e
        # Four bytes at a time are quicker to look up than three.
        packed = self.tissue_colours.take(h)
        red = canvas.red[MARGIN:-MARGIN, MARGIN:-MARGIN]
        if red.any():
            packed[red] = self.red_colours.take(h[red])
        rgb = packed.view(np.uint8).reshape(*packed.shape, 4)[..., :3]
        out = rgb + self.grain
        return np.clip(out, 0, 255, out=out).astype(np.uint8)


def _levels(concentration: Floats, spread: float) -> NDArray[np.uint16]:
    """Steps of the colour table, after the optics, without the margin.

    The scanner gives ``spread`` of each pixel to each neighbour; where it sharpens,
    that is below zero.
    """
    cut = slice(MARGIN - 1, 1 - MARGIN)
    x = concentration[cut, cut] * np.float32(STEPS)
    own, other = np.float32(1 - 2 * spread), np.float32(spread)
    rows = x[:-2] + x[2:]
    rows *= other
    rows += own * x[1:-1]
    both = rows[:, :-2] + rows[:, 2:]
    both *= other
    both += own * rows[:, 1:-1]
    both += np.float32(0.5)
    return np.clip(both, 0, 255, out=both).astype(np.uint16)


def _axes(left: int, top: int, size: int) -> tuple[Floats, Floats]:
    x = np.arange(left, left + size, dtype=np.float32)[None, :]
    y = np.arange(top, top + size, dtype=np.float32)[:, None]
    return x, y


@lru_cache(maxsize=2)
def painter(spec: SlideSpec) -> Painter:
    """The painter of a slide; kept, because its plan takes a while to draw."""
    rng = np.random.default_rng((spec.seed, 3))
    tissue_colours, red_colours = colour_tables(spec.site)
    # Mostly brightness, a little colour, and not quite white: sensors debayer.
    both = rng.standard_normal((GLASS_TILE, GLASS_TILE, 1))
    each = rng.standard_normal((GLASS_TILE, GLASS_TILE, 3))
    noise = gaussian_filter(both + 0.5 * each, (0.5, 0.5, 0), mode="wrap")
    grain = np.rint(noise / noise.std() * spec.site.noise).astype(np.int16)
    return Painter(
        spec,
        plan(spec),
        tissue_colours,
        red_colours,
        np.tile(grain, (BLOCK // GLASS_TILE, BLOCK // GLASS_TILE, 1)),
    )
