"""Slides in channels: stimulated Raman and fluorescence, made without torch."""

import numpy as np
import tifffile
import zarr

MPP = 0.5
SIDE = 1000
DYES = ("DAPI", "FITC", "TRITC", "Cy5")


def glowing(count, seed=0, most=20000):
    """Textured tissue in a disc on noise, 16 bit, (c, y, x)."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:SIDE, :SIDE] / SIDE - 0.5
    inside = x * x + y * y < 0.4**2
    coarse = rng.uniform(0.3, 1, (count, SIDE // 8 + 1, SIDE // 8 + 1))
    texture = coarse.repeat(8, axis=1).repeat(8, axis=2)[:, :SIDE, :SIDE]
    noise = rng.uniform(0, 300, texture.shape)
    return (inside * texture * most + noise).astype(np.uint16)


def raman_slide(path, seed=0, names=None, most=20000):
    """Two channels, CH2 and CH3, which the file names or does not."""
    cells = glowing(2, seed, most)
    about = {"axes": "CYX", "PhysicalSizeX": MPP, "PhysicalSizeY": MPP}
    if names:
        about["Channel"] = {"Name": list(names)}
    tifffile.imwrite(path, cells, metadata=about, ome=True, tile=(256, 256))
    return cells


def dye_slide(path, seed=0):
    """An OME-Zarr of four named channels."""
    dyes = glowing(4, seed)
    group = zarr.open_group(str(path), mode="w", zarr_format=2)
    array = group.create_array(
        "0", shape=dyes.shape, dtype="uint16", chunks=(1, 256, 256)
    )
    array[:] = dyes
    space = {"type": "space", "unit": "micrometer"}
    axes = [{"name": "c", "type": "channel"}]
    axes += [{"name": "y", **space}, {"name": "x", **space}]
    scale = {"type": "scale", "scale": [1, MPP, MPP]}
    level = {"path": "0", "coordinateTransformations": [scale]}
    group.attrs["multiscales"] = [{"version": "0.4", "axes": axes, "datasets": [level]}]
    group.attrs["omero"] = {"channels": [{"label": name} for name in DYES]}
    return dyes
