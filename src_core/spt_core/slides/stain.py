"""A slide's two stains, and their conversion to those of a reference.

By Macenko et al., "A method for normalizing histology slides for quantitative
analysis", ISBI 2009. In optical density, ``od = -ln((rgb + 1) / 240)``, a pixel is a
sum of its stains: ``od = vectors @ strengths``. All pixels of two stains lie in one
plane, between the two stains' vectors, so the outermost pixels of the plane show the
vectors. Nothing here is random: the same slide and grid give the same numbers.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spt_core.slides.grid import PatchGrid
from spt_core.slides.slide import Slide
from spt_core.slides.source import Pixels, UnreadableRegionError
from spt_core.slides.tissue import Tissue

NO_STAIN, MACENKO = "none", "macenko"
STAINS = (NO_STAIN, MACENKO)

Floats = NDArray[np.float64]

# The intensity of unstained light, and the reference stains: columns are hematoxylin
# and eosin, rows red, green and blue; then the 99th percentile of each one's strength.
LIGHT = 240.0
REFERENCE = np.array([[0.5626, 0.2159], [0.7201, 0.8012], [0.4062, 0.5581]])
REFERENCE_STRENGTHS = np.array([1.9705, 1.0308])

# The paper's: fainter pixels (mean optical density) say little about a stain, and this
# percentage of the angles, on either side, is left to noise.
_BETA = 0.15
_ALPHA = 1.0
# How many places of a slide are looked at, how many means a side each has at most, and
# how many pixels a side are read for it at most.
_PLACES = 96
_SIDE = 64
_READ_SIDE = 256
# Side of the block that is averaged, in pixels of a patch: JPEG keeps one colour for
# these, and single pixels show stains that are not there.
_BLOCK = 2
_FEWEST_PIXELS = 500
# Where most tissue is this dark, the slide was not scanned in transmitted light.
_DARK_BRIGHTEST, _DARK_DARKEST = 80, 8
# Degrees: stains nearer to each other are one stain; farther from the reference they
# are not hematoxylin and eosin.
_NEAREST = 17.0
_FARTHEST = 40.0
# Noise turns faint pixels by many degrees: those of this optical density (its length)
# have to show both stains too. Not the darker half of the pixels: where tumour is most
# of the tissue, these are nuclei alone.
_BOLD = 0.35
# Diaminobenzidine, the brown of immunostains (Ruifrok and Johnston 2001).
BROWN = np.array([0.268, 0.570, 0.776])
# Two stains span a plane: the spread along its narrow side is at least this many times
# the spread out of it.
_FLATNESS = 1.5


class NoStainsError(ValueError):
    """Pixels do not show two stains; the message says why."""


@dataclass(frozen=True, eq=False)
class Stains:
    """Two stains as one slide shows them.

    Attributes
    ----------
    vectors : (3, 2)
        Optical density (red, green, blue) of hematoxylin and of eosin, of length 1.
    strengths : (2,)
        The 99th percentile of how much of each there is.
    """

    vectors: Floats
    strengths: Floats

    @property
    def matrix(self) -> Floats:
        """(3, 3): optical density on this slide to that in the reference's stains."""
        change = REFERENCE_STRENGTHS / self.strengths
        return (REFERENCE * change) @ np.linalg.pinv(self.vectors)

    def normalised(self, rgb: NDArray) -> Floats:
        """Pixels (..., 3) of 0 to 255 in the reference's stains; not whole numbers."""
        od = optical_density(rgb) @ self.matrix.T
        # Brighter than all light is white, however much; exp would overflow.
        return np.clip(LIGHT * np.exp(-np.maximum(od, -10)) - 1, 0, 255)


def optical_density(rgb: NDArray) -> Floats:
    return -np.log((np.asarray(rgb, np.float64) + 1) / LIGHT)


def slide_stains(slide: Slide, tissue: Tissue, grid: PatchGrid) -> Stains:
    """Estimate the stains of a slide from its tissue, within a second.

    Raises
    ------
    NoStainsError
        Where the slide does not show two stains.
    """
    return estimate_stains(sample_tissue(slide, tissue, grid))


def sample_tissue(slide: Slide, tissue: Tissue, grid: PatchGrid) -> Pixels:
    """Means of few pixels each, (n, 3), of tissue from patches all over a slide."""
    places = np.linspace(0, len(grid) - 1, min(_PLACES, len(grid))).round().astype(int)
    parts = [_tissue_at(slide, tissue, grid, g_rc) for g_rc in grid.g_rc[places]]
    return np.concatenate([np.empty((0, 3), np.uint8), *parts])


