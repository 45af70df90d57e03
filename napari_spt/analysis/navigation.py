"""Between the camera and a slide: what is on the screen, and going to a place."""

from typing import TYPE_CHECKING

import numpy as np
from qtpy.QtWidgets import QWidget

from napari_spt.analysis.places import Place
from napari_spt.analysis.slide_analysis import Analysis
from napari_spt.parts.viewing import Flight, camera, canvas_size

if TYPE_CHECKING:
    from napari.viewer import Viewer


class Navigator:
    """Moves the camera of a viewer over slides; ``owner`` is a widget of its window."""

    def __init__(self, viewer: "Viewer", owner: QWidget) -> None:
        self.flight = Flight(viewer, owner)
        self._viewer = viewer
        self._owner = owner

    def view_centre(self, analysis: Analysis) -> tuple[float, float] | None:
        """Level-0 (x, y) of what is on the screen, where that is a part only."""
        slide, layer = analysis.slide, analysis.layer
        eye = camera(self._viewer)
        width, height = canvas_size(self._owner)
        scale = np.abs(np.asarray(layer.scale[-2:], float))
        seen = (height / eye.zoom / scale[0]) * (width / eye.zoom / scale[1])
        if seen > 0.5 * slide.l0_size_xy[0] * slide.l0_size_xy[1]:
            return None
        data = np.asarray(layer.world_to_data(tuple(eye.center[-2:])))[-2:]
        return (
            float(data[1]) + slide.l0_bounds_xy[0],
            float(data[0]) + slide.l0_bounds_xy[1],
        )

    def fly_to(self, analysis: Analysis, place: Place) -> None:
        """Show one region, with what lies around it."""
        lattice = analysis.lattice
        if lattice is None:
            return
        (x, y), (width, height) = place.l0_xy, lattice.l0_step_xy
        top = lattice.world(analysis.layer, (x, y))
        bottom = lattice.world(analysis.layer, (x + width, y + height))
        size = max(abs(bottom[0] - top[0]), abs(bottom[1] - top[1]))
        middle = ((top[0] + bottom[0]) / 2, (top[1] + bottom[1]) / 2)
        self.flight.to(middle, min(canvas_size(self._owner)) / (3 * size))

    def close(self) -> None:
        self.flight.animation.stop()
