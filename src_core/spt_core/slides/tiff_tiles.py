"""Decoding a TIFF level's tiles directly.

openslide composes every region on a cairo surface, which takes longer than decoding its
JPEG tiles, and several times longer where a level's downsample is not a whole number
(2.0005), because the region is then also interpolated. The tiles themselves are what
the file says, so where a level is a plain grid of tiles we decode those;
``benchmarks/slide_reading.py`` prints the ratio.
"""

from collections.abc import Iterable

import numpy as np
import tifffile

from spt_core.slides.source import DamagedPartError, Pixels
from spt_core.slides.tile_cache import TileCache
from spt_core.slides.tile_sizes import refuse_larger

_CODECS = {
    tifffile.COMPRESSION.JPEG,
    tifffile.COMPRESSION.APERIO_JP2000_RGB,
    tifffile.COMPRESSION.NONE,
    tifffile.COMPRESSION.LZW,
    tifffile.COMPRESSION.ADOBE_DEFLATE,
    tifffile.COMPRESSION.DEFLATE,
}


def cut_short(tiff: tifffile.TiffFile, pages: Iterable[tifffile.TiffPage]) -> list[str]:
    """A note for the user, where the file ends before its image data do."""
    total = lost = 0
    for page in pages:
        if page is None:  # the XML promised it
            total += 1
            lost += 1
            continue
        ends = np.add(page.dataoffsets, page.databytecounts)
        total += ends.size
        gone = ends > tiff.filehandle.size
        if (
            not page.keyframe.is_tiled
        ):  # tiles may be left out on purpose, strips never are
            gone |= np.asarray(page.databytecounts) == 0
        lost += int(gone.sum())
    if lost == 0:
        return []
    return [
        f"The file is incomplete: {100 * lost / total:.2g} % of its image data are "
        "missing. Copy it again from where it came from."
    ]


class MissingTileError(LookupError):
    """The file leaves this tile out; openslide knows what belongs there."""


class TiffTiles:
    """One tiled 8-bit RGB page, read by region."""

    def __init__(self, page: tifffile.TiffPage, cache: TileCache) -> None:
        self.page = page
        self.width, self.height = page.imagewidth, page.imagelength
        self.tile_width, self.tile_height = page.tilewidth, page.tilelength
        self._across = -(-self.width // self.tile_width)
        self._cache = cache

    @staticmethod
    def suits(page: tifffile.TiffPage) -> bool:
        """Whether the page is one that this class reads as openslide would."""
        return (
            page.is_tiled
            and page.compression in _CODECS
            and page.dtype == np.uint8
            and page.samplesperpixel == 3
            and page.planarconfig == tifffile.PLANARCONFIG.CONTIG
            and page.photometric
            in (tifffile.PHOTOMETRIC.RGB, tifffile.PHOTOMETRIC.YCBCR)
        )

    def read(self, x: int, y: int, w: int, h: int) -> Pixels:
        """Read a region that lies inside the level."""
        tw, th = self.tile_width, self.tile_height
        out = np.empty((h, w, 3), np.uint8)
        for row in range(y // th, (y + h - 1) // th + 1):
            top, bottom = max(y, row * th), min(y + h, (row + 1) * th)
            for col in range(x // tw, (x + w - 1) // tw + 1):
                left, right = max(x, col * tw), min(x + w, (col + 1) * tw)
                out[top - y : bottom - y, left - x : right - x] = self._tile(row, col)[
                    top - row * th : bottom - row * th,
                    left - col * tw : right - col * tw,
                ]
        return out

    def _tile(self, row: int, col: int) -> Pixels:
        key = (self.page.index, row, col)
        tile = self._cache.get(key)
        if tile is None:
            tile = self._decode(row * self._across + col)
            self._cache.put(key, tile)
        return tile

    def _decode(self, index: int) -> Pixels:
        page = self.page
        size = page.databytecounts[index]
        if size == 0:
            raise MissingTileError(index)
        handle = page.parent.filehandle
        with handle.lock:
            handle.seek(page.dataoffsets[index])
            encoded = handle.read(size)
        if len(encoded) < size:
            raise DamagedPartError("the file ends before the data of this region")
        refuse_larger(encoded, page)
        # A codec that cannot decode raises an error of its own library.
        decoded, _, _ = page.decode(encoded, index, jpegtables=page.jpegtables)
        if decoded is None:
            raise MissingTileError(index)
        tile = decoded[0]
        if tile.shape != (self.tile_height, self.tile_width, 3):
            full = np.zeros((self.tile_height, self.tile_width, 3), np.uint8)
            full[: tile.shape[0], : tile.shape[1]] = tile
            tile = full
        return tile
