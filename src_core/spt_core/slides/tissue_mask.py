"""Where on a slide tissue lies: the result alone, which a window loads at its start."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Tissue:
    """A mask of a slide's tissue, at low resolution.

    Attributes
    ----------
    mask : (h, w) bool
    l0_scale_xy
        Level-0 pixels per pixel of the mask, in x and y.
    """

    mask: Mask
    l0_scale_xy: tuple[float, float]
    notes: tuple[str, ...] = field(default=())

    @property
    def share(self) -> float:
        """The share of the slide that is tissue."""
        return float(self.mask.mean())

    def shares(
        self, l0_xy: NDArray, l0_size_xy: tuple[int, int]
    ) -> NDArray[np.float32]:
        """The share of tissue in each rectangle with its top left corner at ``l0_xy``.

        Areas are exact: a pixel of the mask that a rectangle cuts counts in part.
        """
        from scipy import ndimage

        height, width = self.mask.shape
        total = np.zeros((height + 1, width + 1))
        inner = total[1:, 1:]
        np.cumsum(self.mask, axis=0, out=inner)
        np.cumsum(inner, axis=1, out=inner)
        scale = np.asarray(self.l0_scale_xy)
        start = np.asarray(l0_xy, float) / scale
        stop = (np.asarray(l0_xy, float) + l0_size_xy) / scale

        def up_to(x: NDArray, y: NDArray) -> NDArray:
            return ndimage.map_coordinates(
                total, [y, x], order=1, mode="nearest", prefilter=False
            )

        area = (
            up_to(stop[:, 0], stop[:, 1])
            - up_to(start[:, 0], stop[:, 1])
            - up_to(stop[:, 0], start[:, 1])
            + up_to(start[:, 0], start[:, 1])
        )
        shares = area / np.prod(np.asarray(l0_size_xy) / scale)
        return np.clip(shares, 0, 1).astype(np.float32)
