"""A slide: its lazy pyramid, its geometry, and what may be said about it."""

import hashlib
import logging
import math
import os
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import cached_property, partial
from pathlib import Path
from threading import Lock
from typing import Any, cast

import dask.array as da
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from spt_core.slides.array_source import ArraySource
from spt_core.slides.channel_levels import Channel, ChannelLevels
from spt_core.slides.properties import identifying, is_plausible, settle_mpp, technical
from spt_core.slides.pyramid import MADE_CHUNK, chunk_size, make_chunk, plan_levels
from spt_core.slides.source import Pixels, PixelSource, UnreadableRegionError
from spt_core.slides.tile_cache import TileCache

_MADE_CACHE_BYTES = 64 * 2**20
# What a fingerprint reads: this many squares with sides of this many pixels.
_PRINT_SQUARES, _PRINT_SIDE = 16, 128

_log = logging.getLogger(__name__)


class Slide:
    """One open slide; made by ``open_slide``.

    All coordinates are of the full level-0 canvas. Reads are safe from many threads,
    and a slide pickles as its path, so that a worker in another process can open it.

    Attributes
    ----------
    title
        What sentences call the slide: its file's name, where nobody says another.
    mpp_xy
        Micrometres per level-0 pixel in x and y, or None where nobody said.
    doubted_mpp_xy
        What the file says of its pixels, where that is not believed.
    mpp_from_user
        Whether ``mpp_xy`` is what the caller gave, because the file does not say it.
    notes
        Sentences about the file that its user should know.
    on_unreadable
        Called once, from the thread that met it, with the first region that a lazy
        level cannot decode. Such a region is drawn hatched; ``read`` raises instead.
    """

    def __init__(
        self,
        source: PixelSource,
        *,
        mpp: float | None = None,
        channels: str | None = None,
        title: str | None = None,
        release: "Callable[[Slide, PixelSource], None] | None" = None,
    ) -> None:
        self.path = source.path
        self.title = title or source.path.name
        self.mpp_xy, notes = settle_mpp(source.raw_mpp_xy, mpp)
        stated = source.raw_mpp_xy
        self.doubted_mpp_xy = None if stated is None or is_plausible(stated) else stated
        self.mpp_from_user = self.mpp_xy not in (None, source.raw_mpp_xy)
        self.notes = [*source.notes, *notes]
        self.on_unreadable: Callable[[UnreadableRegionError], None] | None = None
        self.unreadable: list[UnreadableRegionError] = []
        self.levels = plan_levels(source.level_dimensions)
        self._source = source
        self._asked_mpp = mpp
        self._release = release
        self._asked_channels = channels
        self._token = _file_token(source.path, channels)
        self._made = TileCache(_MADE_CACHE_BYTES)
        self._lock = Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        from spt_core.slides.opening import open_slide

        asked = self._asked_channels
        again = partial(open_slide, title=self.title, channels=asked)
        return again, (self.path, self._asked_mpp)

    def __repr__(self) -> str:
        return f"<Slide {self.path.name} {self.dimensions[0]} × {self.dimensions[1]}>"

    @property
    def mpp(self) -> float | None:
        """The geometric mean of the pixel sizes in x and y, in micrometres."""
        return None if self.mpp_xy is None else math.sqrt(math.prod(self.mpp_xy))

    @property
    def dimensions(self) -> tuple[int, int]:
        """Width and height of level 0."""
        return self._source.level_dimensions[0]

    @property
    def bounds(self) -> tuple[int, int, int, int]:
        """The part of the canvas that was scanned: x, y, width, height (level 0)."""
        width, height = self.dimensions
        x, y, w, h = self._source.bounds or (0, 0, width, height)
        x, y = min(max(x, 0), width - 1), min(max(y, 0), height - 1)
        return x, y, max(1, min(w, width - x)), max(1, min(h, height - y))

    @property
    def level_downsamples(self) -> tuple[float, ...]:
        """Level-0 pixels per pixel, from the true sizes: 2.0005 happens."""
        width, height = self.dimensions
        return tuple((width / n.width + height / n.height) / 2 for n in self.levels)

    @property
    def reader(self) -> str:
        """The library that reads the file."""
        return self._source.reader

    @property
    def recipe(self) -> str:
        """What its red, green and blue are made of; see ``spt_core.slides.recipe``."""
        return self._source.recipe

    @property
    def scaling(self) -> str | None:
        """Which of its numbers are black and full brightness; None for a picture."""
        return self._source.scaling

    @property
    def objective_power(self) -> float | None:
        return self._source.objective_power

    @property
    def properties(self) -> dict[str, str]:
        """What the file says about its scanning; nothing about the patient."""
        return technical(self._source.all_properties())

    @property
    def identifiers(self) -> dict[str, str]:
        """All other properties. They may name the patient: never store these."""
        return identifying(self._source.all_properties())

    @property
    def associated_images(self) -> Mapping[str, Image.Image]:
        """Label, macro and thumbnail. They may name the patient: never store these."""
        return self._source.associated_images()

    def tile_size(self, level: int) -> tuple[int, int]:
        """The width and height of the file's own tiles that a level is read from."""
        return self._source.tile_sizes[self.levels[level].file_level]

    @cached_property
    def pyramid(self) -> list[da.Array]:
        """Dask arrays ``(y, x, 3)`` uint8, largest first, nothing read yet."""
        arrays = []
        for index, level in enumerate(self.levels):
            if level.is_made:
                chunk = (MADE_CHUNK, MADE_CHUNK)
            else:
                chunk = chunk_size(self.tile_size(index), (level.width, level.height))
            arrays.append(
                da.from_array(
                    LevelPixels(self, index),
                    chunks=(chunk[1], chunk[0], 3),
                    name=f"slide-{self._token}-{index}",
                    asarray=False,
                    inline_array=True,
                    meta=np.empty((0, 0, 0), np.uint8),
                )
            )
        return arrays

    @cached_property
    def channels(self) -> tuple[Channel, ...]:
        """The channels of a fluorescence slide; none where it is a picture in colour.

        The RGB ``pyramid`` is there all the same: the channels in their colours.
        """
        source = self._source
        if not isinstance(source, ArraySource) or not source.channels:
            return ()
        levels = ChannelLevels(
            self._show_raw,
            self.levels,
            source.tile_sizes,
            count=len(source.channels),
            dtype=source.dtype,
            token=self._token,
        )
        view = source.channel_view
        return tuple(
            Channel(
                one.name or f"Channel {number + 1}",
                view.colours[number],
                view.windows[number],
                levels.pyramid(number),
            )
            for number, one in enumerate(source.channels)
        )

    def _show_raw(self, level: int, x: int, y: int, w: int, h: int) -> NDArray:
        """All channels of a region; what cannot be decoded is told once, and empty."""
        source = cast(ArraySource, self._source)
        try:
            return source.read_raw(level, x, y, w, h)
        except UnreadableRegionError as error:
            self._report(error)
            return np.zeros((h, w, len(source.channels)), source.dtype)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the slide's size and of pixels from all over it.

        It recognises the slide under another name or in another folder, whatever
        channels are asked for, and says nothing about the patient.
        """
        if self._asked_channels is not None:
            from spt_core.slides.opening import open_slide

            with closing(open_slide(self.path, title=self.title)) as as_it_is:
                return as_it_is.fingerprint
        digest = hashlib.sha256(repr(self._source.level_dimensions).encode())
        width, height = self.dimensions
        x, y, w, h = self.bounds
        side = min(_PRINT_SIDE, width, height)
        for i in range(_PRINT_SQUARES):
            # A low-discrepancy sequence: even cover, the same squares every time.
            left = x + int((0.5 + i * 0.754877666) % 1 * max(0, w - side))
            top = y + int((0.5 + i * 0.569840291) % 1 * max(0, h - side))
            left, top = min(left, width - side), min(top, height - side)
            try:
                digest.update(self.read(0, left, top, side, side).tobytes())
            except UnreadableRegionError:
                digest.update(b"unreadable")
        return digest.hexdigest()

    def read(self, level: int, x: int, y: int, w: int, h: int) -> Pixels:
        """Read ``(h, w, 3)`` of pyramid level ``level``, x and y in its own pixels.

        Raises
        ------
        UnreadableRegionError
            Where the file's data are damaged.
        ValueError
            Where the region leaves the level.
        """
        this = self.levels[level]
        if (
            x < 0
            or y < 0
            or w < 0
            or h < 0
            or x + w > this.width
            or y + h > this.height
        ):
            raise ValueError(
                f"region {x}, {y}, {w} × {h} leaves level {level} "
                f"of {this.width} × {this.height}"
            )
        if w == 0 or h == 0:
            return np.empty((h, w, 3), np.uint8)
        if not this.is_made:
            return self._source.read(this.file_level, x, y, w, h)
        return self._assemble(level, x, y, w, h, self._source.read)

    def show(self, level: int, x: int, y: int, w: int, h: int) -> Pixels:
        """Read as ``read`` does, but hatch and report once what cannot be decoded."""
        this = self.levels[level]
        if this.is_made:
            return self._assemble(level, x, y, w, h, self._read_or_hatch)
        return self._read_or_hatch(this.file_level, x, y, w, h)

    def close(self) -> None:
        """Let go of the file; other slides of the same file can still be read."""
        if self._release is None:
            self._source.close()
        else:
            self._release(self, self._source)

    def _read_or_hatch(self, file_level: int, x: int, y: int, w: int, h: int) -> Pixels:
        try:
            return self._source.read(file_level, x, y, w, h)
        except UnreadableRegionError as error:
            tw, th = chunk_size(
                self._source.tile_sizes[file_level],
                self._source.level_dimensions[file_level],
            )
            tw, th = tw // 2, th // 2
            is_small = w <= tw and h <= th
            if is_small or error.is_whole or not self.path.exists():
                self._report(error)
                return _hatch(x, y, w, h)
        # Quarter it by the tiles' own lattice, so that only the damage is hatched.
        out = np.empty((h, w, 3), np.uint8)
        for top in range(y - y % th, y + h, th):
            y0, y1 = max(y, top), min(y + h, top + th)
            for left in range(x - x % tw, x + w, tw):
                x0, x1 = max(x, left), min(x + w, left + tw)
                part = self._read_or_hatch(file_level, x0, y0, x1 - x0, y1 - y0)
                out[y0 - y : y1 - y, x0 - x : x1 - x] = part
        return out

    def _report(self, error: UnreadableRegionError) -> None:
        with self._lock:
            self.unreadable.append(error)
            first = len(self.unreadable) == 1
        if not first:
            return
        if self.on_unreadable is None:
            _log.warning("%s", error)
        else:
            self.on_unreadable(error)

    def _assemble(
        self,
        level: int,
        x: int,
        y: int,
        w: int,
        h: int,
        read: Callable[[int, int, int, int, int], Pixels],
    ) -> Pixels:
        """Put a region of a made level together from its cached chunks."""
        this = self.levels[level]
        out = np.empty((h, w, 3), np.uint8)
        for row in range(y // MADE_CHUNK, (y + h - 1) // MADE_CHUNK + 1):
            top = row * MADE_CHUNK
            y0, y1 = max(y, top), min(y + h, top + MADE_CHUNK)
            for col in range(x // MADE_CHUNK, (x + w - 1) // MADE_CHUNK + 1):
                left = col * MADE_CHUNK
                x0, x1 = max(x, left), min(x + w, left + MADE_CHUNK)
                chunk = self._made.get((level, row, col))
                if chunk is None:
                    chunk = make_chunk(
                        read,
                        this,
                        self._source.level_dimensions[this.file_level],
                        self._source.tile_sizes[this.file_level],
                        col,
                        row,
                    )
                    self._made.put((level, row, col), chunk)
                out[y0 - y : y1 - y, x0 - x : x1 - x] = chunk[
                    y0 - top : y1 - top, x0 - left : x1 - left
                ]
        return out


class LevelPixels:
    """One level as an array that reads what is indexed; what dask slices."""

    dtype = np.dtype(np.uint8)
    ndim = 3

    def __init__(self, slide: Slide, level: int) -> None:
        self.slide = slide
        self.level = level
        size = slide.levels[level]
        self.shape = (size.height, size.width, 3)

    def __getitem__(self, key: Any) -> Pixels:
        key = key if isinstance(key, tuple) else (key,)
        key = key + (slice(None),) * (3 - len(key))
        ranges = [
            range(*k.indices(n)) if isinstance(k, slice) else range(k, k + 1)
            for k, n in zip(key, self.shape, strict=True)
        ]
        rows, columns, channels = ranges
        if not rows or not columns:
            pixels = np.empty((len(rows), len(columns), 3), np.uint8)
        else:
            top, left = min(rows), min(columns)
            pixels = self.slide.show(
                self.level, left, top, max(columns) - left + 1, max(rows) - top + 1
            )
            pixels = pixels[:: rows.step, :: columns.step]
        pixels = pixels[..., channels.start : channels.stop : channels.step]
        squeeze = tuple(0 if isinstance(k, int) else slice(None) for k in key)
        return pixels[squeeze]


def _hatch(x: int, y: int, w: int, h: int) -> Pixels:
    """Grey with red stripes: like nothing on a slide."""
    stripes = (np.arange(x, x + w) + np.arange(y, y + h)[:, None]) % 32 < 6
    return np.where(stripes[..., None], [200, 60, 60], [190, 190, 190]).astype(np.uint8)


def _file_token(path: Path, channels: str | None) -> str:
    state = path.stat()
    text = f"{path.resolve()}|{state.st_mtime_ns}|{state.st_size}"
    text += f"|{channels}" if channels else ""
    return hashlib.sha1(os.fsencode(text), usedforsecurity=False).hexdigest()[:16]
