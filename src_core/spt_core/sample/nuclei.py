"""Nuclei, painted once for each kind, shape and orientation, then stamped."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from spt_core.sample.noise import Floats, cloud, somewhere

ORIENTATIONS = 12
HALF = 24  # no stamp reaches farther than this from its centre, in pixels


@dataclass(frozen=True)
class Look:
    """How the nuclei of one kind of cell look; lengths in pixels of 0.5 um."""

    radius: float
    spread: float  # of the radius, relative
    stretch: tuple[float, float]  # long axis over short axis, from and to
    irregular: float  # how far the outline leaves an ellipse
    dark: float  # hematoxylin of the body
    rim: float  # added at the membrane
    clumps: float  # contrast of the chromatin
    coarse: float  # size of chromatin clumps, pixels
    nucleolus: float  # added in one or two spots
    soft: float = 0.9  # width of the edge


LOOKS = {
    "lymphocyte": Look(5.7, 0.13, (1.0, 1.3), 0.07, 0.90, 0.14, 0.26, 3.0, 0.0),
    "plasma": Look(6.2, 0.10, (1.0, 1.3), 0.05, 0.9, 0.15, 0.32, 3.5, 0.0),
    "fibroblast": Look(5.2, 0.18, (2.4, 5.0), 0.10, 0.80, 0.10, 0.16, 3.0, 0.0, 1.1),
    "endothelium": Look(4.2, 0.15, (2.0, 3.5), 0.08, 0.88, 0.08, 0.14, 3.0, 0.0),
    "benign": Look(6.8, 0.10, (1.1, 1.6), 0.06, 0.72, 0.16, 0.18, 3.0, 0.10),
    "glandular": Look(8.8, 0.14, (1.4, 2.3), 0.09, 0.78, 0.22, 0.24, 3.6, 0.25),
    "small_cell": Look(7.0, 0.16, (1.0, 2.0), 0.16, 0.84, 0.08, 0.24, 2.2, 0.0, 1.1),
    "large_cell": Look(12.5, 0.24, (1.0, 1.7), 0.12, 0.60, 0.42, 0.26, 5.0, 0.75),
    "ghost": Look(7.5, 0.25, (1.0, 1.6), 0.15, 0.26, 0.02, 0.10, 4.0, 0.0, 2.6),
    "debris": Look(2.2, 0.45, (1.0, 1.6), 0.25, 0.95, 0.0, 0.15, 2.0, 0.0, 0.8),
}


@dataclass(frozen=True)
class Stamps:
    """Ready stamps of one kind: what is kept of the ground, and what is added."""

    keep_h: list[Floats]  # 1 - coverage
    add_h: list[Floats]  # coverage x hematoxylin
    keep_e: list[Floats]  # what is left of the eosin
    half: NDArray[np.int64]  # half the side of each stamp
    shapes: int

    def choose(self, angle: Floats, chance: Floats) -> NDArray[np.int64]:
        """Index of a stamp lying along ``angle`` (radians), its shape by ``chance``."""
        turn = np.rint(angle / np.pi * ORIENTATIONS).astype(np.int64) % ORIENTATIONS
        shape = np.minimum((chance * self.shapes).astype(np.int64), self.shapes - 1)
        return turn * self.shapes + shape


def _paint(look: Look, angle: float, rng: np.random.Generator, grain: Floats):  # type: ignore[no-untyped-def]
    stretch = rng.uniform(*look.stretch)
    radius = look.radius * np.exp(look.spread * np.clip(rng.standard_normal(), -2, 2))
    long = radius * np.sqrt(stretch)
    short = radius / np.sqrt(stretch)
    half = int(min(np.ceil(long * (1 + look.irregular) + 2 * look.soft + 1), HALF))
    y, x = np.mgrid[-half : half + 1, -half : half + 1].astype(np.float32)
    u = (x * np.cos(angle) + y * np.sin(angle)) / long
    v = (y * np.cos(angle) - x * np.sin(angle)) / short
    theta = np.arctan2(v, u)
    outline = np.ones_like(theta)
    for k, weight in ((2, 0.6), (3, 0.8), (4, 0.4), (5, 0.35)):
        outline += (
            look.irregular
            * weight
            * rng.normal()
            * np.cos(k * theta + rng.uniform(0, 2 * np.pi))
        )
    rho = np.hypot(u, v) / np.clip(outline, 0.55, 1.5)
    inside = (1 - rho) * short  # about the distance to the membrane, pixels
    cover = np.clip(inside / look.soft + 0.5, 0, 1)
    side = 2 * half + 1
    texture = somewhere(grain, side, rng)
    body = look.dark * (1 + look.clumps * np.clip(texture, -2, 2))
    body += look.rim * np.exp(-((inside / 1.6) ** 2))
    for _ in range(rng.integers(1, 3) if look.nucleolus else 0):
        du, dv = rng.uniform(-0.4, 0.4, 2)
        spot = np.hypot((u - du) * long, (v - dv) * short)
        body += look.nucleolus * np.exp(-((spot / (0.17 * radius + 0.4)) ** 2))
    body *= np.exp(0.14 * rng.standard_normal())
    body = np.clip(body, 0.08, 1.9)
    return cover.astype(np.float32), (cover * body).astype(np.float32), half


@lru_cache(maxsize=len(LOOKS))
def nucleus_stamps(name: str, shapes: int = 16) -> Stamps:
    """Stamps of one kind, always the same: slides differ in which they use."""
    look = LOOKS[name]
    rng = np.random.default_rng(1000 + list(LOOKS).index(name))
    grain = cloud(77, 3 * look.coarse, look.coarse, 0.0, 256)
    keep_h, add_h, keep_e, halves = [], [], [], []
    for turn in range(ORIENTATIONS):
        for _ in range(shapes):
            angle = np.pi * (turn + rng.uniform(-0.5, 0.5)) / ORIENTATIONS
            cover, ink, half = _paint(look, angle, rng, grain)
            keep_h.append(1 - cover)
            add_h.append(ink)
            keep_e.append(1 - np.float32(0.72) * cover)
            halves.append(half)
    return Stamps(keep_h, add_h, keep_e, np.array(halves), shapes)


def stamp(
    h: Floats,
    e: Floats,
    stamps: Stamps,
    rows: NDArray[np.int64],
    cols: NDArray[np.int64],
    chosen: NDArray[np.int64],
    strength: Sequence[float] | Floats,
) -> None:
    """Stamp nuclei, in order, cut at the sides of the ground."""
    half = stamps.half[chosen]
    height, width = h.shape
    for r, c, i, n, s in zip(
        (rows - half).tolist(),
        (cols - half).tolist(),
        chosen.tolist(),
        (2 * half + 1).tolist(),
        np.asarray(strength).tolist(),
        strict=True,
    ):
        keep_h, add_h, keep_e = stamps.keep_h[i], stamps.add_h[i], stamps.keep_e[i]
        if r < 0 or c < 0 or r + n > height or c + n > width:
            own = (
                slice(max(-r, 0), min(n, height - r)),
                slice(max(-c, 0), min(n, width - c)),
            )
            keep_h, add_h, keep_e = keep_h[own], add_h[own], keep_e[own]
            r, c = max(r, 0), max(c, 0)
        there = (slice(r, r + len(keep_h)), slice(c, c + keep_h.shape[1]))
        ground = h[there]
        ground *= keep_h
        ground += add_h * s
        pink = e[there]
        pink *= keep_e
