"""Glands, ducts and vessels, painted once each and stamped in eight positions."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import distance_transform_edt, gaussian_filter

from spt_core.sample.noise import FINE, ROUGH, Floats, cloud, somewhere
from spt_core.sample.nuclei import HALF, nucleus_stamps, stamp

REACH = 150  # no structure reaches farther than this from its centre, in pixels


@dataclass(frozen=True)
class Structure:
    """What a structure leaves of the ground and what it adds, on a square."""

    keep: Floats
    add_h: Floats
    add_e: Floats
    solid: NDArray[np.bool_]  # nothing else may sit here
    red: NDArray[np.bool_]  # red cells

    def turned(self, position: int) -> tuple[NDArray, ...]:
        """Views of the arrays in one of eight positions."""
        parts: tuple[NDArray, ...] = (
            self.keep,
            self.add_h,
            self.add_e,
            self.solid,
            self.red,
        )
        if position & 1:
            parts = tuple(p[:, ::-1] for p in parts)
        if position & 2:
            parts = tuple(p[::-1] for p in parts)
        if position & 4:
            parts = tuple(p.T for p in parts)
        return parts


@dataclass(frozen=True)
class _Shape:
    """The ground of a structure before cells are put in."""

    rho: Floats  # distance to the centre
    edge: Floats  # distance inwards from the outer outline, pixels
    lumen: Floats  # distance inwards from the rim of the lumen, pixels
    half: int


def _wobble(theta: Floats, rng: np.random.Generator, size: float) -> Floats:
    """A closed outline's waves, from a table: angles are fewer than pixels."""
    steps = 2048
    angle = 2 * np.pi / steps * np.arange(steps)
    total = np.zeros(steps)
    for k in range(2, 8):
        total += rng.normal() / k * np.cos(k * angle + rng.uniform(0, 2 * np.pi))
    place = (theta * np.float32(steps / (2 * np.pi))).astype(np.int32)
    return (size * total).astype(np.float32)[place % steps]


def _shape(
    rng: np.random.Generator,
    radius: float,
    wall: float,
    irregular: float,
    stretch: float,
    ragged: float,
) -> _Shape:
    half = min(int(radius * 1.35 * np.sqrt(stretch)) + 6, REACH - 4)
    y, x = np.mgrid[-half : half + 1, -half : half + 1].astype(np.float32)
    angle = rng.uniform(0, np.pi)
    u = (x * np.cos(angle) + y * np.sin(angle)) / np.sqrt(stretch)
    v = (y * np.cos(angle) - x * np.sin(angle)) * np.sqrt(stretch)
    theta = np.arctan2(v, u)
    rho = np.hypot(u, v)
    outer = radius * (1 + _wobble(theta, rng, irregular))
    side = 2 * half + 1
    grain = somewhere(cloud(*ROUGH), side, rng)
    edge = outer - rho + 0.8 * grain
    thick = wall * (1 + _wobble(theta, rng, 0.5 * irregular)) + ragged * grain
    # Never cut by the square: fade out before its sides.
    rim = half - 2 - np.maximum(np.abs(x), np.abs(y))
    return _Shape(rho, np.minimum(edge, rim), outer - rho - thick, half)


def _holes(shape: _Shape, rng: np.random.Generator, count: int) -> Floats:
    """Several round lumina instead of one: a cribriform gland."""
    half = shape.half
    y, x = np.mgrid[-half : half + 1, -half : half + 1].astype(np.float32)
    best = np.full(x.shape, -99.0, np.float32)
    rows, cols = np.nonzero(shape.edge > 24)
    for _ in range(count if len(rows) else 0):
        k = rng.integers(len(rows))
        r = rng.uniform(7, 17)
        stretch = rng.uniform(0.8, 1.25)
        d = np.hypot((x - cols[k] + half) * stretch, (y - rows[k] + half) / stretch)
        best = np.maximum(best, r - d)
    return best


def _scatter(
    weight: Floats, apart: float, rng: np.random.Generator, tries: int
) -> NDArray[np.int64]:
    """Points at least ``apart`` pixels from each other, more where weight is high."""
    rows, cols = np.nonzero(weight > 0)
    if not len(rows):
        return np.empty((0, 2), np.int64)
    p = weight[rows, cols].astype(np.float64)
    picks = rng.choice(len(rows), size=tries, p=p / p.sum())
    kept = np.empty((tries, 2))
    n = 0
    for r, c in zip(rows[picks].tolist(), cols[picks].tolist(), strict=True):
        near = (kept[:n, 0] - r) ** 2 + (kept[:n, 1] - c) ** 2
        if not n or near.min() > apart**2:
            kept[n] = r, c
            n += 1
    return kept[:n].astype(np.int64)


