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


def big_slide(path: Path, side: int, *, seed: int = 0) -> Path:
    """Write an Aperio-style slide of ``side`` pixels squared, 1 : 4 : 16 : 64."""
    if path.exists():
        return path
    tiles = _tissue_tiles()
    rng = np.random.default_rng(seed)
    description = (
        f"Aperio Image Library v11.2.1\r\n{side}x{side} [0,0 {side}x{side}] "
        f"({TILE}x{TILE}) JPEG/RGB Q=85|AppMag = 20|MPP = 0.5"
    )

    def stream(count: int) -> Iterator[bytes]:
        for _ in range(count):
            yield tiles[rng.integers(len(tiles))]

    temporary = path.with_suffix(".writing")
    with tifffile.TiffWriter(temporary, bigtiff=True) as tiff:
        for level, step in enumerate((1, 4, 16, 64)):
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
            )
            if level == 0:  # Aperio keeps its thumbnail here
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
