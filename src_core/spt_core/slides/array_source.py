"""TIFFs that openslide refuses, and OME-Zarr: levels that are zarr arrays."""

import logging
import math
import weakref
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
from numpy.typing import NDArray
from PIL import Image

from spt_core.errors import InputError
from spt_core.slides.channel_facts import (
    ChannelFacts,
    are_colours,
    from_ome_xml,
    from_omero,
    from_qptiff,
    srh_channels,
)
from spt_core.slides.channels import ChannelView
from spt_core.slides.orientation import UPRIGHT, Orientation
from spt_core.slides.recipe import (
    RGB_RECIPE,
    SRH_RECIPE,
    RecipeError,
    find_channels,
    own_colours,
    picture_channels,
)
from spt_core.slides.slide_errors import missing_codec, unsupported
from spt_core.slides.source import Pixels, UnreadableRegionError, in_words
from spt_core.slides.tiff_parts import refuse_lost_parts
from spt_core.slides.tiff_tiles import cut_short
from spt_core.slides.tile_sizes import guard_series
from spt_core.slides.zarr_chunks import check_chunks

_log = logging.getLogger(__name__)

_UM = {
    "nm": 1e-3,
    "nanometer": 1e-3,
    "µm": 1.0,
    "um": 1.0,
    "micrometer": 1.0,
    "micron": 1.0,
    "mm": 1e3,
    "millimeter": 1e3,
    "cm": 1e4,
    "centimeter": 1e4,
    "inch": 25400.0,
    "m": 1e6,
    "meter": 1e6,
}
# Enough to choose a brightness window, little enough to read at once.
_OVERVIEW_PIXELS = 512


