"""The channels of a slide as lazy levels, in the file's own numbers."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import dask.array as da
import numpy as np
from numpy.typing import NDArray

from spt_core.slides.pyramid import MADE_CHUNK, Level, chunk_size
from spt_core.slides.tile_cache import TileCache

_CACHE_BYTES = 96 * 2**20
# Pixels of the base level that are reduced at a time, at most.
_BAND_PIXELS = 4 * 2**20

ReadRaw = Callable[[int, int, int, int, int], NDArray]


@dataclass(frozen=True, eq=False)
class Channel:
    """One channel of a slide.

    Attributes
    ----------
    colour
        Red, green and blue, 0 to 255.
    limits
        The numbers to show as black and as the full colour.
    pyramid
        Dask arrays ``(y, x)`` in the file's own numbers, largest first, of the same
        sizes as the slide's RGB pyramid; nothing is read yet.
    """

    name: str
    colour: tuple[int, int, int]
    limits: tuple[float, float]
    pyramid: list[da.Array]


class ChannelLevels:
    """Reads all channels of levels ``(h, w, c)``; channels of one view share tiles.

    Parameters
    ----------
    read
        Gives ``(h, w, c)`` of a level of the file.
    tile_sizes
        (width, height) of the tiles of each level of the file.
    """

    def __init__(
        self,
        read: ReadRaw,
        levels: tuple[Level, ...],
        tile_sizes: tuple[tuple[int, int], ...],
        *,
        count: int,
        dtype: Any,
        token: str,
    ) -> None:
        self._read = read
        self._levels = levels
        self._tile_sizes = tile_sizes
        self._count = count
        self._dtype = np.dtype(dtype)
        self._token = token
        self._tiles = TileCache(_CACHE_BYTES)

    def pyramid(self, channel: int) -> list[da.Array]:
        return [
            da.from_array(
                _ChannelLevel(self, index, channel),
                chunks=self._chunk(index)[::-1],
                name=f"channel-{self._token}-{channel}-{index}",
                asarray=False,
                inline_array=True,
                meta=np.empty((0, 0), self._dtype),
            )
            for index in range(len(self._levels))
        ]

    def region(
        self, level: int, channel: int, x: int, y: int, w: int, h: int
    ) -> NDArray:
        """Read ``(h, w)`` of one channel, in chunks that the other channels find."""
        cw, ch = self._chunk(level)
        out = np.empty((h, w), self._dtype)
        for top in range(y - y % ch, y + h, ch):
            y0, y1 = max(y, top), min(y + h, top + ch)
            for left in range(x - x % cw, x + w, cw):
                x0, x1 = max(x, left), min(x + w, left + cw)
                tile = self._tile(level, left, top)
                out[y0 - y : y1 - y, x0 - x : x1 - x] = tile[
                    y0 - top : y1 - top, x0 - left : x1 - left, channel
                ]
        return out

    def size(self, level: int) -> tuple[int, int]:
        this = self._levels[level]
        return this.width, this.height

    @property
    def dtype(self) -> np.dtype:
        return self._dtype

    def _chunk(self, level: int) -> tuple[int, int]:
        this = self._levels[level]
        if this.is_made:
            return MADE_CHUNK, MADE_CHUNK
        return chunk_size(self._tile_sizes[this.file_level], (this.width, this.height))

    def _tile(self, level: int, x: int, y: int) -> NDArray:
        key = (level, x, y)
        tile = self._tiles.get(key)
        if tile is None:
            tile = self._make(level, x, y)
            self._tiles.put(key, tile)
        return tile

    def _make(self, level: int, x: int, y: int) -> NDArray:
        this = self._levels[level]
        cw, ch = self._chunk(level)
        w, h = min(cw, this.width - x), min(ch, this.height - y)
        if not this.is_made:
            return self._read(this.file_level, x, y, w, h)
        factor = this.made_by
        base = next(
            one
            for one in self._levels
            if one.file_level == this.file_level and not one.is_made
        )
        left, right = x * factor, min(base.width, (x + w) * factor)
        out = np.empty((h, w, self._count), self._dtype)
        rows = max(1, _BAND_PIXELS // max(1, right - left) // factor)
        for row in range(0, h, rows):
            top = (y + row) * factor
            bottom = min(base.height, (y + min(h, row + rows)) * factor)
            band = self._read(this.file_level, left, top, right - left, bottom - top)
            reduced = _reduce(band, factor)
            out[row : row + len(reduced)] = reduced
        return out


class _ChannelLevel:
    """One level of one channel as an array that reads what is indexed."""

    ndim = 2

    def __init__(self, levels: ChannelLevels, level: int, channel: int) -> None:
        self.levels, self.level, self.channel = levels, level, channel
        width, height = levels.size(level)
        self.shape = (height, width)
        self.dtype = levels.dtype

    def __getitem__(self, key: Any) -> NDArray:
        key = key if isinstance(key, tuple) else (key,)
        key = key + (slice(None),) * (2 - len(key))
        rows, columns = (
            range(*k.indices(n)) if isinstance(k, slice) else range(k, k + 1)
            for k, n in zip(key, self.shape, strict=True)
        )
        if not rows or not columns:
            return np.empty((len(rows), len(columns)), self.dtype)
        top, left = min(rows), min(columns)
        pixels = self.levels.region(
            self.level,
            self.channel,
            left,
            top,
            max(columns) - left + 1,
            max(rows) - top + 1,
        )
        pixels = pixels[:: rows.step, :: columns.step]
        return pixels[tuple(0 if isinstance(k, int) else slice(None) for k in key)]


def _reduce(pixels: NDArray, factor: int) -> NDArray:
    """Box averages of ``(h, w, c)``; the last ones of what is there."""
    h, w, c = pixels.shape
    rows, columns = math.ceil(h / factor), math.ceil(w / factor)
    missing = ((0, rows * factor - h), (0, columns * factor - w), (0, 0))
    padded = np.pad(pixels, missing, mode="edge")
    blocks = padded.reshape(rows, factor, columns, factor, c)
    means = blocks.mean(axis=(1, 3))
    if pixels.dtype.kind in "ui":
        means = np.rint(means)
    return means.astype(pixels.dtype)
