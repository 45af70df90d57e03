"""A layer to draw parts of a slide on."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from napari.layers import Shapes
from numpy.typing import NDArray

from napari_spt.analysis.layers import add_above
from napari_spt.analysis.slide_analysis import Analysis
from napari_spt.slides.groups import called

if TYPE_CHECKING:
    from napari.viewer import Viewer

NAME = "What if not here?"


class Drawing:
    """Polygons over one slide, there until it is closed or deleted by hand."""

    def __init__(
        self,
        viewer: "Viewer",
        analysis: Analysis,
        *,
        on_drawn: Callable[[], None],
        on_removed: Callable[[], None],
    ) -> None:
        self._viewer = viewer
        self._analysis = analysis
        self._drawn, self._removed = on_drawn, on_removed
        slide, lattice = analysis.layer, analysis.lattice
        patch = 20 if lattice is None else lattice.l0_step_xy[0]
        self.layer = Shapes(
            ndim=2,
            name=called(NAME, slide),
            units=tuple(slide.units[-2:]),
            edge_color="#111111",
            edge_width=float(patch * slide.scale[-1] / 20),
            face_color=[1.0, 1.0, 1.0, 0.5],
            metadata={"spt": {"map": "without", "of": analysis.key, "called": NAME}},
        )
        add_above(viewer, self.layer, slide)
        viewer.layers.selection.active = self.layer
        self.layer.mode = "add_polygon_lasso"
        self.layer.events.data.connect(self._on_data)
        viewer.layers.events.removed.connect(self._on_removed)

    @property
    def l0_polygons(self) -> tuple[NDArray[np.float64], ...]:
        """What is drawn, each (n, 2) of level-0 (x, y)."""
        lattice, slide = self._analysis.lattice, self._analysis.layer
        if lattice is None:
            return ()
        return tuple(
            np.array(
                [lattice.l0(slide, self.layer.data_to_world(tuple(p))) for p in one]
            )
            for one in self.layer.data
            if len(one) >= 3
        )

    def close(self) -> None:
        self.layer.events.data.disconnect(self._on_data)
        self._viewer.layers.events.removed.disconnect(self._on_removed)
        if self.layer in self._viewer.layers:
            self._viewer.layers.remove(self.layer)

    def _on_data(self, event: Any) -> None:
        action = str(getattr(event, "action", "")).rpartition(".")[2].lower()
        if action in ("added", "removed", "changed"):
            self._drawn()

    def _on_removed(self, event: Any) -> None:
        """Deleted by hand: the question is over."""
        if event.value is self.layer:
            self._removed()
