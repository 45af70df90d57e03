"""Follows the viewer: which layers are slides, and which of them is looked at."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from napari.layers import Layer

from napari_spt.analysis.state import AnalysisState
from napari_spt.parts.viewing import scale_bar
from napari_spt.slides.slide_source import slide_layers

if TYPE_CHECKING:
    from napari.viewer import Viewer


class SlideTracker:
    """Tells the state of the viewer's slides; ``on_removed`` gets layers that go."""

    def __init__(
        self,
        viewer: "Viewer",
        state: AnalysisState,
        *,
        on_removed: Callable[[Layer], None],
    ) -> None:
        self._viewer = viewer
        self._state = state
        self._forget = on_removed
        self._has_scale_bar = False
        layers = viewer.layers
        layers.events.inserted.connect(self._follow_layers)
        layers.events.removed.connect(self._on_removed)
        layers.selection.events.active.connect(self._follow_active)
        state.slide_chosen.connect(self._show_scale_bar)
        self._follow_layers()

    def pick(self, layer: Layer) -> None:
        """Choose a slide, and make it the active layer too: whoever adds layers, and
        napari itself, goes back to that one."""
        self._viewer.layers.selection.active = layer
        self._state.choose(layer)

    def close(self) -> None:
        layers = self._viewer.layers
        layers.events.inserted.disconnect(self._follow_layers)
        layers.events.removed.disconnect(self._on_removed)
        layers.selection.events.active.disconnect(self._follow_active)

    def _follow_layers(self, _event: object = None) -> None:
        self._state.set_layers(tuple(slide_layers(self._viewer)))
        self._follow_active()

    def _follow_active(self, _event: object = None) -> None:
        active = self._viewer.layers.selection.active
        # napari hands plugins a proxy of the active layer; the state has the layer.
        for layer in self._state.layers:
            if active is not None and layer.unique_id == active.unique_id:
                self._state.choose(layer)

    def _on_removed(self, event: Any) -> None:
        self._forget(event.value)
        self._follow_layers()

    def _show_scale_bar(self) -> None:
        """Turn napari's scale bar on for the first slide; then it is the user's."""
        source = self._state.source
        if source is not None and source.mpp_xy is not None:
            if not self._has_scale_bar:
                scale_bar(self._viewer).visible = True
            self._has_scale_bar = True
