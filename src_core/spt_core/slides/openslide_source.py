"""Slides that openslide reads."""

import logging
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Self

import numpy as np
import openslide
import tifffile
from PIL import Image

from spt_core import proving
from spt_core.slides.channels import pick
from spt_core.slides.guarded_file import GuardedFile, ReaderLostError
from spt_core.slides.openslide_file import CACHE_BYTES, OpenSlideFile
from spt_core.slides.recipe import RGB_RECIPE, picture_channels
from spt_core.slides.source import Pixels, UnreadableRegionError, in_words
from spt_core.slides.tiff_tiles import MissingTileError, TiffTiles, cut_short
from spt_core.slides.tile_cache import TileCache

# In files of these makers a level is a plain grid of TIFF tiles, from (0, 0) on.
_PLAIN_TIFF_MAKERS = ("aperio", "generic-tiff")

_log = logging.getLogger(__name__)


class OpenSlideSource:
    """A file that openslide opens, read by it or, tile by tile, without it.

    Where this process must not be lost (``spt_core.proving``), a helper asks openslide.
    """

    reader = "openslide"

    scaling: str | None = None

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = (GuardedFile if proving.is_on() else OpenSlideFile)(path)
        properties = self._file.properties
        self.vendor = properties.get(openslide.PROPERTY_NAME_VENDOR, "unknown")
        self.level_dimensions = self._file.level_dimensions
        self.level_downsamples = self._file.level_downsamples
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
        return self._file.properties

    def associated_images(self) -> Mapping[str, Image.Image]:
        return _Pictures(self._file)

    def close(self) -> None:
        self._file.close()
        if self._tiff is not None:
            self._tiff.close()

    def _read_through_openslide(
        self, level: int, x: int, y: int, w: int, h: int
    ) -> Pixels:
        try:
            found = self._file.read(level, x, y, w, h)
        except (openslide.OpenSlideError, ReaderLostError, OSError) as error:
            downsample = self.level_downsamples[level]
            l0_xy = (round(x * downsample), round(y * downsample))
            l0_size = (round(w * downsample), round(h * downsample))
            _log.debug("%s: %s", self.path, error)
            reason, is_whole = in_words(error), False
            if isinstance(error, ReaderLostError):
                reason, is_whole = error.in_words, error.is_late
            if not self.path.exists():
                reason = "the file is gone"
            raise UnreadableRegionError(
                self.path, l0_xy, l0_size, reason, is_whole=is_whole
            ) from error
        return np.frombuffer(found, np.uint8).reshape(h, w, 3)

    def _find_plain_levels(self) -> None:
        """Match openslide's levels with TIFF pages that can be decoded directly."""
        try:
            tiff = tifffile.TiffFile(self.path)
        # tifffile raises whatever a damaged directory leads it to: openslide reads.
        except Exception as error:  # noqa: BLE001
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


class _Pictures(Mapping[str, Image.Image]):
    """Label, macro and the like, each read when it is looked up."""

    def __init__(self, file: OpenSlideFile | GuardedFile) -> None:
        self._file = file

    def __getitem__(self, name: str) -> Image.Image:
        if name not in self._file.picture_names:
            raise KeyError(name)
        try:
            return self._file.picture(name)
        except ReaderLostError as error:
            raise openslide.OpenSlideError(str(error)) from error

    def __iter__(self) -> Iterator[str]:
        return iter(self._file.picture_names)

    def __len__(self) -> int:
        return len(self._file.picture_names)


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
