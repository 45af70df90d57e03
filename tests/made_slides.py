"""Small real slides on disk, in the formats that the core reads.

Each maker writes one file from one picture. ``CASES`` is the table that drives the
tests of the core and of the plugin alike.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import tifffile
import zarr
from PIL import Image

KEEPS_OPEN_FILES = pytest.mark.skipif(
    sys.platform == "win32", reason="Windows does not delete files that are open"
)


def picture(width: int, height: int, seed: int = 0) -> np.ndarray:
    """H&E-like pixels in which no two places, and no two axes, look alike."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width].astype(np.float32)
    red = 200 + 40 * np.sin(x / 37) - 30 * (y / height)
    green = 120 + 60 * np.sin(y / 53 + x / 211)
    blue = 180 + 50 * (x / width) * np.cos(y / 19)
    rgb = np.stack([red, green, blue], axis=-1)
    rgb += rng.normal(0, 6, rgb.shape)
    return np.clip(rgb, 0, 255).astype(np.uint8)


def halved(pixels: np.ndarray) -> np.ndarray:
    """Half the size, rounded down as scanners do: downsamples like 2.0005 come out."""
    height, width = pixels.shape[0] // 2, pixels.shape[1] // 2
    return pixels[: 2 * height : 2, : 2 * width : 2].copy()


def per_cm(mpp: float) -> float:
    return 1e4 / mpp


def write_tiff(
    path: Path,
    pixels: np.ndarray,
    *,
    levels: int = 3,
    tile: int | None = 256,
    mpp_xy: tuple[float, float] | None = (0.5, 0.5),
    keep_every: int = 1,
    **options,
) -> None:
    """Write a tiled JPEG pyramid such as openslide reads by its generic reader."""
    options = {"compression": "jpeg", **options}
    if tile is not None:
        options["tile"] = (tile, tile)
    resolution = {}
    if mpp_xy is not None:
        resolution = {
            "resolution": (per_cm(mpp_xy[0]), per_cm(mpp_xy[1])),
            "resolutionunit": "CENTIMETER",
        }
    with tifffile.TiffWriter(path) as tiff:
        for level in range(levels):
            if level % keep_every == 0:
                tiff.write(
                    pixels,
                    photometric="rgb",
                    subfiletype=int(level > 0),
                    metadata=None,
                    **(resolution if level == 0 else {}),
                    **options,
                )
            pixels = halved(pixels)


def write_svs(path: Path, pixels: np.ndarray, *, mpp: float | None = 0.499) -> None:
    """Write an Aperio slide, with a label image and a patient in its description."""
    height, width = pixels.shape[:2]
    extra = "" if mpp is None else f"|AppMag = 20|MPP = {mpp}"
    first = (
        f"Aperio Image Library v11.2.1\r\n{width}x{height} [0,0 {width}x{height}] "
        f"(240x240) JPEG/RGB Q=90{extra}|Filename = DOE JANE 1234567"
        "|User = b414003d-95c6-48b0-9369-8010ed517ba7|Title = Doe^Jane"
    )
    label = np.full((60, 80, 3), 230, np.uint8)
    jpeg = {"compression": "jpeg", "photometric": "rgb", "metadata": None}
    with tifffile.TiffWriter(path) as tiff:
        tiff.write(pixels, tile=(240, 240), description=first, **jpeg)
        tiff.write(label, rowsperstrip=16, description="Aperio x\r\nthumb", **jpeg)
        pixels = halved(pixels)
        tiff.write(pixels, tile=(240, 240), description="Aperio x\r\n", **jpeg)
        tiff.write(
            label,
            rowsperstrip=16,
            subfiletype=1,
            description="Aperio x\r\nlabel 80x60",
            compression="lzw",
            photometric="rgb",
            metadata=None,
        )


def write_scn(path: Path, pixels: np.ndarray) -> None:
    """Write a Leica slide whose scanned part lies inside a larger canvas (bounds)."""
    height, width = pixels.shape[:2]
    nm = 500
    left, top, canvas = 300, 700, (width + 1000, height + 1500)
    small = halved(pixels)
    xml = f"""<?xml version="1.0"?>
<scn xmlns="http://www.leica-microsystems.com/scn/2010/10/01">
<collection name="Slide" sizeX="{canvas[0] * nm}" sizeY="{canvas[1] * nm}">
<barcode>DOEJANE1234567</barcode>
<image name="main"><creationDate>2026-01-01T00:00:00Z</creationDate>
<device model="Leica SCN400" version="1.5"/>
<pixels sizeX="{width}" sizeY="{height}">
<dimension sizeX="{width}" sizeY="{height}" r="0" ifd="0"/>
<dimension sizeX="{small.shape[1]}" sizeY="{small.shape[0]}" r="1" ifd="1"/>
</pixels>
<view sizeX="{width * nm}" sizeY="{height * nm}"
 offsetX="{left * nm}" offsetY="{top * nm}" spacingZ="0"/>
<scanSettings><objectiveSettings><objective>20</objective></objectiveSettings>
<illuminationSettings><numericalAperture>0.4</numericalAperture>
<illuminationSource>brightfield</illuminationSource></illuminationSettings>
</scanSettings></image></collection></scn>"""
    options = {"compression": "jpeg", "photometric": "rgb", "metadata": None}
    with tifffile.TiffWriter(path, bigtiff=True) as tiff:
        resolution = {"resolution": (20000, 20000), "resolutionunit": "CENTIMETER"}
        tiff.write(pixels, tile=(256, 256), description=xml, **resolution, **options)
        tiff.write(small, tile=(256, 256), **options)


