"""The frames of a DICOM file as one array, decoded where they are looked at.

For files that openslide refuses: those of 16 bits, of channels, or of a compression
that it does not know. A picture's tiles, or its channels, are its frames.
"""

import mmap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import pydicom
from numpy.typing import NDArray

from spt_core.slides.channel_facts import ChannelFacts
from spt_core.slides.slide_errors import unsupported
from spt_core.slides.source import DamagedPartError
from spt_core.slides.tile_cache import TileCache

_IMPLICIT = "1.2.840.10008.1.2"
_NATIVE = {_IMPLICIT, "1.2.840.10008.1.2.1"}
_RUN_LENGTHS = "1.2.840.10008.1.2.5"
_1_2_4 = "1.2.840.10008.1.2.4."
_Decoder = Callable[[bytes], NDArray]
_CODECS: Mapping[str, _Decoder] = {
    **dict.fromkeys((_1_2_4 + "50", _1_2_4 + "51"), imagecodecs.jpeg_decode),
    **dict.fromkeys((_1_2_4 + "57", _1_2_4 + "70"), imagecodecs.ljpeg_decode),
    **dict.fromkeys((_1_2_4 + "80", _1_2_4 + "81"), imagecodecs.jpegls_decode),
    **dict.fromkeys((_1_2_4 + "90", _1_2_4 + "91"), imagecodecs.jpeg2k_decode),
    **dict.fromkeys((_1_2_4 + "201", _1_2_4 + "202"), imagecodecs.jpeg2k_decode),
    _1_2_4 + "203": imagecodecs.jpeg2k_decode,
    **dict.fromkeys((_1_2_4 + "110", _1_2_4 + "112"), imagecodecs.jpegxl_decode),
}
# Colours that are red, green and blue, or that the decoder makes so.
_RGB = {"RGB", "YBR_FULL_422", "YBR_ICT", "YBR_RCT", "XYB"}
_GREY = {"MONOCHROME2"}
_PIXELS = b"\xe0\x7f\x10\x00"  # the tag before them
# Frames that no file says are tiles or dyes: more are moments or depths.
_MOST_CHANNELS = 8
_MOST_PIXELS = 2**28  # of one frame
_CACHE_BYTES = 96 * 2**20


@dataclass(frozen=True)
class _Tile:
    """One frame and where it lies."""

    frame: int
    x: int
    y: int
    channel: int = 0


class NoPictureError(ValueError):
    """A DICOM file that holds something else."""


def read_header(path: Path) -> pydicom.Dataset:
    """All that a DICOM file states before its pixels, and where these begin."""
    with path.open("rb") as file:
        data = pydicom.dcmread(file, stop_before_pixels=True)
        at = file.tell()
        has_pixels = file.read(4) == _PIXELS and "Rows" in data
    kind = data.file_meta.MediaStorageSOPClassUID.name
    if not has_pixels and "Image" not in kind:
        raise NoPictureError(kind)
    if not has_pixels:
        raise ValueError("it ends before its pixels")
    data.pixels_at = at
    return data


