"""An image that exists in the window alone, written to a file to be analysed."""

import hashlib
from pathlib import Path

import numpy as np

from spt_core.files import written_whole

TILE, SMALLEST = 256, 512


def write_picture_slide(
    pixels: np.ndarray, *, mpp_xy: tuple[float, float], folder: Path
) -> Path:
    """Write pixels (y, x, 3) as a pyramid into ``folder``; the same pixels once."""
    import tifffile
    from PIL import Image

    digest = hashlib.sha256(repr((pixels.shape, mpp_xy)).encode())
    digest.update(np.ascontiguousarray(pixels))
    path = folder / f"{digest.hexdigest()[:32]}.tif"
    if path.exists():
        return path
    # Without loss: the model is to see what is on the screen.
    options = {
        "tile": (TILE, TILE),
        "photometric": "rgb",
        "compression": "adobe_deflate",
        "metadata": None,
    }
    with written_whole(path) as temporary, tifffile.TiffWriter(temporary) as tiff:
        level = 0
        while True:
            resolution = tuple(1e4 / um / 2**level for um in mpp_xy)
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
