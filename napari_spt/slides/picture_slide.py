"""A picture that lives in the window alone, written down so that it can be analysed."""

import hashlib
from pathlib import Path

import numpy as np

from napari_spt.analysis.advanced import pictures_folder
from spt_core.files import written_whole

TILE, SMALLEST = 256, 512


def as_slide(pixels: np.ndarray, um_pixel_xy: tuple[float, float]) -> Path:
    """Write pixels (y, x, 3) as a pyramid into the cache; the same ones once."""
    import tifffile
    from PIL import Image

    digest = hashlib.sha256(repr((pixels.shape, um_pixel_xy)).encode())
    digest.update(np.ascontiguousarray(pixels))
    path = pictures_folder() / f"{digest.hexdigest()[:32]}.tif"
    if path.exists():
        return path
    # Slides are whole tiles of JPEG in most readers; loss would be ours to answer for.
    options = {
        "tile": (TILE, TILE),
        "photometric": "rgb",
        "compression": "adobe_deflate",
        "metadata": None,
    }
    with written_whole(path) as temporary, tifffile.TiffWriter(temporary) as tiff:
        level = 0
        while True:
            resolution = tuple(1e4 / um / 2**level for um in um_pixel_xy)
            tiff.write(
                pixels,
                subfiletype=int(level > 0),
                resolution=resolution,
                resolutionunit="CENTIMETER",
                **options,
            )
            if max(pixels.shape[:2]) <= SMALLEST:
                return path
            pixels = np.asarray(Image.fromarray(pixels).reduce(2))
            level += 1