@dataclass
class ArrayLevel:
    """One array, such as zarr's, and where y, x and the channels are in it."""

    array: Any
    axes: str
    orientation: Orientation = UPRIGHT

    def size(self) -> tuple[int, int]:
        return self._xy(self.array.shape)

    def kinds(self) -> tuple[Any, ...]:
        """What is the same in all levels of one picture."""
        lengths = zip(self.axes, self.array.shape, strict=True)
        channels = [length for axis, length in lengths if axis in "CS"]
        return (np.dtype(self.array.dtype).kind, *channels)

    def tile(self) -> tuple[int, int]:
        return self._xy(self.array.chunks)

    def read(self, x: slice, y: slice) -> NDArray:
        """Read ``(y, x, c)``; of other axes the middle plane (z) or the first."""
        if self.orientation.is_plain:
            return self._stored(x, y)
        shape = self.array.shape
        rows, columns = shape[self.axes.index("Y")], shape[self.axes.index("X")]
        down, across = self.orientation.stored(x, y, rows, columns)
        return self.orientation.seen(self._stored(across, down))

    def _xy(self, lengths: Sequence[int]) -> tuple[int, int]:
        x, y = lengths[self.axes.index("X")], lengths[self.axes.index("Y")]
        return (y, x) if self.orientation.turned else (x, y)

    def _stored(self, x: slice, y: slice) -> NDArray:
        key: list[slice | int] = []
        for axis, length in zip(self.axes, self.array.shape, strict=True):
            if axis == "X":
                key.append(x)
            elif axis == "Y":
                key.append(y)
            elif axis in "CS":
                key.append(slice(None))
            else:
                key.append(length // 2 if axis == "Z" else 0)
        pixels = np.asarray(self.array[tuple(key)])
        kept = [axis for axis in self.axes if axis in "YXCS"]
        order = [kept.index("Y"), kept.index("X")]
        order += [i for i, axis in enumerate(kept) if axis in "CS"]
        pixels = pixels.transpose(order)
        return pixels.reshape(*pixels.shape[:2], -1)


@dataclass(eq=False)
class ArraySource:
    """Levels of arrays, shown as RGB."""

    path: Path
    reader: str
    levels: list[ArrayLevel]
    raw_mpp_xy: tuple[float, float] | None
    has_alpha: bool = False
    channels: Sequence[ChannelFacts] = ()
    properties: dict[str, str] = field(default_factory=dict)
    tiff: tifffile.TiffFile | None = None
    bounds: tuple[int, int, int, int] | None = None
    objective_power: float | None = None
    notes: list[str] = field(default_factory=list)
    asked: str | None = None

    def __post_init__(self) -> None:
        if (
            len({level.kinds() for level in self.levels}) != 1
            or self.dtype.kind in "mMO"
        ):
            raise ValueError("its levels are of different channels or numbers")
        if math.prod(self.levels[0].kinds()[1:]) > _MOST_CHANNELS:
            raise ValueError("no picture has so many channels")
        self.level_dimensions = tuple(level.size() for level in self.levels)
        self.tile_sizes = tuple(level.tile() for level in self.levels)
        self._view: ChannelView | None = None
        self._srh: tuple[int, int] | None = None
        self._chosen: tuple[int, ...] = ()
        if self.asked is None or self.asked == SRH_RECIPE:
            self._srh = self._raman()
        elif self.channels:
            self._chosen = find_channels(self.asked, self.channel_names)
        else:
            self._chosen = picture_channels(self.asked)
        if self._srh:
            self.notes.append(
                f"Its channels {self.channel_names[self._srh[0]]} and "
                f"{self.channel_names[self._srh[1]]} are CH2 and CH3 of stimulated "
                "Raman histology: red, green and blue are CH3 - CH2, CH2 and CH3."
            )

    def _raman(self) -> tuple[int, int] | None:
        """Where CH2 and CH3 are: as they are named, or, if asked for, in turn."""
        if self.dtype == np.uint16 and (named := srh_channels(self.channels)):
            return named
        if self.asked is None:
            return None
        if self.dtype != np.uint16 or len(self.channels) != 2:
            count = len(self.channels) or "no"
            raise RecipeError(
                f"has {count} separate channels of {self.dtype}: stimulated Raman "
                "histology needs two of 16 bits, CH2 and CH3."
            )
        return 0, 1

    @property
    def channel_names(self) -> list[str]:
        return [one.name or f"Channel {i}" for i, one in enumerate(self.channels, 1)]

    @property
    def recipe(self) -> str:
        """What red, green and blue are made of."""
        if self._srh:
            return SRH_RECIPE
        if self.asked:
            return self.asked
        if not self.channels:
            return RGB_RECIPE
        return own_colours(self.channel_names, self.channel_view.colours)

    @property
    def scaling(self) -> str | None:
        """The numbers of this file that became black and full brightness."""
        if not self.channels:
            return None
        if self._srh:
            return "0 to 65536"
        names, windows = self.channel_names, self.channel_view.windows
        return ", ".join(
            f"{names[i]} {windows[i][0]:.6g} to {windows[i][1]:.6g}"
            for i in self._chosen or range(len(names))
        )

    @property
    def channel_view(self) -> ChannelView:
        """How channels become colours, learned from a look at the slide."""
        if self._view is None:
            self._view = ChannelView.learn(
                self._overview(),
                channels=self.channels,
                srh=self._srh,
                chosen=self._chosen,
            )
        return self._view

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(self.levels[0].array.dtype)

    def read_raw(self, level: int, x: int, y: int, w: int, h: int) -> NDArray:
        """Read ``(h, w, c)`` in the file's own numbers."""
        try:
            return self.levels[level].read(slice(x, x + w), slice(y, y + h))
        # A damaged chunk raises whatever its codec raises.
        except Exception as error:
            raise self._unreadable(level, x, y, w, h, error) from error

    def read(self, level: int, x: int, y: int, w: int, h: int) -> Pixels:
        try:
            return self._rgb(self.levels[level].read(slice(x, x + w), slice(y, y + h)))
        # A damaged chunk raises whatever its codec raises.
        except Exception as error:
            raise self._unreadable(level, x, y, w, h, error) from error

    def _unreadable(
        self, level: int, x: int, y: int, w: int, h: int, error: Exception
    ) -> UnreadableRegionError:
        _log.debug("%s: %s", self.path, error)
        scale = self.level_dimensions[0][0] / self.level_dimensions[level][0]
        return UnreadableRegionError(
            self.path,
            (round(x * scale), round(y * scale)),
            (round(w * scale), round(h * scale)),
            in_words(error) if self.path.exists() else "the file is gone",
        )

    def all_properties(self) -> Mapping[str, str]:
        return self.properties

    def associated_images(self) -> Mapping[str, Image.Image]:
        return {}

    def close(self) -> None:
        if self.tiff is not None:
            self.tiff.close()

    def _rgb(self, pixels: NDArray) -> Pixels:
        if self.has_alpha:
            alpha = pixels[..., -1:].astype(np.float32)
            alpha /= np.iinfo(pixels.dtype).max if pixels.dtype.kind == "u" else 1
            white = np.iinfo(pixels.dtype).max if pixels.dtype.kind == "u" else 1
            colour = pixels[..., :-1] * alpha + white * (1 - alpha)
            pixels = colour.astype(pixels.dtype)
        is_plain = pixels.shape[-1] == 3 and pixels.dtype == np.uint8
        if is_plain and not self.channels and not self._chosen:
            return np.ascontiguousarray(pixels)
        return self.channel_view.rgb(pixels)

    def _overview(self) -> NDArray:
        """A small image of the slide, from its middle where it is large."""
        level = self.levels[-1]
        (width, height), n = level.size(), _OVERVIEW_PIXELS
        x, y = max(0, width // 2 - n), max(0, height // 2 - n)
        pixels = self._readable(level, x, y, min(width, 2 * n), min(height, 2 * n))
        return pixels[..., :-1] if self.has_alpha else pixels

    def _readable(self, level: ArrayLevel, x: int, y: int, w: int, h: int) -> NDArray:
        """A region of which the damaged parts are 0, found by halving it."""
        try:
            return level.read(slice(x, x + w), slice(y, y + h))
        # A damaged chunk raises whatever its codec raises.
        except Exception as error:  # noqa: BLE001
            _log.debug("%s: %s", self.path, error)
        if max(w, h) <= _OVERVIEW_PIXELS // 4:
            return np.zeros((h, w, math.prod(level.kinds()[1:])), self.dtype)
        if w >= h:
            half = w // 2
            left = self._readable(level, x, y, half, h)
            right = self._readable(level, x + half, y, w - half, h)
            return np.concatenate([left, right], axis=1)
        half = h // 2
        top = self._readable(level, x, y, w, half)
        return np.concatenate(
            [top, self._readable(level, x, y + half, w, h - half)], axis=0
        )


def open_tiff(path: Path, recipe: str | None = None) -> ArraySource:
    """Open with tifffile; raises tifffile.TiffFileError where it is not a TIFF."""
    tiff = tifffile.TiffFile(path)
    try:
        source = _tiff_source(path, tiff, recipe)
    except BaseException:
        tiff.close()
        raise
    # Slides share the source and are garbage-collected without being closed.
    weakref.finalize(source, tiff.close)
    return source


def _tiff_source(
    path: Path, tiff: tifffile.TiffFile, recipe: str | None
) -> ArraySource:
    import zarr  # half a second, which other formats need not wait for

    tiff.filehandle.set_lock(True)
    refuse_lost_parts(tiff, path)
    series = tiff.series[0]
    if "Y" not in series.axes or "X" not in series.axes:
        raise tifffile.TiffFileError(f"no image in it (axes {series.axes})")
    page = series.pages[0] or tiff.pages[0]
    if why := missing_codec(page):
        raise unsupported(path.name, why)
    guard_series(series)
    turn = Orientation.of(int(page.tags.valueof("Orientation", 1)))
    levels = [
        ArrayLevel(zarr.open(series.aszarr(level=i), mode="r"), level.axes, turn)
        for i, level in enumerate(series.levels)
    ]
    page = tiff.pages[0]
    samples = series.shape[series.axes.index("S")] if "S" in series.axes else 1
    channels: Sequence[ChannelFacts] = ()
    mpp_xy = _tiff_mpp(page)
    if tiff.is_ome and tiff.ome_metadata:
        mpp_xy = _ome_mpp(tiff.ome_metadata)
        channels = from_ome_xml(tiff.ome_metadata)
    if mpp_xy and turn.turned:
        mpp_xy = mpp_xy[::-1]
    if tiff.is_qpi and not tiff.is_ome:
        channels = from_qptiff([one.description for one in series.pages])
    return ArraySource(
        path,
        "tifffile",
        levels,
        mpp_xy,
        has_alpha=samples == 4,
        channels=fitting(channels, levels[0], is_rgb=samples > 1),
        properties={"tiff.ImageDescription": page.description},
        tiff=tiff,
        notes=cut_short(tiff, series.pages),
        asked=recipe,
    )


_MOST_LEVELS, _MOST_CHANNELS = 64, 4096


def is_ome_zarr(path: Path) -> bool:
    """Whether a folder is a zarr group or array (version 2 or 3)."""
    return path.is_dir() and any(
        (path / name).exists() for name in (".zgroup", ".zarray", "zarr.json")
    )


def open_ome_zarr(path: Path, recipe: str | None = None) -> ArraySource:
    """Open an OME-Zarr image (versions 0.4 and 0.5), or a plain zarr array."""
    import zarr

    from spt_core.slides.zarr_folder import open_zarr

    group = open_zarr(path)
    if isinstance(group, zarr.Array):
        check_chunks(group)
        level = ArrayLevel(group, _likely_axes(group.shape))
        known = fitting((), level)
        return ArraySource(path, "zarr", [level], None, channels=known, asked=recipe)
    attributes: dict[str, Any] = dict(group.attrs)
    attributes = attributes.get("ome", attributes)
    if "multiscales" not in attributes:
        raise InputError("is a zarr folder that holds no OME-Zarr image.")
    multiscale = attributes["multiscales"][0]
    axes_list = multiscale.get("axes") or ["t", "c", "z", "y", "x"]
    datasets = multiscale["datasets"]
    # Each level is opened; halved so often, no picture has a pixel left.
    if not isinstance(axes_list, list) or len(datasets) > _MOST_LEVELS:
        raise ValueError("no list of axes, or more levels than a picture has")
    names = [a["name"] if isinstance(a, dict) else a for a in axes_list]
    axes = "".join(names).upper()
    levels = [ArrayLevel(group[dataset["path"]], axes) for dataset in datasets]
    for level in levels:
        check_chunks(level.array)
    channels = from_omero(attributes.get("omero", {}).get("channels", []))
    return ArraySource(
        path,
        "zarr",
        levels,
        _zarr_mpp(datasets[0], axes_list, axes),
        channels=fitting(channels, levels[0]),
        asked=recipe,
    )


def _likely_axes(shape: tuple[int, ...]) -> str:
    """The axes of an array that does not name them: channels are few."""
    match shape:
        case (_, _):
            return "YX"
        case (_, _, last) if last in (3, 4):
            return "YXS"
        case (first, height, width) if first < min(height, width):
            return "CYX"
    sizes = " × ".join(str(side) for side in shape)
    raise InputError(
        f"is a zarr array of {sizes} that does not say which axes are a picture's: "
        "this kind is not supported. Save it as OME-Zarr."
    )


def fitting(
    facts: Sequence[ChannelFacts], level: ArrayLevel, *, is_rgb: bool = False
) -> tuple[ChannelFacts, ...]:
    """What is known of a level's channels; none where it is one picture in colour."""
    shape = level.array.shape
    count = shape[level.axes.index("C")] if "C" in level.axes else 1
    if is_rgb or (count == 1 and not facts):
        return ()
    if len(facts) != count:
        facts = [ChannelFacts()] * count
    return () if are_colours(facts) else tuple(facts)


def _zarr_mpp(
    dataset: dict[str, Any], axes_list: list[Any], axes: str
) -> tuple[float, float] | None:
    scale = next(
        (
            t["scale"]
            for t in dataset.get("coordinateTransformations", [])
            if t.get("type") == "scale"
        ),
        None,
    )
    if scale is None:
        return None
    sizes = []
    for name in "XY":
        axis = axes_list[axes.index(name)]
        unit = axis.get("unit") if isinstance(axis, dict) else None
        if unit not in _UM:
            return None
        sizes.append(float(scale[axes.index(name)]) * _UM[unit])
    return sizes[0], sizes[1]


def _tiff_mpp(page: tifffile.TiffPage) -> tuple[float, float] | None:
    unit = page.tags.valueof("ResolutionUnit", 1)
    um = {2: _UM["inch"], 3: _UM["cm"]}.get(int(unit))
    if um is None:
        return None
    sizes = []
    for tag in ("XResolution", "YResolution"):
        value = page.tags.valueof(tag)
        if not value or not value[0] or not value[1]:
            return None
        sizes.append(um * value[1] / value[0])
    # 72 and 96 dots per inch are what programs write when they know nothing.
    if any(math.isclose(size, 25400 / dpi) for size in sizes for dpi in (1, 72, 96)):
        return None
    return sizes[0], sizes[1]


def _ome_mpp(xml: str) -> tuple[float, float] | None:
    """Pixel size from OME-XML."""
    pixels = ElementTree.fromstring(xml).find(".//{*}Pixels")
    if pixels is None:
        return None
    sizes = []
    for name in "XY":
        size = pixels.get(f"PhysicalSize{name}")
        unit = pixels.get(f"PhysicalSize{name}Unit", "µm")
        if size is not None and unit in _UM:
            sizes.append(float(size) * _UM[unit])
    return (sizes[0], sizes[1]) if len(sizes) == 2 else None
