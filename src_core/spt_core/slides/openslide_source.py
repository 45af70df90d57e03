"""Slides that openslide reads."""

import logging
import weakref
from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import Self

import numpy as np
import openslide
import tifffile
from PIL import Image

from spt_core.slides.channels import pick
from spt_core.slides.recipe import RGB_RECIPE, picture_channels
from spt_core.slides.source import Pixels, UnreadableRegionError
from spt_core.slides.tiff_tiles import MissingTileError, TiffTiles, cut_short
from spt_core.slides.tile_cache import TileCache

CACHE_BYTES = 96 * 2**20
# Below this median brightness (of 255) the coarsest level is a dark-field image.
_DARK = 64
# In files of these makers a level is a plain grid of TIFF tiles, from (0, 0) on.
_PLAIN_TIFF_MAKERS = ("aperio", "generic-tiff")

_log = logging.getLogger(__name__)


class OpenSlideSource:
    """One openslide handle with a bounded cache, safe to read from many threads."""

    reader = "openslide"

    scaling: str | None = None

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = Lock()
        self._handle = self._open()
        properties = self._handle.properties
        self.vendor = properties.get(openslide.PROPERTY_NAME_VENDOR, "unknown")
        self.level_dimensions = self._handle.level_dimensions
        self.level_downsamples = self._handle.level_downsamples
        self.tile_sizes = tuple(
            (
                int(properties.get(f"openslide.level[{level}].tile-width", 0)),
                int(properties.get(f"openslide.level[{level}].tile-height", 0)),
            )
            for level in range(len(self.level_dimensions))
        )
        self.raw_mpp_xy = _mpp_xy(properties)
        self.bounds = _bounds(properties)
        self.objective_power = _number(
            properties.get(openslide.PROPERTY_NAME_OBJECTIVE_POWER)
        )
        self.notes: list[str] = []
        self.recipe = RGB_RECIPE
        self._chosen: tuple[int, ...] = ()
        self._background: tuple[int, int, int] | None = None
        self._tiff: tifffile.TiffFile | None = None
        self._tiles: dict[int, TiffTiles] = {}
        if self.vendor in _PLAIN_TIFF_MAKERS:
            self._find_plain_levels()

    @classmethod
    def try_open(cls, path: Path) -> Self | None:
        """Open the file, or return None where openslide does not know the format.

        A damaged file of a known format raises openslide.OpenSlideError.
        """
        try:
            return cls(path)
        except openslide.OpenSlideUnsupportedFormatError:
            return None

    def choose(self, recipe: str) -> None:
        """Take some of red, green and blue for all three, before anything is read."""
        self._chosen = picture_channels(recipe)
        self.recipe = recipe

    def read(self, level: int, x: int, y: int, w: int, h: int) -> Pixels:
        rgb = self._read(level, x, y, w, h)
        return pick(rgb, self._chosen) if self._chosen else rgb

    def _read(self, level: int, x: int, y: int, w: int, h: int) -> Pixels:
        tiles = self._tiles.get(level)
        if tiles is not None:
            try:
                return tiles.read(x, y, w, h)
            except MissingTileError:
                pass
            # Each codec raises its own error; openslide has the last word on whether
            # the region can be read at all.
            except Exception as error:  # noqa: BLE001
                _log.debug("%s: tile not decoded directly: %s", self.path, error)
        return self._read_through_openslide(level, x, y, w, h)

    def all_properties(self) -> Mapping[str, str]:
        return self._handle.properties

    def associated_images(self) -> Mapping[str, Image.Image]:
        return self._handle.associated_images

    def close(self) -> None:
        self._handle.close()
        if self._tiff is not None:
            self._tiff.close()

    def _open(self) -> openslide.OpenSlide:
        handle = openslide.OpenSlide(self.path)
        handle.set_cache(openslide.OpenSlideCache(CACHE_BYTES))
        return handle

    def _read_through_openslide(
        self, level: int, x: int, y: int, w: int, h: int
    ) -> Pixels:
        downsample = self.level_downsamples[level]
        l0_xy = (round(x * downsample), round(y * downsample))
        handle = self._handle
        try:
            return self._read_with(handle, l0_xy, level, (w, h))
        except openslide.OpenSlideError:
            self._replace(handle)
        # After one error a handle answers nothing any more, so this one may have failed
        # because of another thread's region: ask a handle of our own.
        try:
            with openslide.OpenSlide(self.path) as own:
                return self._read_with(own, l0_xy, level, (w, h))
        except (openslide.OpenSlideError, OSError) as error:
            l0_size = (round(w * downsample), round(h * downsample))
            reason = str(error) if self.path.exists() else "the file is gone"
            raise UnreadableRegionError(self.path, l0_xy, l0_size, reason) from error

    def _read_with(
        self,
        handle: openslide.OpenSlide,
        l0_xy: tuple[int, int],
        level: int,
        size: tuple[int, int],
    ) -> Pixels:
        rgba = handle.read_region(l0_xy, level, size)
        if rgba.getextrema()[3][0] < 255:
            paper = Image.new("RGBA", rgba.size, (*self._paper(handle), 255))
            rgba = Image.alpha_composite(paper, rgba)
        return np.asarray(rgba.convert("RGB"))

    def _replace(self, broken: openslide.OpenSlide) -> None:
        """Open the file again for the reads to come.

        The broken handle is left to the garbage collector, because other threads may
        be inside it.
        """
        with self._lock:
            if self._handle is broken:
                try:
                    self._handle = self._open()
                except (openslide.OpenSlideError, OSError) as error:
                    _log.debug("%s cannot be opened again: %s", self.path, error)

    def _paper(self, handle: openslide.OpenSlide) -> tuple[int, int, int]:
        """The colour of transparent parts: white, or black in a dark-field slide."""
        if self._background is None:
            level = len(self.level_dimensions) - 1
            width, height = self.level_dimensions[level]
            rgba = np.asarray(
                handle.read_region((0, 0), level, (min(width, 2048), min(height, 2048)))
            )
            opaque = rgba[rgba[..., 3] == 255][:, :3]
            dark = opaque.size > 0 and np.median(opaque.max(axis=1)) < _DARK
            self._background = (0, 0, 0) if dark else (255, 255, 255)
        return self._background

    def _find_plain_levels(self) -> None:
        """Match openslide's levels with TIFF pages that can be decoded directly."""
        try:
            tiff = tifffile.TiffFile(self.path)
        except (tifffile.TiffFileError, OSError) as error:
            _log.debug("%s: no direct reading: %s", self.path, error)
            return
        self._tiff = tiff
        # Slides share this source and are garbage-collected without being closed.
        weakref.finalize(self, tiff.close)
        try:
            # Without this the handle's lock does nothing, and threads get each other's
            # bytes.
            tiff.filehandle.set_lock(True)
            pages = {
                (page.imagewidth, page.imagelength): page
                for page in reversed(list(tiff.pages))
                if TiffTiles.suits(page)
            }
            self.notes += cut_short(tiff, pages.values())
        # tifffile raises whatever a damaged directory leads it to: openslide reads.
        except Exception as error:  # noqa: BLE001
            _log.debug("%s: no direct reading: %s", self.path, error)
            return
        cache = TileCache(CACHE_BYTES)
        for level, size in enumerate(self.level_dimensions):
            page = pages.get(size)
            if page is None:
                continue
            tiles = TiffTiles(page, cache)
            if self._agrees(level, tiles):
                self._tiles[level] = tiles

    def _agrees(self, level: int, tiles: TiffTiles) -> bool:
        """Whether one tile is decoded to what openslide reads.

        On level 0 the tile in the middle; elsewhere the first one, which alone lies
        on a whole level-0 pixel whatever the downsample.
        """
        x = y = 0
        if level == 0:
            x = tiles.width // 2 // tiles.tile_width * tiles.tile_width
            y = tiles.height // 2 // tiles.tile_height * tiles.tile_height
        w = min(tiles.tile_width, tiles.width - x)
        h = min(tiles.tile_height, tiles.height - y)
        try:
            ours = tiles.read(x, y, w, h).astype(np.int16)
            theirs = self._read_through_openslide(level, x, y, w, h)
        except Exception as error:  # noqa: BLE001
            _log.debug("%s: level %d not read directly: %s", self.path, level, error)
            return False
        return bool(np.abs(ours - theirs).max() <= 1)


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text is not None else None
    except ValueError:
        return None


def _mpp_xy(properties: Mapping[str, str]) -> tuple[float, float] | None:
    x = _number(properties.get(openslide.PROPERTY_NAME_MPP_X))
    y = _number(properties.get(openslide.PROPERTY_NAME_MPP_Y))
    if x is None or y is None:
        either = x if x is not None else y
        return None if either is None else (either, either)
    return x, y


def _bounds(properties: Mapping[str, str]) -> tuple[int, int, int, int] | None:
    try:
        return (
            int(properties[openslide.PROPERTY_NAME_BOUNDS_X]),
            int(properties[openslide.PROPERTY_NAME_BOUNDS_Y]),
            int(properties[openslide.PROPERTY_NAME_BOUNDS_WIDTH]),
            int(properties[openslide.PROPERTY_NAME_BOUNDS_HEIGHT]),
        )
    except (KeyError, ValueError):
        return None
