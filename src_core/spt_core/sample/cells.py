"""Putting nuclei, glands and vessels on the ground."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from spt_core.sample.noise import Floats, uniform
from spt_core.sample.nuclei import nucleus_stamps, stamp
from spt_core.sample.packing import Packing, packing
from spt_core.sample.structures import REACH, place, structures
from spt_core.sample.textures import (
    COARSE,
    LARGE_NESTS,
    SMALL_NESTS,
    cell_offset,
    fat_cells,
    flow,
    large_cells,
    nests,
    septa,
)
from spt_core.sample.tissue import TissueClass

if TYPE_CHECKING:
    from spt_core.sample.painting import Canvas


class _Points:
    """Cell centres near a canvas with random numbers of their own."""

    def __init__(self, canvas: Canvas, cells: Packing, number: int, reach: int):
        dy, dx = cell_offset(canvas, number)
        left, top = canvas.left + dx, canvas.top + dy
        far = canvas.size + reach
        x, y, self._keys = cells.centres(
            left - reach, top - reach, left + far, top + far
        )
        self.x, self.y = x - dx, y - dy  # slide pixels
        self.cols = np.floor(x - left).astype(np.int64)
        self.rows = np.floor(y - top).astype(np.int64)
        self._seed = canvas.spec.seed * 64 + number

    def __len__(self) -> int:
        return len(self.x)

    def keep(self, chosen: NDArray[np.bool_]) -> None:
        for name in ("x", "y", "cols", "rows", "_keys"):
            setattr(self, name, getattr(self, name)[chosen])

    def chance(self, number: int) -> Floats:
        k = self._keys
        return uniform(self._seed, number, k[:, 0], k[:, 1], k[:, 2])


def put_structures(canvas: Canvas) -> None:
    """Glands of a tumour, ducts and acini of benign lobules, vessels of stroma."""
    wanted = (
        (TissueClass.STROMA, "vessel", 260, 4096, 0.6, 71),
        (TissueClass.ADIPOSE, "vessel", 420, 4096, 0.4, 72),
        (TissueClass.SMALL_CELL, "vessel", 300, 4096, 0.4, 73),
        (TissueClass.LARGE_CELL, "vessel", 300, 4096, 0.4, 73),
        (TissueClass.BENIGN, "acinus", 66, 2048, 0.78, 74),
        (TissueClass.BENIGN, "duct", 330, 4096, 0.7, 75),
        (TissueClass.GLANDULAR, "gland", 128, 2048, 0.97, 76),
    )
    target = (canvas.h, canvas.e, canvas.solid, canvas.red)
    for tissue, name, spacing, period, share, number in wanted:
        if tissue not in canvas.present:
            continue
        cells = packing(spacing, period, 16, 0.35, number)
        points = _Points(canvas, cells, number, REACH)
        points.keep(canvas.layout.at(points.x, points.y) == tissue)
        points.keep(points.chance(0) < share)
        if name == "acinus":
            points.keep(_in_lobule(canvas, points))
        library = structures(name)
        which = (points.chance(1) * len(library)).astype(np.int64)
        turn = (points.chance(2) * 8).astype(np.int64)
        strength_h = 0.88 + 0.24 * points.chance(3)
        strength_e = 0.85 + 0.30 * points.chance(4)
        for row, col, k, t, sh, se in zip(
            points.rows.tolist(),
            points.cols.tolist(),
            which.tolist(),
            turn.tolist(),
            strength_h.tolist(),
            strength_e.tolist(),
            strict=True,
        ):
            place(target, library[k], t, row, col, (sh, se))


def _in_lobule(canvas: Canvas, points: _Points) -> NDArray[np.bool_]:
    """Acini come in lobules: not between them."""
    cells = nests()
    dy, dx = cell_offset(canvas, 64)
    r = np.floor((points.y + dy) / cells.scale).astype(np.int64) % len(cells.border)
    c = np.floor((points.x + dx) / cells.scale).astype(np.int64) % len(cells.border)
    return np.asarray(cells.border[r, c] > 34)


def put_nuclei(canvas: Canvas) -> None:
    """Nuclei of every class present; sparse ones before crowded ones."""
    present = canvas.present
    spindle = {
        TissueClass.STROMA: canvas.layout.cellularity,
        TissueClass.BENIGN: 0.9,
        TissueClass.GLANDULAR: 1.0,
        TissueClass.LARGE_CELL: 0.9,
        TissueClass.SMALL_CELL: 0.9,
        TissueClass.LYMPHOCYTES: 0.5,
        TissueClass.BLOOD: 0.04,
        TissueClass.NECROSIS: 0.06,
    }
    if present & spindle.keys():
        _spindles(canvas, spindle)
        _inflammation(canvas)
    if TissueClass.ADIPOSE in present:
        _fat_nuclei(canvas)
    if TissueClass.NECROSIS in present:
        _packed(canvas, TissueClass.NECROSIS, "ghost", 30, 81, 0.45, None)
        _packed(canvas, TissueClass.NECROSIS, "debris", 19, 82, 0.35, None)
    if TissueClass.LYMPHOCYTES in present:
        _packed(canvas, TissueClass.LYMPHOCYTES, "lymphocyte", 14.5, 83, 0.93, None)
    if TissueClass.SMALL_CELL in present:
        strips = septa(canvas, _whole(canvas), SMALL_NESTS)
        _packed(canvas, TissueClass.SMALL_CELL, "small_cell", 16.8, 84, 0.92, strips)
    if TissueClass.LARGE_CELL in present:
        strips = septa(canvas, _whole(canvas), LARGE_NESTS)
        _packed(canvas, TissueClass.LARGE_CELL, "large_cell", 36, 63, 0.93, strips)


def _whole(canvas: Canvas) -> tuple[slice, slice]:
    return (slice(0, canvas.size), slice(0, canvas.size))


def _in_nest(canvas: Canvas, points: _Points) -> NDArray[np.bool_]:
    """Whether points lie among the cells of a solid tumour, not in its septa."""
    kind = canvas.classes[points.rows, points.cols]
    inside = np.zeros(len(points), bool)
    for tissue, thin in (
        (TissueClass.SMALL_CELL, SMALL_NESTS),
        (TissueClass.LARGE_CELL, LARGE_NESTS),
    ):
        if tissue in canvas.present:
            strips = septa(canvas, _whole(canvas), thin)
            inside |= (kind == tissue) & (strips[points.rows, points.cols] < 2)
    return inside


def _stamp(
    canvas: Canvas, points: _Points, look: str, angle: Floats, strength: Floats
) -> None:
    stamps = nucleus_stamps(look)
    chosen = stamps.choose(angle, points.chance(9))
    stamp(canvas.h, canvas.e, stamps, points.rows, points.cols, chosen, strength)


def _packed(
    canvas: Canvas,
    tissue: TissueClass,
    look: str,
    spacing: float,
    number: int,
    share: float,
    strips: Floats | None,
) -> None:
    cells = (
        large_cells()
        if look == "large_cell"
        else packing(spacing, 512 if spacing < 20 else 1024, 16, 0.35, number)
    )
    points = _Points(canvas, cells, number, 0)
    here = canvas.classes[points.rows, points.cols] == tissue
    here &= ~canvas.solid[points.rows, points.cols]
    if strips is not None:
        here &= strips[points.rows, points.cols] < -3
    points.keep(here)
    points.keep(points.chance(0) < share)
    angle = points.chance(1) * np.float32(np.pi)
    strength = 0.82 + 0.36 * points.chance(2)
    _stamp(canvas, points, look, angle, strength)


def _fibre_angle(canvas: Canvas, rows: NDArray, cols: NDArray) -> Floats:
    n = slice(0, canvas.size)
    across, _ = flow(canvas, (n, n))
    gy, gx = np.gradient(across, axis=0), np.gradient(across, axis=1)
    r = (rows + canvas.top) // COARSE - canvas.top // COARSE + 3
    c = (cols + canvas.left) // COARSE - canvas.left // COARSE + 3
    return np.arctan2(gx[r, c], -gy[r, c]).astype(np.float32)


def _spindles(canvas: Canvas, share: dict[TissueClass, float]) -> None:
    points = _Points(canvas, packing(31, 1024, 16, 0.25, 85), 85, 0)
    table = np.zeros(len(TissueClass), np.float32)
    for tissue, value in share.items():
        table[tissue] = value
    kind = canvas.classes[points.rows, points.cols]
    # Nuclei sit between fibres, not in empty slits.
    there = canvas.e[points.rows, points.cols] > 0.12
    there &= ~canvas.solid[points.rows, points.cols]
    there &= ~_in_nest(canvas, points)
    points.keep(there & (points.chance(0) < 0.62 * table[kind]))
    angle = _fibre_angle(canvas, points.rows, points.cols)
    angle = angle + 0.5 * (points.chance(1) - 0.5)
    _stamp(canvas, points, "fibroblast", angle, 0.75 + 0.45 * points.chance(2))


def _inflammation(canvas: Canvas) -> None:
    """Single lymphocytes and plasma cells, in drifts."""
    for look, spacing, number, share in (
        ("lymphocyte", 26, 86, 0.14),
        ("plasma", 34, 87, 0.10),
    ):
        points = _Points(canvas, packing(spacing, 1024, 16, 0.2, number), number, 0)
        kind = canvas.classes[points.rows, points.cols]
        there = (kind != TissueClass.GLASS) & (kind != TissueClass.ADIPOSE)
        there &= (kind != TissueClass.BLOOD) & (kind != TissueClass.NECROSIS)
        there &= ~canvas.solid[points.rows, points.cols]
        there &= ~_in_nest(canvas, points)
        # Chance shared by a neighbourhood makes the drifts.
        drift = uniform(
            canvas.spec.seed,
            number,
            np.floor(points.x / 170).astype(np.int64),
            np.floor(points.y / 170).astype(np.int64),
        )
        points.keep(there & (points.chance(0) < share * (0.1 + 2.2 * drift**2)))
        angle = points.chance(1) * np.float32(np.pi)
        _stamp(canvas, points, look, angle, 0.85 + 0.3 * points.chance(2))


def _fat_nuclei(canvas: Canvas) -> None:
    """A few flat nuclei in the walls of fat cells."""
    cells = fat_cells()
    points = _Points(canvas, packing(26, 1024, 16, 0.0, 88), 88, 0)
    points.keep(canvas.classes[points.rows, points.cols] == TissueClass.ADIPOSE)
    if not len(points):
        return
    dy, dx = cell_offset(canvas, 61)
    s, n = cells.scale, len(cells.border)
    r = np.floor((points.y + dy) / s).astype(np.int64)
    c = np.floor((points.x + dx) / s).astype(np.int64)
    border = cells.border
    gx = border[r % n, (c + 2) % n] - border[r % n, (c - 2) % n]
    gy = border[(r + 2) % n, c % n] - border[(r - 2) % n, c % n]
    wall = (border[r % n, c % n] < 4) & ~canvas.solid[points.rows, points.cols]
    angle = np.arctan2(gx, -gy).astype(np.float32)
    points.keep(wall)
    _stamp(canvas, points, "endothelium", angle[wall], 0.9 + 0.2 * points.chance(2))
