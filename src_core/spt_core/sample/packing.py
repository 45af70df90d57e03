"""Cells packed side by side, as a pattern that repeats: centres and borders."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from spt_core.sample.noise import Floats, enlarge


@dataclass(frozen=True)
class Packing:
    """Centres (x, y) and borders of packed cells on a torus of ``period`` pixels."""

    period: int
    xy: Floats
    border: Floats  # distance to the nearest border, pixels, at 1/``scale``
    centre: Floats  # distance to the own centre, pixels, at 1/``scale``
    shade: Floats  # one standard normal number per cell, at 1/``scale``
    scale: int

    def centres(
        self, left: int, top: int, right: int, bottom: int
    ) -> tuple[Floats, Floats, NDArray[np.int64]]:
        """Centres inside a box, in an order that every block agrees on.

        Returns x, y and a key (n, 3) that is each centre's own.
        """
        p = self.period
        xs, ys, keys = [], [], []
        for ty in range(top // p, (bottom - 1) // p + 1):
            for tx in range(left // p, (right - 1) // p + 1):
                x = self.xy[:, 0] + tx * p
                y = self.xy[:, 1] + ty * p
                (inside,) = np.nonzero(
                    (x >= left) & (x < right) & (y >= top) & (y < bottom)
                )
                xs.append(x[inside])
                ys.append(y[inside])
                key = np.empty((len(inside), 3), np.int64)
                key[:] = (tx, ty, 0)
                key[:, 2] = inside
                keys.append(key)
        return np.concatenate(xs), np.concatenate(ys), np.concatenate(keys)

    def field(self, name: str, top: int, left: int, height: int, width: int) -> Floats:
        """``border``, ``centre`` or ``shade`` for a window of slide pixels."""
        values: Floats = getattr(self, name)
        s = self.scale
        r0, c0 = top // s - 2, left // s - 2
        rows = np.arange(r0, (top + height) // s + 3)
        cols = np.arange(c0, (left + width) // s + 3)
        n = len(values)
        near = values[rows % n][:, cols % n]
        x, y = left / s - c0, top / s - r0
        box = (x, y, x + width / s, y + height / s)
        return enlarge(near, box, (width, height))


@lru_cache(maxsize=16)
def packing(
    spacing: float, period: int, scale: int, even: float, seed: int, bend: float = 0.0
) -> Packing:
    """Pack cells about ``spacing`` pixels apart; ``even`` 0 random .. 1 regular.

    ``bend`` curves the borders, by this many pixels.
    """
    rng = np.random.default_rng(seed)
    count = max(int(1.15 * (period / spacing) ** 2), 4)
    xy = rng.uniform(0, period, (count, 2))
    # Lloyd's relaxation on random samples: enough for cells that look packed.
    for _ in range(round(6 * even)):
        sample = rng.uniform(0, period, (count * 16, 2))
        _, near = cKDTree(xy, boxsize=period).query(sample)
        offset = sample - xy[near]
        offset -= period * np.rint(offset / period)
        number = np.maximum(np.bincount(near, minlength=count), 1)[:, None]
        moved = np.stack(
            [np.bincount(near, offset[:, k], minlength=count) for k in (0, 1)], axis=1
        )
        xy = (xy + moved / number) % period
    n = period // scale
    grid = (np.arange(n) + 0.5) * scale
    points = np.stack(np.meshgrid(grid, grid), axis=-1).reshape(-1, 2)
    if bend:
        turns = 2 * np.pi / period
        for waves in (int(0.9 * period / spacing), int(1.7 * period / spacing)):
            phase = points[:, ::-1] * waves * turns + rng.uniform(0, 6, 2)
            other = points * (waves // 2) * turns + rng.uniform(0, 6, 2)
            points = (points + bend * np.sin(phase + np.sin(other))) % period
    distance, near = cKDTree(xy, boxsize=period).query(points, k=2)
    border = ((distance[:, 1] - distance[:, 0]) / 2).reshape(n, n).astype(np.float32)
    shade = rng.standard_normal(count).astype(np.float32)[near[:, 0]].reshape(n, n)
    centre = distance[:, 0].reshape(n, n).astype(np.float32)
    return Packing(period, xy.astype(np.float32), border, centre, shade, scale)
