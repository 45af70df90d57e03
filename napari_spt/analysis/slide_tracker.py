"""Follows the viewer's table: which slides there are, and which lies in front."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from napari.layers import Layer

from napari_spt.analysis.state import AnalysisState
from napari_spt.parts.viewing import plain_viewer
from napari_spt.slides.pixel_units import known_mpp_xy, state_mpp
from napari_spt.slides.slide_source import is_file_slide, key_of
from napari_spt.slides.slide_table import table_of

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
        self._layers = plain_viewer(viewer).layers
        self._state = state
        self._forget = on_removed
        self.table = table_of(viewer)
        self._layers.events.removed.connect(self._on_removed)
        self.table.slides_changed.connect(self._follow_slides)
        self.table.front_changed.connect(self._follow_front)
        self.listen()
        self._follow_slides()

    def listen(self) -> None:
        """Hear what the user says in the dock."""
        self._state.options_changed.connect(self._state_pixel_sizes)

    def pick(self, layer: Layer) -> None:
        """Choose a slide, and make it the active layer too: whoever adds layers, and
        napari itself, goes back to that one."""
        self.table.bring(layer)
        self._layers.selection.active = layer

    def _follow_slides(self) -> None:
        self._state.set_layers(self.table.slides)
        self._follow_front()

    def _follow_front(self) -> None:
        if self.table.front in self.table.slides:
            self._state.choose(self.table.front)

    def _on_removed(self, event: Any) -> None:
        self._forget(event.value)

    def _state_pixel_sizes(self) -> None:
        """What the user says of a slide's pixels is true of its picture too."""
        is_changed = False
        for slide in self.table.slides:
            if not is_file_slide(slide) or slide.metadata["spt"]["mpp_xy"] is not None:
                continue
            said = self._state.stated_mpp.get(key_of(slide))
            known = known_mpp_xy(slide)
            if said != (None if known is None else known[0]):
                state_mpp(slide, said)
                is_changed = True
        if is_changed:
            self.table.state_units()