def _finish(shape: _Shape, h: Floats, e: Floats, red: NDArray[np.bool_]) -> Structure:
    cover = np.clip(shape.edge / 1.5 + 0.5, 0, 1)
    keep = (1 - cover).astype(np.float32)
    return Structure(
        keep,
        (h * cover).astype(np.float32),
        (e * cover).astype(np.float32),
        shape.edge > -3,
        red & (shape.edge > 0),
    )


def _epithelium(
    rng: np.random.Generator,
    shape: _Shape,
    lumen: Floats,
    look: str,
    apart: float,
    basal: float,
    cytoplasm: tuple[float, float],
    secretion: float,
) -> Structure:
    """Line a structure with cells whose long axis points to the lumen."""
    half, side = shape.half, 2 * shape.half + 1
    grain = somewhere(cloud(*FINE), side, rng)
    h = np.full((side, side), cytoplasm[0], np.float32) * (1 + 0.25 * grain)
    e = np.full((side, side), cytoplasm[1], np.float32) * (1 + 0.14 * grain)
    # A thin pink membrane around the structure.
    e += 0.35 * np.exp(-(((shape.edge - 1.5) / 1.8) ** 2))
    wall = (shape.edge > 0) & (lumen < 0)
    to_lumen = distance_transform_edt(lumen < 0).astype(np.float32)
    flow = gaussian_filter(to_lumen if to_lumen.max() > 0 else shape.rho, 3)
    gy, gx = np.gradient(flow)
    weight = np.where(
        wall & (shape.edge > 5) & (to_lumen > 6),
        0.08 + np.exp(-(((shape.edge - basal) / 6) ** 2)),
        0,
    )
    weight[:HALF] = weight[-HALF:] = 0
    weight[:, :HALF] = weight[:, -HALF:] = 0
    points = _scatter(weight, apart, rng, min(int(weight.sum() / apart) + 60, 600))
    # The lumen first, so that nuclei may lean into it.
    empty = np.clip(lumen / 1.3 + 0.5, 0, 1).astype(np.float32)
    h *= 1 - 0.93 * empty
    e *= 1 - 0.93 * empty
    if secretion > 0:
        inner = np.clip((lumen - 4) / 5, 0, 1) * np.clip(0.8 + grain, 0, 2)
        e += secretion * inner
        h += 0.15 * secretion * inner
    stamps = nucleus_stamps(look)
    r, c = points[:, 0], points[:, 1]
    angle = np.arctan2(gy[r, c], gx[r, c]) + 0.22 * rng.standard_normal(len(r))
    chosen = stamps.choose(angle.astype(np.float32), rng.random(len(r)))
    stamp(h, e, stamps, r, c, chosen, np.exp(0.12 * rng.standard_normal(len(r))))
    if secretion > 0.2:
        specks = nucleus_stamps("debris")
        debris = _scatter(np.where(lumen > 6, 1.0, 0.0), 6, rng, 25)
        debris = debris[(np.abs(debris - half) < half - HALF).all(axis=1)]
        chosen = specks.choose(
            np.zeros(len(debris), np.float32), rng.random(len(debris))
        )
        stamp(h, e, specks, debris[:, 0], debris[:, 1], chosen, np.ones(len(debris)))
    return _finish(shape, h, e, np.zeros_like(wall))


def _tumour_gland(rng: np.random.Generator) -> Structure:
    radius = rng.uniform(44, 92)
    wall = rng.uniform(24, 34)
    shape = _shape(rng, radius, wall, rng.uniform(0.16, 0.34), rng.uniform(1, 2), 2.5)
    lumen = shape.lumen
    if rng.random() < 0.3:
        lumen = _holes(shape, rng, int((radius / 18) ** 2 / 2))
    secretion = float(rng.choice([0.0, 0.06, 0.30], p=[0.5, 0.3, 0.2]))
    tone = (rng.uniform(0.13, 0.2), rng.uniform(0.36, 0.5))
    return _epithelium(rng, shape, lumen, "glandular", 10.5, 11, tone, secretion)


def _acinus(rng: np.random.Generator) -> Structure:
    radius = rng.uniform(22, 36)
    shape = _shape(rng, radius, rng.uniform(16, 24), 0.2, rng.uniform(1, 1.8), 1.5)
    tone = (rng.uniform(0.1, 0.15), rng.uniform(0.26, 0.36))
    return _epithelium(rng, shape, shape.lumen, "benign", 8.8, 8, tone, 0.0)


