"""A large slide in seconds: real JPEG tiles of sample tissue, repeated at random."""

import math
from collections.abc import Iterator
from pathlib import Path

import imagecodecs
import numpy as np
import tifffile

from spt_core import open_slide
from spt_core.sample import sample_slide

TILE = 256


STEPS = (1, 4, 16, 64)


def big_slide(path: Path, side: int, *, seed: int = 0) -> Path:
    """Write a slide of ``side`` pixels squared, 1 : 4 : 16 : 64.

    As Aperio does, whose tiles we decode ourselves; as Leica does, which openslide
    decodes, where the path ends in ``.scn``.
    """
    if path.exists():
        return path
    is_leica = path.suffix == ".scn"
    tiles = _tissue_tiles()
    rng = np.random.default_rng(seed)
    description = (
        f"Aperio Image Library v11.2.1\r\n{side}x{side} [0,0 {side}x{side}] "
        f"({TILE}x{TILE}) JPEG/RGB Q=85|AppMag = 20|MPP = 0.5"
    )
    if is_leica:
        description = _leica(side)

    def stream(count: int) -> Iterator[bytes]:
        for _ in range(count):
            yield tiles[rng.integers(len(tiles))]

    resolution = {"resolution": (20_000, 20_000), "resolutionunit": "CENTIMETER"}
    temporary = path.with_suffix(".writing")
    with tifffile.TiffWriter(temporary, bigtiff=True) as tiff:
        for level, step in enumerate(STEPS):
            size = side // step
            tiff.write(
                stream(math.ceil(size / TILE) ** 2),
                shape=(size, size, 3),
                dtype=np.uint8,
                tile=(TILE, TILE),
                compression="jpeg",
                photometric="ycbcr",
                subsampling=(2, 2),
                description=description if level == 0 else "Aperio x\r\n",
                metadata=None,
                **(resolution if is_leica else {}),
            )
            if level == 0 and not is_leica:  # Aperio keeps its thumbnail here
                tiff.write(
                    np.full((64, 64, 3), 240, np.uint8),
                    compression="jpeg",
                    photometric="rgb",
                    rowsperstrip=16,
                    description="Aperio x\r\nthumbnail",
                    metadata=None,
                )
    temporary.replace(path)
    return path


def _leica(side: int) -> str:
    nm = 500
    canvas = side + 1024  # an image that fills it would be the macro image
    sizes = "".join(
        f'<dimension sizeX="{side // step}" sizeY="{side // step}" '
        f'r="{level}" ifd="{level}"/>'
        for level, step in enumerate(STEPS)
    )
    return f"""<?xml version="1.0"?>
<scn xmlns="http://www.leica-microsystems.com/scn/2010/10/01">
<collection name="Slide" sizeX="{canvas * nm}" sizeY="{canvas * nm}">
<image name="main"><creationDate>2026-01-01T00:00:00Z</creationDate>
<device model="Leica SCN400" version="1.5"/>
<pixels sizeX="{side}" sizeY="{side}">{sizes}</pixels>
<view sizeX="{side * nm}" sizeY="{side * nm}" offsetX="0" offsetY="0" spacingZ="0"/>
<scanSettings><objectiveSettings><objective>20</objective></objectiveSettings>
<illuminationSettings><numericalAperture>0.4</numericalAperture>
<illuminationSource>brightfield</illuminationSource></illuminationSettings>
</scanSettings></image></collection></scn>"""


def _tissue_tiles() -> list[bytes]:
    events = sample_slide()
    try:
        while True:
            next(events)
    except StopIteration as done:
        sample = open_slide(done.value)
    tiles = []
    width, height = sample.dimensions
    for y in range(height // 4, height * 3 // 4, 2 * TILE):
        for x in range(width // 4, width * 3 // 4, 2 * TILE):
            pixels = sample.read(0, x, y, TILE, TILE)
            tiles.append(imagecodecs.jpeg8_encode(pixels, level=85, subsampling="420"))
    return tiles
