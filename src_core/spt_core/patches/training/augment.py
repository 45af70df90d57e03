"""Views of patches: what may change without the tissue being another.

Crops at mixed scales, flips, quarter turns, the stains' strengths (in optical density,
where haematoxylin and eosin add up), colour, blur. A view's parameters are drawn first,
as numbers; pixels are then changed for all views of a batch at once.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from spt_core.patches.encoder import resized
from spt_core.patches.training.augmentation_settings import Augmentation
from spt_core.slides.source import Pixels

# Rows: optical density in R, G, B of haematoxylin, eosin and residual (DAB), of unit
# length (Ruifrok and Johnston 2001).
STAINS = np.array([[0.650, 0.704, 0.286], [0.072, 0.990, 0.105], [0.268, 0.570, 0.776]])
LUMA = np.array([0.299, 0.587, 0.114])
_DARKEST = 1 / 256


@dataclass(frozen=True, eq=False)
class ViewParameters:
    """The parameters of n views; each array's first axis is the view's."""

    scale: NDArray[np.float64]
    stretch: NDArray[np.float64]
    place: NDArray[np.float64]  # (n, 2) 0 to 1, of the crop within its tile: y, x
    turns: NDArray[np.int64]  # quarter turns, and 4 more where mirrored
    stain: NDArray[np.float64]  # (n, 3, 4): optical density to optical density
    colour: NDArray[np.float64]  # (n, 3, 4): RGB to RGB, 0 to 1
    blur: NDArray[np.float64]  # standard deviation in pixels; 0: none

    def part(self, rows: slice) -> "ViewParameters":
        return ViewParameters(**{name: part[rows] for name, part in vars(self).items()})


def draw_views(rng: np.random.Generator, n: int, how: Augmentation) -> ViewParameters:
    """Draw the parameters of n views."""

    def around(amount: float, *shape: int) -> NDArray[np.float64]:
        return rng.uniform(-amount, amount, (n, *shape))

    low, high = np.log(how.scale)
    blurred = rng.random(n) < how.blur
    return ViewParameters(
        scale=np.exp(rng.uniform(low, high, n)),
        stretch=np.exp(around(how.stretch)),
        place=rng.random((n, 2)),
        turns=rng.integers(0, 8, n),
        stain=_stain_change(1 + around(how.stain, 3), around(how.stain / 4, 3)),
        colour=_colour_change(
            1 + around(how.brightness),
            1 + around(how.contrast),
            np.where(rng.random(n) < how.grey, 0.0, 1 + around(how.saturation)),
            np.deg2rad(around(how.hue)),
        ),
        blur=np.where(blurred, rng.uniform(0.1, max(how.blur_px, 0.1), n), 0.0),
    )


def make_views(
    tiles: list[Pixels], um: NDArray[np.floating], numbers: ViewParameters, size: int,
    mpp: float,
) -> Tensor:  # fmt: skip
    """Views (n, 3, size, size) uint8 of n tiles.

    Parameters
    ----------
    um : (n,)
        Micrometres per pixel of each tile.
    mpp
        Micrometres per pixel of a view at scale 1.
    """
    crops = torch.cat(
        [
            _crop(tile, size * mpp / um[i], numbers, i, size)
            for i, tile in enumerate(tiles)
        ]
    )  # (n, 3, size, size) uint8
    crops = _turned(crops, numbers.turns)
    x = crops.float().div_(255)
    x = _affine(x.add_(_DARKEST).log_().neg_(), numbers.stain)  # optical density
    x = x.neg_().exp_().sub_(_DARKEST).clamp_(0, 1)
    x = _affine(x, numbers.colour)
    _blur(x, numbers.blur)
    return x.clamp_(0, 1).mul_(255).round_().to(torch.uint8)


def middle(tile: Pixels, um: float, size: int, mpp: float) -> Tensor:
    """The plain view (1, 3, size, size) uint8 of a tile's middle, as in use."""
    plain = ViewParameters(
        scale=np.ones(1), stretch=np.ones(1), place=np.full((1, 2), 0.5),
        turns=np.zeros(1, np.int64), stain=np.zeros((1, 3, 4)),
        colour=np.zeros((1, 3, 4)), blur=np.zeros(1),
    )  # fmt: skip
    return _crop(tile, size * mpp / um, plain, 0, size)


