"""Writing a slide: painted by several processes, streamed into a pyramidal TIFF."""

import multiprocessing
import os
import sys
import tempfile
import time
from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from threading import Lock, Thread
from types import ModuleType
from typing import IO, Any

import imagecodecs
import numpy as np
import tifffile
from numpy.typing import NDArray
from PIL import Image

from spt_core._version import __version__
from spt_core.events import Progress
from spt_core.files import written_whole
from spt_core.sample.layout import SlideSpec
from spt_core.sample.painting import BLOCK, Painter, painter
from spt_core.sample.tissue import UM_PER_PIXEL

TILE = 256
REGION = 2048  # a process paints one region and its part of LEVELS levels at a time
LEVELS = 4  # REGION / TILE is 2 ** (LEVELS - 1): the last is a single tile
SMALLEST = 512  # no further level once the longer side is as short as this
BIG = 2**31  # guessed file sizes from here on get 64-bit offsets

Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class PaintedRegion:
    """What a process returns: JPEG tiles by level, row by row, and the remainder."""

    tiles: list[list[bytes]]
    rest: Bytes  # the region halved once more, for the levels above


def _jpeg(rgb: Bytes, quality: int) -> bytes:
    return bytes(
        imagecodecs.jpeg8_encode(
            np.ascontiguousarray(rgb), level=quality, subsampling="420", optimize=False
        )
    )


def _halved(rgb: Bytes) -> Bytes:
    return np.asarray(Image.fromarray(rgb).reduce(2))


@lru_cache(maxsize=4)
def _glass_tile(spec: SlideSpec) -> bytes:
    return _jpeg(painter(spec).glass(TILE), spec.site.quality)


