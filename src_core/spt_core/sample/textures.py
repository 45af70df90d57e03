"""The ground of each kind of tissue, before nuclei and glands are put on it."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from spt_core.sample.noise import (
    FINE,
    MIDDLE,
    PERIOD,
    SLOW,
    Floats,
    cloud,
    enlarge,
    strands,
    window,
)
from spt_core.sample.packing import Packing, packing
from spt_core.sample.tissue import TissueClass

if TYPE_CHECKING:
    from spt_core.sample.painting import Canvas

# How much thinner than the thickest the septa of a solid tumour are.
SMALL_NESTS = 2.6
LARGE_NESTS = 1.0

COARSE = 4  # warps are computed at a quarter of the size


def fat_cells() -> Packing:
    return packing(96, 1152, 3, 0.4, 21, 5.0)


def large_cells() -> Packing:
    return packing(36, 768, 2, 0.6, 22, 1.5)


def nests() -> Packing:
    return packing(330, 4096, 16, 0.3, 23, 14.0)


def red_cells() -> Packing:
    return packing(11.5, 256, 1, 0.5, 24)


def lay_ground(canvas: Canvas) -> None:
    """Paint the ground of every class present."""
    stroma_like = {
        TissueClass.STROMA,
        TissueClass.BENIGN,
        TissueClass.GLANDULAR,
        TissueClass.LARGE_CELL,
        TissueClass.SMALL_CELL,
        TissueClass.LYMPHOCYTES,
    }
    fibres = canvas.present & stroma_like
    if fibres:
        mask = np.isin(canvas.classes, [int(t) for t in fibres])
        box = _box(mask)
        if box:
            h, e = _stroma(canvas, box)
            np.copyto(canvas.h[box], h, where=mask[box])
            np.copyto(canvas.e[box], e, where=mask[box])
    makers = {
        TissueClass.ADIPOSE: _adipose,
        TissueClass.LYMPHOCYTES: _lymphocytes,
        TissueClass.NECROSIS: _necrosis,
        TissueClass.BLOOD: _blood,
        TissueClass.SMALL_CELL: _small_cell,
        TissueClass.LARGE_CELL: _large_cell,
    }
    for tissue, maker in makers.items():
        if tissue not in canvas.present:
            continue
        mask = canvas.classes == tissue
        box = _box(mask)
        if box:
            maker(canvas, box, mask[box])
    # No section is equally thick everywhere.
    n = canvas.size
    thick = _slow(canvas, 31, (slice(0, n), slice(0, n)))
    thick = 1 + 0.07 * thick
    canvas.h *= thick
    canvas.e *= thick


Box = tuple[slice, slice]


def _box(mask: NDArray[np.bool_]) -> Box | None:
    rows = np.flatnonzero(mask.any(axis=1))
    if not len(rows):
        return None
    cols = np.flatnonzero(mask.any(axis=0))
    # Whole coarse steps, so that warps do not depend on the box.
    return (
        slice(rows[0] // 8 * 8, min(-(-(rows[-1] + 1) // 8) * 8, len(mask))),
        slice(cols[0] // 8 * 8, min(-(-(cols[-1] + 1) // 8) * 8, len(mask))),
    )


def _extent(box: Box) -> tuple[int, int]:
    return box[0].stop - box[0].start, box[1].stop - box[1].start


def _offset(canvas: Canvas, number: int) -> tuple[int, int]:
    """Where this slide starts in a repeating texture."""
    seed = canvas.spec.seed * 2654435761 + number * 40503
    return seed % 7919, (seed // 7919) % 7907


def _cut(canvas: Canvas, kind: tuple, number: int, box: Box) -> Floats:
    """A window of a texture, at an offset of its own."""
    dy, dx = _offset(canvas, number)
    height, width = _extent(box)
    top, left = canvas.top + box[0].start + dy, canvas.left + box[1].start + dx
    return window(cloud(*kind), top, left, height, width)


def _slow(canvas: Canvas, number: int, box: Box, scale: int = 8) -> Floats:
    """Smooth noise with features of hundreds of pixels."""
    dy, dx = _offset(canvas, number)
    height, width = _extent(box)
    top, left = canvas.top + box[0].start, canvas.left + box[1].start
    r0, c0 = top // scale - 2, left // scale - 2
    rows, cols = height // scale + 6, width // scale + 6
    low = window(cloud(*SLOW), r0 + dy, c0 + dx, rows, cols)
    x, y = left / scale - c0, top / scale - r0
    return enlarge(low, (x, y, x + width / scale, y + height / scale), (width, height))


def flow(canvas: Canvas, box: Box) -> tuple[Floats, Floats]:
    """Coordinates (across, along) of the fibres, at 1/COARSE of the box and more.

    Three coarse pixels of margin on every side; the first belongs to the slide pixel
    ``(top // COARSE - 3) * COARSE``.
    """
    height, width = _extent(box)
    top, left = canvas.top + box[0].start, canvas.left + box[1].start
    r0, c0 = top // COARSE - 3, left // COARSE - 3
    rows, cols = height // COARSE + 7, width // COARSE + 7
    dy, dx = _offset(canvas, 41)
    n1 = window(cloud(41, 330, 60, 1.2), r0 + dy, c0 + dx, rows, cols)
    n2 = window(cloud(42, 330, 60, 1.2), r0 + dx, c0 + dy, rows, cols)
    n3 = window(cloud(43, 50, 7, 0.8), r0 + dy, c0 + dx, rows, cols)
    wide = _far(canvas, 44, r0, c0, rows, cols)
    x = (np.arange(c0, c0 + cols, dtype=np.float32) * COARSE)[None, :]
    y = (np.arange(r0, r0 + rows, dtype=np.float32) * COARSE)[:, None]
    c = np.float32(np.cos(canvas.layout.fibre_angle))
    s = np.float32(np.sin(canvas.layout.fibre_angle))
    along = x * c + y * s + 60 * n2
    across = y * c - x * s + 420 * wide + 62 * n1 + 5 * n3
    # Crimp: collagen is wavy where it is slack.
    across = across + (2.2 + 2.0 * n2) * np.sin(along * np.float32(0.1) + 2.5 * n3)
    return across.astype(np.float32), along.astype(np.float32)


def _far(canvas: Canvas, number: int, r0: int, c0: int, rows: int, cols: int) -> Floats:
    """Noise over thousands of pixels, for a window at 1/COARSE."""
    dy, dx = _offset(canvas, number)
    step = 8
    top, left = r0 // step - 2, c0 // step - 2
    low = window(
        cloud(41, 330, 60, 1.2), top + dy, left + dx, rows // step + 6, cols // step + 6
    )
    x, y = c0 / step - left, r0 / step - top
    return enlarge(low, (x, y, x + cols / step, y + rows / step), (cols, rows))


def _fibres(canvas: Canvas, box: Box) -> tuple[Floats, Floats]:
    """Brightness of the fibres, and where they have come apart."""
    height, width = _extent(box)
    top, left = canvas.top + box[0].start, canvas.left + box[1].start
    across, along = flow(canvas, box)
    x, y = left / COARSE - left // COARSE + 3, top / COARSE - top // COARSE + 3
    size = (x, y, x + width / COARSE, y + height / COARSE)
    u = enlarge(across, size, (width, height)).astype(np.int32)
    v = enlarge(along, size, (width, height)).astype(np.int32)
    u &= PERIOD - 1
    v &= PERIOD - 1
    u <<= 10
    u += v
    texture, slits = _fibre_textures()
    return texture.take(u), slits.take(u)


@lru_cache(maxsize=1)
def _fibre_textures() -> tuple[Floats, Floats]:
    n = slice(0, PERIOD)
    rough = cloud(*FINE)[n, n]
    fibres = strands(51, 2.4, 22) + 0.8 * strands(52, 6, 60) + 0.5 * rough
    slits = strands(54, 4.5, 34) + 0.55 * strands(55, 12, 80)
    return fibres / fibres.std(), slits / slits.std()


def _stroma(canvas: Canvas, box: Box) -> tuple[Floats, Floats]:
    f, slit = _fibres(canvas, box)
    slow = _slow(canvas, 32, box)
    loose = np.clip(canvas.layout.looseness + 0.33 * slow, 0.0, 1.0)
    fine = _cut(canvas, FINE, 12, box)
    e = 0.70 - 0.40 * loose
    e += f * (0.13 - 0.02 * loose)
    # Clefts between bundles: white, more of them where the tissue is loose.
    slit += 2.0 - 1.25 * loose
    slit *= 1.8
    slit += 0.35 * fine
    np.clip(slit, 0.05, 1, out=slit)
    e *= slit
    e += 0.03 * fine
    h = (0.055 + 0.06 * loose) * slit
    h += 0.018 * fine
    return np.maximum(h, 0), np.maximum(e, 0.015)


def _adipose(canvas: Canvas, box: Box, mask: NDArray[np.bool_]) -> None:
    height, width = _extent(box)
    dy, dx = _offset(canvas, 61)
    border = fat_cells().field(
        "border",
        canvas.top + box[0].start + dy,
        canvas.left + box[1].start + dx,
        height,
        width,
    )
    border += 0.6 * _cut(canvas, MIDDLE, 13, box)
    wall = np.exp(-((border / 1.7) ** 2))
    # Some walls are torn.
    torn = np.clip(1.0 + 0.45 * _slow(canvas, 33, box, 4), 0.1, 1)
    wall *= torn
    e = 0.02 + 0.62 * wall
    np.copyto(canvas.e[box], e, where=mask)
    np.copyto(canvas.h[box], 0.01 + 0.10 * wall, where=mask)


def _lymphocytes(canvas: Canvas, box: Box, mask: NDArray[np.bool_]) -> None:
    fine = _cut(canvas, FINE, 14, box)
    np.copyto(canvas.e[box], 0.6 * canvas.e[box] + 0.06 + 0.03 * fine, where=mask)
    np.copyto(canvas.h[box], np.maximum(0.14 + 0.05 * fine, 0), where=mask)


def _necrosis(canvas: Canvas, box: Box, mask: NDArray[np.bool_]) -> None:
    fine = _cut(canvas, FINE, 15, box)
    smudge = _cut(canvas, MIDDLE, 16, box)
    e = 0.50 + 0.10 * smudge + 0.10 * fine
    # Where it has liquefied little is left.
    slow = _slow(canvas, 34, box)
    e *= np.clip(1.25 + 0.45 * slow + 0.5 * smudge, 0.12, 1)
    np.copyto(canvas.e[box], np.maximum(e, 0.02), where=mask)
    h = 0.12 + 0.045 * smudge + 0.05 * fine
    np.copyto(canvas.h[box], np.maximum(h, 0.01), where=mask)


def _blood(canvas: Canvas, box: Box, mask: NDArray[np.bool_]) -> None:
    height, width = _extent(box)
    dy, dx = _offset(canvas, 62)
    top, left = canvas.top + box[0].start + dy, canvas.left + box[1].start + dx
    cells = red_cells()
    border = cells.field("border", top, left, height, width)
    centre = cells.field("centre", top, left, height, width)
    shade = cells.field("shade", top, left, height, width)
    smudge = _cut(canvas, MIDDLE, 17, box)
    crowd = 1.1 + 0.8 * _slow(canvas, 35, box, 4) + 0.7 * smudge + 0.4 * shade
    cell = np.clip(np.minimum(border + 0.1, 6.1 - centre), 0, 1) * (crowd > 0)
    e = 0.16 + 0.06 * smudge
    e += cell * (0.62 + 0.07 * shade - 0.16 * np.exp(-((centre / 2.3) ** 2)))
    np.copyto(canvas.e[box], np.maximum(e, 0.01), where=mask)
    np.copyto(canvas.h[box], np.float32(0.02), where=mask)
    canvas.red[box] |= mask & (cell > 0.3)


def _small_cell(canvas: Canvas, box: Box, mask: NDArray[np.bool_]) -> None:
    fine = _cut(canvas, FINE, 18, box)
    inside = mask & (septa(canvas, box, SMALL_NESTS) < 0)
    np.copyto(canvas.e[box], 0.38 + 0.07 * fine, where=inside)
    np.copyto(canvas.h[box], np.maximum(0.14 + 0.05 * fine, 0), where=inside)


def _large_cell(canvas: Canvas, box: Box, mask: NDArray[np.bool_]) -> None:
    height, width = _extent(box)
    dy, dx = cell_offset(canvas, 63)
    top, left = canvas.top + box[0].start + dy, canvas.left + box[1].start + dx
    border = large_cells().field("border", top, left, height, width)
    shade = large_cells().field("shade", top, left, height, width)
    fine = _cut(canvas, FINE, 19, box)
    rim = np.exp(-((border / 1.5) ** 2))
    inside = mask & (septa(canvas, box, LARGE_NESTS) < 0)
    e = 0.42 + 0.07 * np.clip(shade, -1.5, 1.5) + 0.05 * fine + 0.12 * rim
    h = 0.17 + 0.035 * np.clip(shade, -1.5, 1.5) + 0.04 * fine
    np.copyto(canvas.e[box], e, where=inside)
    np.copyto(canvas.h[box], np.maximum(h, 0), where=inside)


def cell_offset(canvas: Canvas, number: int) -> tuple[int, int]:
    return _offset(canvas, number)


def septa(canvas: Canvas, box: Box, thin: float) -> Floats:
    """Above 0 in the strips of stroma between nests of tumour, below 0 in nests."""
    if thin not in canvas.strips:
        n = slice(0, canvas.size)
        canvas.strips[thin] = _septa(canvas, (n, n), thin)
    return canvas.strips[thin][box]


def _septa(canvas: Canvas, box: Box, thin: float) -> Floats:
    height, width = _extent(box)
    dy, dx = _offset(canvas, 64)
    top, left = canvas.top + box[0].start + dy, canvas.left + box[1].start + dx
    border = nests().field("border", top, left, height, width)
    bend = _cut(canvas, MIDDLE, 20, box)
    wide = 11 + 7 * _slow(canvas, 36, box)
    return wide / thin + 5 * bend - border