def write_ome_tiff(path: Path, channels: np.ndarray, *, mpp: float = 0.325) -> None:
    """Write a pyramidal OME-TIFF of ``(c, y, x)``."""
    size = {"PhysicalSizeX": mpp, "PhysicalSizeY": mpp}
    size |= {"PhysicalSizeXUnit": "µm", "PhysicalSizeYUnit": "µm"}
    with tifffile.TiffWriter(path, ome=True) as tiff:
        tile = {"tile": (128, 128), "photometric": "minisblack"}
        tiff.write(channels, subifds=1, metadata={"axes": "CYX", **size}, **tile)
        tiff.write(channels[:, ::2, ::2], subfiletype=1, **tile)


def write_ome_zarr(path: Path, pixels: np.ndarray, *, zarr_format: int = 2) -> None:
    """Write an OME-Zarr of two levels from ``(y, x, 3)``, stored as (c, y, x)."""
    group = zarr.open_group(str(path), mode="w", zarr_format=zarr_format)
    datasets = []
    for level in range(2):
        stored = np.moveaxis(pixels, -1, 0)
        array = group.create_array(
            str(level), shape=stored.shape, dtype="uint8", chunks=(3, 128, 128)
        )
        array[:] = stored
        scale = {"type": "scale", "scale": [1, 0.5 * 2**level, 0.5 * 2**level]}
        datasets.append({"path": str(level), "coordinateTransformations": [scale]})
        pixels = halved(pixels)
    space = {"type": "space", "unit": "micrometer"}
    axes = [{"name": "c", "type": "channel"}]
    axes += [{"name": "y", **space}, {"name": "x", **space}]
    image = {"multiscales": [{"version": "0.4", "axes": axes, "datasets": datasets}]}
    group.attrs.update(image if zarr_format == 2 else {"ome": image})


@dataclass(frozen=True)
class Case:
    """One kind of slide, and what is true of it."""

    name: str
    ending: str
    write: Callable[[Path], None]
    size: tuple[int, int]
    mpp_xy: tuple[float, float] | None
    reader: str = "openslide"
    bounds: tuple[int, int, int, int] | None = None
    # The exact pixels of level 0, where the file keeps them without loss.
    exact: np.ndarray | None = None

    def make(self, folder: Path) -> Path:
        path = folder / f"{self.name}{self.ending}"
        self.write(path)
        return path


_WIDE = picture(1423, 1111)
_GREY = _WIDE[..., 0]
_DEEP = _WIDE.astype(np.uint16) * 257
_FIVE = np.stack([_GREY, _GREY // 2, _GREY // 3, _GREY, _GREY]).astype(np.uint16)

CASES = [
    Case("pyramid", ".tif", lambda p: write_tiff(p, _WIDE), (1423, 1111), (0.5, 0.5)),
    Case("aperio", ".svs", lambda p: write_svs(p, _WIDE), (1423, 1111), (0.499, 0.499)),
    Case(
        "aperio without pixel size",
        ".svs",
        lambda p: write_svs(p, _WIDE, mpp=None),
        (1423, 1111),
        None,
    ),
    Case(
        "leica with bounds",
        ".scn",
        lambda p: write_scn(p, _WIDE),
        (2423, 2611),
        (0.5, 0.5),
        bounds=(300, 700, 1423, 1111),
    ),
    Case(
        "unequal pixel sizes",
        ".tif",
        lambda p: write_tiff(p, _WIDE, mpp_xy=(0.25, 0.4)),
        (1423, 1111),
        (0.25, 0.4),
    ),
    Case(
        "one level",
        ".tiff",
        lambda p: write_tiff(p, picture(4500, 2300), levels=1),
        (4500, 2300),
        (0.5, 0.5),
    ),
    Case(
        "wide gap",
        ".tif",
        lambda p: write_tiff(p, picture(4200, 4100), levels=5, keep_every=4),
        (4200, 4100),
        (0.5, 0.5),
    ),
    Case(
        "striped",
        ".tif",
        lambda p: write_tiff(
            p, _WIDE, levels=1, tile=None, compression=None, rowsperstrip=16
        ),
        (1423, 1111),
        (0.5, 0.5),
        reader="tifffile",
        exact=_WIDE,
    ),
    Case(
        "sixteen bits",
        ".tif",
        lambda p: write_tiff(p, _DEEP, levels=1, compression="zlib"),
        (1423, 1111),
        (0.5, 0.5),
        reader="tifffile",
    ),
    Case(
        "five channels",
        ".ome.tif",
        lambda p: write_ome_tiff(p, _FIVE),
        (1423, 1111),
        (0.325, 0.325),
        reader="tifffile",
    ),
    Case(
        "zarr two",
        ".ome.zarr",
        lambda p: write_ome_zarr(p, _WIDE),
        (1423, 1111),
        (0.5, 0.5),
        reader="zarr",
        exact=_WIDE,
    ),
    Case(
        "zarr three",
        ".zarr",
        lambda p: write_ome_zarr(p, _WIDE, zarr_format=3),
        (1423, 1111),
        (0.5, 0.5),
        reader="zarr",
        exact=_WIDE,
    ),
]


def damage_tile(path: Path, page: int = 0, tile: int = 0) -> None:
    """Overwrite one tile's JPEG data with rubbish."""
    with tifffile.TiffFile(path) as tiff:
        offset = tiff.pages[page].dataoffsets[tile]
        size = tiff.pages[page].databytecounts[tile]
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(b"\xa5" * size)


def png(path: Path, pixels: np.ndarray) -> None:
    Image.fromarray(pixels).save(path)
