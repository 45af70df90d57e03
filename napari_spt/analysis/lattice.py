"""Where patches lie: between level-0 pixels, cells of a map, and napari's world."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from napari.layers import Layer


@dataclass(frozen=True)
class Lattice:
    """Where patches lie on a slide's layer.

    Attributes
    ----------
    l0_step_xy
        Level-0 pixels that a cell covers.
    l0_size_xy
        Of the canvas on which cell (0, 0) begins.
    l0_bounds_xy
        Where the layer's first pixel lies on the canvas.
    """

    l0_step_xy: tuple[float, float]
    l0_size_xy: tuple[int, int]
    l0_bounds_xy: tuple[int, int] = (0, 0)

    def divided(self, parts: int) -> "Lattice":
        """With each cell's sides divided into so many parts."""
        width, height = self.l0_step_xy
        step = (width / parts, height / parts)
        return Lattice(step, self.l0_size_xy, self.l0_bounds_xy)

    def placing(self, slide: "Layer") -> dict[str, Any]:
        """What puts a layer of one pixel per cell exactly over the slide's pixels.

        napari places the centres of pixels, of the slide's and of ours.
        """
        step = np.asarray(self.l0_step_xy[::-1], float)
        bounds = np.asarray(self.l0_bounds_xy[::-1], float)
        scale = np.asarray(slide.scale[-2:], float)
        shift = (step - 1) / 2 - bounds  # in the slide's pixels
        # The slide may have been turned or moved by hand: follow it.
        origin, moved = (
            np.asarray(slide.data_to_world(tuple(place)))[-2:]
            for place in ((0.0, 0.0), shift)
        )
        linear = np.asarray(slide.affine.linear_matrix)[-2:, -2:]
        offset = np.linalg.solve(linear, moved - origin)
        placing: dict[str, Any] = {
            "scale": tuple(scale * step),
            "translate": tuple(np.asarray(slide.translate[-2:], float) + offset),
            "rotate": np.asarray(slide.rotate)[-2:, -2:],
            "shear": np.asarray(slide.shear),
            "affine": np.asarray(slide.affine.affine_matrix),
            "units": tuple(slide.units[-2:]),
        }
        return placing

    def cell(self, slide: "Layer", world_yx: Sequence[float]) -> tuple[int, int]:
        """The (row, col) of a place in the world; maybe outside of the slide."""
        l0_x, l0_y = self.l0(slide, world_yx)
        return int(l0_y // self.l0_step_xy[1]), int(l0_x // self.l0_step_xy[0])

    def l0(self, slide: "Layer", world_yx: Sequence[float]) -> tuple[float, float]:
        """Level-0 (x, y) of a place, counted from the corner of the first pixel."""
        y, x = np.asarray(slide.world_to_data(tuple(world_yx)))[-2:] + 0.5
        return float(x) + self.l0_bounds_xy[0], float(y) + self.l0_bounds_xy[1]

    def world(self, slide: "Layer", l0_xy: Sequence[float]) -> tuple[float, float]:
        """The place (y, x) in the world of a level-0 (x, y)."""
        data = (
            l0_xy[1] - self.l0_bounds_xy[1] - 0.5,
            l0_xy[0] - self.l0_bounds_xy[0] - 0.5,
        )
        y, x = np.asarray(slide.data_to_world(data))[-2:]
        return float(y), float(x)