def _duct(rng: np.random.Generator) -> Structure:
    radius = rng.uniform(48, 84)
    shape = _shape(rng, radius, rng.uniform(18, 22), 0.14, rng.uniform(1, 2.2), 0.8)
    tone = (rng.uniform(0.1, 0.15), rng.uniform(0.28, 0.38))
    secretion = float(rng.choice([0.0, 0.12]))
    return _epithelium(rng, shape, shape.lumen, "benign", 9.5, 9, tone, secretion)


def _vessel(rng: np.random.Generator) -> Structure:
    radius = float(np.exp(rng.uniform(np.log(13), np.log(58))))
    wall = float(rng.uniform(4, 6) if rng.random() < 0.6 else 0.3 * radius + 3)
    shape = _shape(rng, radius, wall, 0.12, rng.uniform(1, 2.6), 0.8)
    side = 2 * shape.half + 1
    grain = somewhere(cloud(*FINE), side, rng)
    lumen = shape.lumen
    rings = 0.12 * np.sin(shape.edge / 1.6 + grain)
    e = (0.62 + rings + 0.08 * grain).astype(np.float32)
    h = np.full_like(e, 0.1)
    empty = np.clip(lumen / 1.2 + 0.5, 0, 1)
    e *= 1 - 0.94 * empty
    h *= 1 - 0.9 * empty
    # Red cells: discs with a pale middle, crowded or few.
    red = np.zeros(e.shape, bool)
    count = int((lumen > 0).sum() / 130 * rng.choice([0.0, 0.3, 0.8]))
    rows, cols = np.nonzero(lumen > 3)
    y, x = np.mgrid[-7:8, -7:8].astype(np.float32)
    disc = np.hypot(x, y)
    for k in rng.integers(0, len(rows), count).tolist() if len(rows) else []:
        r, c = rows[k], cols[k]
        if r < 8 or c < 8 or r > side - 9 or c > side - 9:
            continue
        box = (slice(r - 7, r + 8), slice(c - 7, c + 8))
        size = rng.uniform(4.6, 6.2)
        ink = (0.72 - 0.22 * np.exp(-((disc / 2.4) ** 2))) * (disc < size)
        e[box] = np.maximum(e[box], ink)
        red[box] |= disc < size
    weight = np.where((np.abs(lumen + 2) < 2) & (shape.edge > 0), 1.0, 0.0)
    weight += np.where((lumen < -6) & (shape.edge > 3), 0.15, 0.0)
    weight[:HALF] = weight[-HALF:] = 0
    weight[:, :HALF] = weight[:, -HALF:] = 0
    points = _scatter(weight, 15, rng, 60)
    gy, gx = np.gradient(gaussian_filter(shape.edge, 2))
    r, c = points[:, 0], points[:, 1]
    stamps = nucleus_stamps("endothelium")
    angle = np.arctan2(gx[r, c], -gy[r, c])
    chosen = stamps.choose(angle.astype(np.float32), rng.random(len(r)))
    stamp(h, e, stamps, r, c, chosen, np.ones(len(r)))
    return _finish(shape, h, e, red)


_MAKERS = {
    "gland": (_tumour_gland, 22),
    "acinus": (_acinus, 18),
    "duct": (_duct, 8),
    "vessel": (_vessel, 18),
}


@lru_cache(maxsize=len(_MAKERS))
def structures(name: str) -> list[Structure]:
    """Structures of one kind, always the same."""
    maker, count = _MAKERS[name]
    row = list(_MAKERS).index(name)
    return [maker(np.random.default_rng((7, row, n))) for n in range(count)]


def place(
    canvas: tuple[Floats, Floats, NDArray[np.bool_], NDArray[np.bool_]],
    structure: Structure,
    position: int,
    row: int,
    col: int,
    strength: tuple[float, float],
) -> None:
    """Stamp a structure on (h, e, solid, red), cut at the canvas' sides."""
    h, e, solid, red = canvas
    keep, add_h, add_e, own_solid, own_red = structure.turned(position)
    half = len(keep) // 2
    r0, c0 = row - half, col - half
    top, left = max(r0, 0), max(c0, 0)
    bottom, right = min(r0 + len(keep), len(h)), min(c0 + len(keep), h.shape[1])
    if top >= bottom or left >= right:
        return
    there = (slice(top, bottom), slice(left, right))
    here = (slice(top - r0, bottom - r0), slice(left - c0, right - c0))
    h[there] *= keep[here]
    h[there] += add_h[here] * np.float32(strength[0])
    e[there] *= keep[here]
    e[there] += add_e[here] * np.float32(strength[1])
    solid[there] |= own_solid[here]
    red[there] &= keep[here] > 0.5
    red[there] |= own_red[here]
