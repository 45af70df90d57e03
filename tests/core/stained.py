"""Tissue of two stains whose vectors and amounts are known."""

import numpy as np
from scipy import ndimage

from tests.made_slides import write_tiff

# Optical density of hematoxylin and eosin (columns) in two laboratories.
BLUE = np.array([[0.68, 0.24], [0.66, 0.86], [0.32, 0.45]])
PINK = np.array([[0.52, 0.10], [0.76, 0.90], [0.39, 0.42]])


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=0)


def amounts(height, width, seed=0):
    """How much there is of each stain, (h, w, 2): nuclei in pink, and what is mixed."""
    rng = np.random.default_rng(seed)

    def field(sigma):
        values = ndimage.gaussian_filter(rng.normal(size=(height, width)), sigma)
        return values / values.std()

    nuclei = np.clip((field(4) - 0.6) * 3, 0, 1)
    h = nuclei * np.clip(1.3 + 0.25 * field(3), 0.4, 2)
    e = (1 - nuclei) * np.clip(0.6 + 0.2 * field(6), 0.2, 1.2)
    # A third of the picture is a mixture.
    e += np.clip(field(30) - 0.5, 0, 0.4) * nuclei
    return np.stack([h, e], axis=-1)


def rendered(mixed, vectors, strengths=(1.0, 1.0)):
    """Pixels of the amounts ``mixed`` in given stains, (h, w, 3) uint8."""
    od = (mixed * strengths) @ unit(vectors).T
    return np.clip(240 * np.exp(-od) - 1, 0, 255).round().astype(np.uint8)


def on_glass(mixed, margin=150):
    """No stain outside of an ellipse."""
    height, width = mixed.shape[:2]
    y, x = np.mgrid[:height, :width]
    far = ((x - width / 2) / (width / 2 - margin)) ** 2
    far = far + ((y - height / 2) / (height / 2 - margin)) ** 2
    return mixed * (far < 1)[..., None]


def write_slide(path, rgb):
    noise = np.random.default_rng(1).normal(0, 0.7, rgb.shape[:2])[..., None]
    rgb = np.clip(rgb + noise, 0, 255).round().astype(np.uint8)
    write_tiff(path, rgb, levels=2, mpp_xy=(0.5, 0.5), compression="zlib")
    return path
