"""Stain, glass and scanner of a site, and the colours they make of tissue."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

STEPS = 110  # of concentration 1 in the colour table
Colours = NDArray[np.uint32]
Triple = tuple[float, float, float]

# Optical densities (red, green, blue) at concentration 1.
_HEMATOXYLIN = np.array([1.02, 1.32, 0.58])
_EOSIN = np.array([0.08, 0.84, 0.36])
_RED_CELLS = np.array([0.14, 1.02, 0.78])


@dataclass(frozen=True)
class Site:
    """One laboratory: how it stains and scans. Numbers near 1 or 0 are ordinary."""

    name: str
    hematoxylin: Triple
    eosin: Triple
    red_cells: Triple
    glass: Triple  # 0..255
    gamma: float
    spread: float  # of light to each neighbour; below zero: sharpened
    noise: float
    quality: int  # of the JPEG


def make_site(name: str, place: float, rng: np.random.Generator) -> Site:
    """Draw a site; ``place`` (0..1) is its place between blue and pink stainers."""

    def vary(vector: NDArray, spread: float, strength: float) -> Triple:
        drawn = vector * np.exp(spread * rng.uniform(-1, 1, 3)) * np.exp(strength)
        return (float(drawn[0]), float(drawn[1]), float(drawn[2]))

    lean = 2 * place - 1
    white = np.minimum(243 + rng.uniform(-7, 6) + rng.uniform(-5, 5, 3), 252)
    return Site(
        name=name,
        hematoxylin=vary(_HEMATOXYLIN, 0.13, -0.16 * lean + rng.uniform(-0.08, 0.08)),
        eosin=vary(_EOSIN, 0.16, 0.30 * lean + rng.uniform(-0.12, 0.12)),
        red_cells=vary(_RED_CELLS, 0.08, rng.uniform(-0.1, 0.1)),
        glass=(float(white[0]), float(white[1]), float(white[2])),
        gamma=float(rng.uniform(0.92, 1.10)),
        spread=float(rng.uniform(-0.02, 0.2)),
        noise=float(rng.uniform(0.7, 1.8)),
        quality=int(rng.integers(78, 91)),
    )


def batch_of(site: Site, rng: np.random.Generator) -> Site:
    """The site on another day: a little more or less of each stain, nothing else.

    Kept small on purpose: a signature of its own on every slide would let a model
    tell slides apart without learning tissue.
    """
    h, e = np.exp(0.035 * np.clip(rng.standard_normal(2), -2, 2))
    return replace(
        site,
        hematoxylin=_times(site.hematoxylin, float(h)),
        eosin=_times(site.eosin, float(e)),
    )


def _times(vector: Triple, factor: float) -> Triple:
    return (vector[0] * factor, vector[1] * factor, vector[2] * factor)


def colour_tables(site: Site) -> tuple[Colours, Colours]:
    """Colours at ``256 * hematoxylin + eosin``, of tissue and of red cells.

    Each is red, green, blue and an unused byte in one 32-bit number.
    """
    level = np.arange(256) / STEPS
    h, e = np.repeat(level, 256), np.tile(level, 256)
    glass = np.array(site.glass)
    tables = []
    for pink in (site.eosin, site.red_cells):
        density = h[:, None] * np.array(site.hematoxylin) + e[:, None] * np.array(pink)
        light = np.exp(-density) ** site.gamma
        # Lenses flare: even ink is not quite black.
        light = 0.018 + 0.982 * light
        packed = np.zeros((len(h), 4), np.uint8)
        packed[:, :3] = np.clip(np.rint(glass * light), 0, 255)
        tables.append(packed.view(np.uint32).ravel())
    return tables[0], tables[1]