@lru_cache(maxsize=2)
def _glass_region(spec: SlideSpec) -> PaintedRegion:
    """A region of nothing but glass: the same wherever it lies."""
    glass = painter(spec).glass(TILE)
    tiles, n = [], REGION // TILE
    for level in range(LEVELS):
        data = _jpeg(glass, spec.site.quality)
        tiles.append([data] * (n >> level) ** 2)
        glass = np.tile(_halved(glass), (2, 2, 1))
    return PaintedRegion(tiles, glass[: TILE // 2, : TILE // 2])


def paint_region(spec: SlideSpec, left: int, top: int) -> PaintedRegion:
    """Paint one region and encode its tiles; runs in a process of its own."""
    brush = painter(spec)
    rgb, bare = _painted(brush, left, top)
    if bare.all():
        return _glass_region(spec)
    tiles = []
    for level in range(LEVELS):
        n = (REGION >> level) // TILE
        tiles.append(
            [
                _glass_tile(spec)
                if level == 0 and bare[r * TILE // BLOCK, c * TILE // BLOCK]
                else _jpeg(
                    rgb[r * TILE : (r + 1) * TILE, c * TILE : (c + 1) * TILE],
                    spec.site.quality,
                )
                for r in range(n)
                for c in range(n)
            ]
        )
        rgb = _halved(rgb)
    return PaintedRegion(tiles, rgb)


def _painted(brush: Painter, left: int, top: int) -> tuple[Bytes, NDArray[np.bool_]]:
    n = REGION // BLOCK
    bare = np.zeros((n, n), bool)
    rgb = np.tile(brush.glass(TILE), (REGION // TILE, REGION // TILE, 1))
    for r in range(n):
        for c in range(n):
            block = brush.block(left + c * BLOCK, top + r * BLOCK)
            bare[r, c] = block is None
            if block is not None:
                there = slice(r * BLOCK, (r + 1) * BLOCK)
                rgb[there, c * BLOCK : (c + 1) * BLOCK] = block
    return rgb, bare


class _Painters(ProcessPoolExecutor):
    """Processes that do not run the user's script.

    Python runs it anew in each spawned process, to find there what it defines; one
    that opens a window outside of ``if __name__ == "__main__"`` would open another.
    """

    _lock = Lock()

    def submit(self, *args: Any, **kwargs: Any) -> Future[Any]:
        with self._lock:  # processes are started here
            script = sys.modules["__main__"]
            sys.modules["__main__"] = ModuleType("__main__")
            try:
                return super().submit(*args, **kwargs)
            finally:
                sys.modules["__main__"] = script


def _end_with_parent() -> None:
    """A painter whose parent is killed would wait for ever to hand its work over."""
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    Thread(target=watch, daemon=True).start()


@contextmanager
def painters(workers: int | None) -> Iterator[Executor | None]:
    """Processes that paint; None, with ``workers`` 1, means in this one."""
    workers = workers or os.cpu_count() or 1
    if workers == 1:
        yield None
        return
    # spawn on every system: forking a process that has threads (Qt, BLAS) hangs.
    context = multiprocessing.get_context("spawn")
    pool = _Painters(workers, mp_context=context, initializer=_end_with_parent)
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _regions(
    spec: SlideSpec, pool: Executor | None
) -> Iterator[tuple[int, int, PaintedRegion]]:
    """Regions (row, col, painted) in order; a few are painted ahead."""
    places = [
        (row, col)
        for row in range(-(-spec.height // REGION))
        for col in range(-(-spec.width // REGION))
    ]
    if pool is None:
        for row, col in places:
            yield row, col, paint_region(spec, col * REGION, row * REGION)
        return
    ahead = 2 * ((os.cpu_count() or 1) + 1)
    waiting: deque[tuple[int, int, Future[PaintedRegion]]] = deque()
    left = iter(places)
    try:
        while True:
            while len(waiting) < ahead and (place := next(left, None)) is not None:
                row, col = place
                future = pool.submit(paint_region, spec, col * REGION, row * REGION)
                waiting.append((row, col, future))
            if not waiting:
                return
            row, col, future = waiting.popleft()
            yield row, col, future.result()
    finally:
        for _, _, future in waiting:
            future.cancel()


class _Spool:
    """Tiles of all levels on disk, in the order they came, with an index."""

    def __init__(self, file: IO[bytes], sizes: list[tuple[int, int]]):
        self._file = file
        self._end = 0
        self.grids = [(-(-h // TILE), -(-w // TILE)) for w, h in sizes]
        self._index = [np.zeros((*grid, 2), np.int64) for grid in self.grids]
        self._same: dict[bytes, int] = {}  # bare glass is stored once

    def put(self, level: int, row: int, col: int, data: bytes) -> None:
        index = self._index[level]
        if row >= index.shape[0] or col >= index.shape[1]:
            return  # painted beyond the slide's side
        start = self._same.get(data)
        if start is None:
            start = self._end
            self._file.write(data)
            self._end += len(data)
            if len(data) < 4000 and len(self._same) < 64:
                self._same[data] = start
        index[row, col] = start, len(data)

    def tiles(self, level: int) -> Iterator[bytes]:
        for start, length in self._index[level].reshape(-1, 2).tolist():
            self._file.seek(start)
            yield self._file.read(length)

    def size(self) -> int:
        return int(sum(index[..., 1].sum() for index in self._index))


def level_sizes(width: int, height: int) -> list[tuple[int, int]]:
    """Sizes (w, h) of the pyramid's levels, each half the one before, rounded up."""
    sizes = [(width, height)]
    while max(sizes[-1]) > SMALLEST:
        w, h = sizes[-1]
        sizes.append(((w + 1) // 2, (h + 1) // 2))
    return sizes


def write_slide(
    path: Path, spec: SlideSpec, pool: Executor | None
) -> Generator[Progress, None, Path]:
    """Paint a slide into ``path``; yields progress in megapixels."""
    sizes = level_sizes(spec.width, spec.height)
    total = spec.width * spec.height / 1e6
    began = time.monotonic()
    path.parent.mkdir(parents=True, exist_ok=True)
    with (
        written_whole(path) as temporary,
        tempfile.TemporaryFile(dir=path.parent) as file,
    ):
        spool = _Spool(file, sizes)
        rows, cols = -(-spec.height // REGION), -(-spec.width // REGION)
        side = REGION >> LEVELS
        top = np.zeros((rows * side, cols * side, 3), np.uint8)
        for row, col, region in _regions(spec, pool):
            for level, tiles in enumerate(region.tiles[: len(sizes)]):
                n = (REGION >> level) // TILE
                for k, data in enumerate(tiles):
                    spool.put(level, row * n + k // n, col * n + k % n, data)
            top[row * side : (row + 1) * side, col * side : (col + 1) * side] = (
                region.rest
            )
            done = (row * cols + col + 1) / (rows * cols) * total
            rate = done / (time.monotonic() - began)
            yield Progress(round(done), round(total), rate, path.name)
        _upper_levels(spool, sizes, top, spec.site.quality)
        _assemble(temporary, spool, sizes, spec)
    return path


def _upper_levels(
    spool: _Spool, sizes: list[tuple[int, int]], rgb: Bytes, quality: int
) -> None:
    for level in range(LEVELS, len(sizes)):
        rows, cols = spool.grids[level]
        tall = max(rows * TILE - len(rgb), 0)
        wide = max(cols * TILE - rgb.shape[1], 0)
        whole = np.pad(rgb, ((0, tall), (0, wide), (0, 0)), mode="edge")
        for r in range(rows):
            for c in range(cols):
                tile = whole[r * TILE : (r + 1) * TILE, c * TILE : (c + 1) * TILE]
                spool.put(level, r, c, _jpeg(tile, quality))
        rgb = _halved(rgb)


def _assemble(
    path: Path, spool: _Spool, sizes: list[tuple[int, int]], spec: SlideSpec
) -> None:
    pixels_a_cm = 1e4 / UM_PER_PIXEL
    description = f"Synthetic H&E sample tissue, {spec.kind}, seed {spec.seed}"
    with tifffile.TiffWriter(path, bigtiff=spool.size() > BIG) as tiff:
        for level, (width, height) in enumerate(sizes):
            options: dict[str, Any] = {
                "shape": (height, width, 3),
                "dtype": np.uint8,
                "tile": (TILE, TILE),
                "photometric": "ycbcr",
                "subsampling": (2, 2),
                "compression": "jpeg",
                "resolution": (pixels_a_cm / 2**level, pixels_a_cm / 2**level),
                "resolutionunit": "CENTIMETER",
                "subfiletype": 1 if level else 0,
                "metadata": None,
                "software": f"spt {__version__}",
                "description": description if level == 0 else None,
            }
            tiff.write(spool.tiles(level), **options)