def _crop(
    tile: Pixels, pixels: float, numbers: ViewParameters, i: int, size: int
) -> Tensor:
    """``pixels`` on each side at scale 1; at most as large as the tile."""
    height, width = tile.shape[:2]
    side = pixels * numbers.scale[i]
    # One scale for both sides: a field is never squeezed because it is not square.
    side = min(side, height / numbers.stretch[i], width * numbers.stretch[i])
    h = max(1, min(height, round(side * numbers.stretch[i])))
    w = max(1, min(width, round(side / numbers.stretch[i])))
    top = round(numbers.place[i, 0] * (height - h))
    left = round(numbers.place[i, 1] * (width - w))
    crop = torch.from_numpy(tile[top : top + h, left : left + w])
    return resized(crop[None], size).contiguous()


def _turned(x: Tensor, turns: NDArray[np.int64]) -> Tensor:
    out = torch.empty_like(x)
    for turn in range(8):
        rows = torch.from_numpy(np.flatnonzero(turns == turn))
        if len(rows):
            part = x[rows].flip(3) if turn >= 4 else x[rows]
            out[rows] = torch.rot90(part, turn % 4, (2, 3))
    return out


def _affine(x: Tensor, change: NDArray[np.float64]) -> Tensor:
    """Each view's own 3 x 4 matrix on its colours."""
    matrix = torch.from_numpy(change).float()
    flat = torch.baddbmm(matrix[:, :, 3:], matrix[:, :, :3], x.flatten(2))
    return flat.view(x.shape)


def _blur(x: Tensor, sigmas: NDArray[np.float64]) -> None:
    """Gaussian, in place, of the views that are to be blurred."""
    rows = np.flatnonzero(sigmas > 0)
    if not len(rows):
        return
    radius = int(np.ceil(2.5 * sigmas.max()))
    offsets = torch.arange(-radius, radius + 1)
    sigma = torch.from_numpy(sigmas[rows]).float().view(-1, 1)
    kernel = torch.exp(-0.5 * (offsets / sigma) ** 2)
    # Each as wide as it needs: a view does not depend on those it is made with.
    kernel = kernel * (offsets.abs() <= torch.ceil(2.5 * sigma))
    kernel = (kernel / kernel.sum(1, keepdim=True)).repeat_interleave(3, dim=0)
    part = x[torch.from_numpy(rows)]
    planes = part.flatten(0, 1)[None]  # (1, n * 3, h, w)
    edges = functional.pad(planes, [radius] * 4, mode="reflect")
    count = planes.shape[1]
    seen = functional.conv2d(edges, kernel[:, None, None, :], groups=count)
    seen = functional.conv2d(seen, kernel[:, None, :, None], groups=count)
    x[torch.from_numpy(rows)] = seen[0].view(part.shape)


def _stain_change(
    strength: NDArray[np.float64], shift: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Optical density unmixed into stains, each changed, mixed again: (n, 3, 4)."""
    # od = mix @ stains, so od' = mix @ (strength * (mix^-1 @ od) + shift)
    mix = STAINS.T / np.linalg.norm(STAINS, axis=1)
    linear = mix @ (strength[:, :, None] * np.linalg.inv(mix))
    return np.concatenate([linear, (shift @ mix.T)[:, :, None]], axis=2)


def _colour_change(
    brightness: NDArray[np.float64],
    contrast: NDArray[np.float64],
    saturation: NDArray[np.float64],
    hue: NDArray[np.float64],
) -> NDArray[np.float64]:
    """All four as one affine change of RGB, (n, 3, 4)."""
    n = len(hue)
    eye = np.eye(3)
    to_grey = np.tile(LUMA, (3, 1))
    saturate = (
        saturation[:, None, None] * eye + (1 - saturation)[:, None, None] * to_grey
    )
    # A turn about the grey axis.
    axis = np.full(3, 1 / np.sqrt(3))
    cross = np.cross(np.eye(3), axis)
    cos, sin = np.cos(hue)[:, None, None], np.sin(hue)[:, None, None]
    turn = cos * eye + sin * cross + (1 - cos) * np.outer(axis, axis)
    gain = (brightness * contrast)[:, None, None]
    # Contrast is about a middle grey, so that a batch's views stay independent.
    offset = (0.5 * (1 - contrast))[:, None, None] * np.ones((n, 3, 1))
    return np.concatenate([gain * (turn @ saturate), offset], axis=2)