def _tissue_at(
    slide: Slide, tissue: Tissue, grid: PatchGrid, g_rc: NDArray[np.int64]
) -> Pixels:
    """The tissue's pixels (n, 3) in the middle of a patch."""
    level = slide.levels[grid.level]
    lv_size = np.array(grid.lv_size_xy)
    block = _BLOCK * max(1, int(lv_size.min() / grid.patch_size + 0.1))
    most = max(1, min(_SIDE, _READ_SIDE // block))
    count = np.clip(lv_size // block, 1, most).astype(int)  # of blocks, (x, y)
    lv_xy = np.floor((g_rc[::-1] + 0.5) * lv_size - count * block / 2).astype(int)
    lv_xy = np.clip(lv_xy, 0, [level.width, level.height] - count * block)
    if (lv_xy < 0).any():
        return np.empty((0, 3), np.uint8)
    try:
        rgb = slide.read(grid.level, *lv_xy.tolist(), *(count * block).tolist())
    except UnreadableRegionError:
        return np.empty((0, 3), np.uint8)
    across, down = count.tolist()
    means = rgb.reshape(down, block, across, block, 3).mean(axis=(1, 3))
    inside = _mask_at(tissue, grid, lv_xy, block, (across, down))
    return means.round().astype(np.uint8)[inside]


def _mask_at(
    tissue: Tissue,
    grid: PatchGrid,
    lv_xy: NDArray[np.int64],
    block: int,
    count_xy: tuple[int, int],
) -> NDArray[np.bool_]:
    """Which blocks are tissue, (down, across): the mask knows glass and ink."""
    height, width = tissue.mask.shape
    cols, rows = (
        (lv_xy[axis] + (np.arange(count_xy[axis]) + 0.5) * block)
        * grid.lv_scale_xy[axis]
        / tissue.l0_scale_xy[axis]
        for axis in (0, 1)
    )
    rows = np.clip(rows.astype(int), 0, height - 1)
    cols = np.clip(cols.astype(int), 0, width - 1)
    return tissue.mask[np.ix_(rows, cols)]


def estimate_stains(rgb: Pixels) -> Stains:
    """Estimate the two stains that pixels (n, 3) of tissue show.

    Raises
    ------
    NoStainsError
        Where they do not show two, such as in grey or fluorescent images.
    """
    if len(rgb) and (
        np.percentile(rgb.max(axis=1), 75) < _DARK_BRIGHTEST
        or np.median(rgb.min(axis=1)) < _DARK_DARKEST
    ):
        raise NoStainsError("it is too dark to be stained tissue on a bright ground")
    od = optical_density(rgb)
    od = od[od.mean(axis=1) >= _BETA]
    if len(od) < _FEWEST_PIXELS:
        raise NoStainsError("too little of its tissue is stained")
    # The plane through no stain at all that is nearest to all pixels.
    spread, axes = np.linalg.eigh(od.T @ od / len(od))  # the largest comes last
    first, second = axes[:, 2] * np.sign(axes[:, 2].sum() or 1), axes[:, 1]
    angles = np.arctan2(od @ second, od @ first)
    ends = np.percentile(angles, (_ALPHA, 100 - _ALPHA))
    vectors = np.outer(first, np.cos(ends)) + np.outer(second, np.sin(ends))
    if vectors[0, 0] < vectors[0, 1]:  # hematoxylin absorbs more red
        vectors = vectors[:, ::-1]
    bold = angles[np.linalg.norm(od, axis=1) >= _BOLD]
    if len(bold) < _FEWEST_PIXELS:
        raise NoStainsError("too little of its tissue is stained")
    apart = min(np.ptp(ends), np.ptp(np.percentile(bold, (_ALPHA, 100 - _ALPHA))))
    if np.degrees(apart) < _NEAREST or spread[1] < _FLATNESS * spread[0]:
        raise NoStainsError("it shows one stain, or none, rather than two")
    unit = REFERENCE / np.linalg.norm(REFERENCE, axis=0)
    if (vectors * unit).sum(axis=0).min() < np.cos(np.radians(_FARTHEST)):
        raise NoStainsError("its colours are not those of hematoxylin and eosin")
    if vectors[:, 1] @ BROWN / np.linalg.norm(BROWN) > vectors[:, 1] @ unit[:, 1]:
        raise NoStainsError("its second stain is brown (DAB), not eosin")
    strengths = np.percentile(od @ np.linalg.pinv(vectors).T, 99, axis=0)
    if strengths.min() < _BETA:
        raise NoStainsError("it shows one stain, or none, rather than two")
    return Stains(np.ascontiguousarray(vectors), strengths)