class DicomFrames:
    """One picture of a DICOM file: ``(y, x, samples)``, or ``(c, y, x)`` of channels.

    Read by slices, one per axis, as zarr's arrays are, from any thread.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.data = data = read_header(path)
        self._rows, self._columns = int(data.Rows), int(data.Columns)
        self._samples = int(data.get("SamplesPerPixel", 1))
        frames = int(data.get("NumberOfFrames", 1) or 1)
        self._refuse_unknown()
        self.dtype = np.dtype(f"u{int(data.BitsAllocated) // 8}")
        # Before anything is made for each frame: so many are there.
        self._frames = _Pixels(path, data, frames)
        self.is_tiled = "TotalPixelMatrixColumns" in data
        if self.is_tiled:
            width = int(data.TotalPixelMatrixColumns)
            height = int(data.TotalPixelMatrixRows)
            self.channels, tiles = _placed(data, frames, width, height)
        else:
            if frames > _MOST_CHANNELS or (frames > 1 and self._samples > 1):
                raise unsupported(
                    path.name, f"its {frames} frames are neither tiles nor channels"
                )
            width, height = self._columns, self._rows
            self.channels = [ChannelFacts(name) for name in _names(data, frames)]
            tiles = [_Tile(i, 0, 0, i) for i in range(frames)]
        self.width = width
        self._grid: dict[tuple[int, int], list[_Tile]] = {}
        for tile in tiles:
            cell = tile.y // self._rows, tile.x // self._columns
            self._grid.setdefault(cell, []).append(tile)
        if self._samples > 1:
            self.axes = "YXS"
            self.shape: tuple[int, ...] = (height, width, self._samples)
            self.chunks = (self._rows, self._columns, self._samples)
        else:
            self.axes = "CYX"
            self.shape = (len(self.channels), height, width)
            self.chunks = (len(self.channels), self._rows, self._columns)
        self._cache = TileCache(_CACHE_BYTES)

    @property
    def kind(self) -> tuple[str, int, np.dtype]:
        """What all levels of a slide have in common."""
        return self.axes, len(self.channels), self.dtype

    def __getitem__(self, key: tuple[slice, ...]) -> NDArray:
        rows, columns = (key[self.axes.index(axis)] for axis in "YX")
        height, width = (self.shape[self.axes.index(axis)] for axis in "YX")
        y0, y1, _ = rows.indices(height)
        x0, x1, _ = columns.indices(width)
        depth = max(self._samples, len(self.channels))
        out = np.zeros((y1 - y0, x1 - x0, depth), self.dtype)
        across = range(x0 // self._columns - 1, (x1 - 1) // self._columns + 1)
        for row in range(y0 // self._rows - 1, (y1 - 1) // self._rows + 1):
            for column in across:
                for tile in self._grid.get((row, column), ()):
                    self._paste(tile, out, x0, y0)
        return out if self._samples > 1 else out.transpose(2, 0, 1)

    def _paste(self, tile: _Tile, out: NDArray, x0: int, y0: int) -> None:
        """Lay the part of a tile that is looked at where it belongs."""
        left, top = max(tile.x, x0), max(tile.y, y0)
        right = min(tile.x + self._columns, x0 + out.shape[1])
        bottom = min(tile.y + self._rows, y0 + out.shape[0])
        if right <= left or bottom <= top:
            return
        frame = self._cache.get(tile.frame)
        if frame is None:
            frame = self._frame(tile.frame)
            self._cache.put(tile.frame, frame)
        part = frame[top - tile.y : bottom - tile.y, left - tile.x : right - tile.x]
        place = out[top - y0 : bottom - y0, left - x0 : right - x0]
        if self._samples > 1:
            place[:] = part
        else:
            place[..., tile.channel] = part[..., 0]

    def _frame(self, index: int) -> NDArray:
        shape = (self._rows, self._columns, self._samples)
        frame = self._frames.decoded(index, shape, self.dtype)
        if frame.size != np.prod(shape):
            raise ValueError(f"frame {index + 1} is not of the size that is stated")
        return frame.reshape(shape)

    def _refuse_unknown(self) -> None:
        data, name = self.data, self.path.name
        syntax = str(data.file_meta.TransferSyntaxUID)
        if syntax not in {*_NATIVE, *_CODECS, _RUN_LENGTHS}:
            kind = pydicom.uid.UID(syntax).name
            raise unsupported(
                name, f"its pixels are kept as {kind}, which nothing here reads"
            )
        colours = str(data.get("PhotometricInterpretation", ""))
        if colours not in (_GREY if self._samples == 1 else _RGB):
            raise unsupported(name, f"its colours are kept as {colours or 'unknown'}")
        if int(data.BitsAllocated) not in (8, 16) or int(
            data.get("PixelRepresentation", 0)
        ):
            raise unsupported(
                name, "its pixels are not whole numbers from 0 on of 8 or 16 bits"
            )
        if self._rows * self._columns > _MOST_PIXELS:
            raise unsupported(name, "it is kept in one piece that is too large")


class _Pixels:
    """The bytes of the frames."""

    def __init__(self, path: Path, data: pydicom.Dataset, frames: int) -> None:
        self._frames = frames
        syntax = str(data.file_meta.TransferSyntaxUID)
        self._decode = None if syntax in _NATIVE else _CODECS.get(syntax)
        self._by_run_lengths = syntax == _RUN_LENGTHS
        self._planar = int(data.get("PlanarConfiguration", 0) or 0)
        with path.open("rb") as file:
            self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        # The tag and its length; where the kind of number is written out, that too.
        self._start = data.pixels_at + (8 if syntax == _IMPLICIT else 12)
        self._places = None if syntax in _NATIVE else self._found()
        # A byte a frame at the very least, so that what is stated is no fiction.
        if not 1 <= frames <= len(self._bytes):
            raise ValueError(f"it states {frames} frames")
        one = int(data.Rows) * int(data.Columns) * int(data.get("SamplesPerPixel", 1))
        if self._places is None and self._start + one > len(self._bytes):
            raise ValueError("not one frame is whole")

    def decoded(
        self, index: int, shape: tuple[int, int, int], dtype: np.dtype
    ) -> NDArray:
        if self._places is None:
            size = int(np.prod(shape)) * dtype.itemsize
            at = self._start + index * size
            flat = np.frombuffer(self._bytes[at : at + size], dtype.newbyteorder("<"))
            if flat.size != np.prod(shape):
                raise DamagedPartError("the file is cut off")
            if self._planar:
                return flat.reshape(shape[2], *shape[:2]).transpose(1, 2, 0)
            return flat
        packed = b"".join(self._bytes[a:b] for a, b in self._places[index])
        if self._decode is not None:
            return np.asarray(self._decode(packed))
        planes = np.frombuffer(imagecodecs.dicomrle_decode(packed, dtype), dtype)
        return planes.reshape(shape[2], *shape[:2]).transpose(1, 2, 0)

    def _found(self) -> list[list[tuple[int, int]]]:
        """Where the pieces of each frame lie: by the table, or one piece a frame."""
        at, pieces = self._start, []
        while at + 8 <= len(self._bytes):
            tag, length = self._bytes[at : at + 4], self._bytes[at + 4 : at + 8]
            size = int.from_bytes(length, "little")
            if tag != b"\xfe\xff\x00\xe0":
                break
            pieces.append((at + 8, at + 8 + size))
            at += 8 + size
        table, pieces = pieces[:1], pieces[1:]
        if len(pieces) == self._frames:
            return [[piece] for piece in pieces]
        starts = np.frombuffer(self._bytes[table[0][0] : table[0][1]], "<u4")
        if len(starts) != self._frames:
            raise ValueError("its frames are not all there")
        first = pieces[0][0] - 8
        found: list[list[tuple[int, int]]] = [[] for _ in starts]
        for piece in pieces:
            owner = int(np.searchsorted(starts, piece[0] - 8 - first, "right")) - 1
            found[owner].append(piece)
        return found


def _placed(
    data: pydicom.Dataset, frames: int, width: int, height: int
) -> tuple[list[ChannelFacts], list[_Tile]]:
    """The channels (optical paths) of a tiled picture, and its tiles."""
    paths = data.get("OpticalPathSequence") or [pydicom.Dataset()]
    known = [str(one.get("OpticalPathIdentifier", i)) for i, one in enumerate(paths)]
    names = [one.get("OpticalPathDescription") or None for one in paths]
    facts = [ChannelFacts(None if name is None else str(name)) for name in names]
    rows, columns = int(data.Rows), int(data.Columns)
    stated = data.get("PerFrameFunctionalGroupsSequence") or []
    if data.get("DimensionOrganizationType") != "TILED_FULL" and len(stated) == frames:
        tiles = []
        for i, one in enumerate(stated):
            place = one.PlanePositionSlideSequence[0]
            path = one.get("OpticalPathIdentificationSequence")
            seen = str(path[0].OpticalPathIdentifier) if path else known[0]
            tiles.append(
                _Tile(
                    i,
                    int(place.ColumnPositionInTotalImagePixelMatrix) - 1,
                    int(place.RowPositionInTotalImagePixelMatrix) - 1,
                    known.index(seen),
                )
            )
        return facts, tiles
    across, down = -(-width // columns), -(-height // rows)
    depths = max(1, frames // (across * down * len(paths)))
    if across * down * depths * len(paths) != frames:
        raise ValueError(f"its {frames} frames do not fill {width} × {height} pixels")
    middle = depths // 2
    tiles = []
    for i in range(frames):
        rest, cell = divmod(i, across * down)
        path, depth = divmod(rest, depths)
        if depth == middle:
            y, x = divmod(cell, across)
            tiles.append(_Tile(i, x * columns, y * rows, path))
    return facts, tiles


def _names(data: pydicom.Dataset, frames: int) -> list[str | None]:
    """Of channels that are frames, where the file names them."""
    paths = data.get("OpticalPathSequence") or []
    if len(paths) == frames:
        return [str(one.get("OpticalPathDescription", "")) or None for one in paths]
    labels = str(data.get("ImageComments", "")).replace(";", ",").split(",")
    if len(labels) == frames:
        return [label.strip() or None for label in labels]
    return [None] * frames


def pixel_size(data: Any) -> tuple[float, float] | None:
    """Micrometres per pixel in x and y."""
    groups = data.get("SharedFunctionalGroupsSequence") or []
    measures = groups[0].get("PixelMeasuresSequence") if groups else None
    said = (measures[0] if measures else data).get("PixelSpacing")
    if not said or len(said) != 2:
        return None
    down, across = (1000 * float(mm) for mm in said)
    return across, down
