"""What stays when the dock is closed: what is known of the slides, and how it is drawn.

A viewer has one desk. The dock is a set of panels over it: a map that is left on the
canvas keeps its legend, and a dock that is opened again knows what was found.
"""

from typing import TYPE_CHECKING

from napari.layers import Layer

from napari_spt.analysis import preferences
from napari_spt.analysis.renderer import MapRenderer
from napari_spt.analysis.slide_tracker import SlideTracker
from napari_spt.analysis.state import AnalysisState
from napari_spt.parts.viewing import kept_with

if TYPE_CHECKING:
    from napari.viewer import Viewer

    from napari_spt.analysis.dock import AnalysisDock


class Desk:
    """The state of a viewer's analyses, with its renderer and its tracker."""

    def __init__(self, viewer: "Viewer") -> None:
        self.state = AnalysisState(
            view=preferences.remembered_view(),
            options=preferences.remembered_options(),
        )
        self.renderer = MapRenderer(viewer, self.state)
        self.tracker = SlideTracker(viewer, self.state, on_removed=self._forget)
        self.dock: AnalysisDock | None = None

    def open(self, dock: "AnalysisDock") -> None:
        """A dock is over it now; a viewer has one at a time."""
        if self.dock is not None and not self.dock.is_closed:
            self.dock.leave()
        self.dock = dock
        self.renderer.owner = dock
        self.state.slides_changed.emit()
        self.state.slide_chosen.emit()

    def close(self, dock: "AnalysisDock") -> None:
        """The dock goes; what was found stays."""
        if self.dock is not dock:
            return
        self.dock = None
        self.state.disconnect_all()
        self.renderer.rest()
        self.tracker.listen()

    def _forget(self, layer: Layer) -> None:
        if self.dock is not None:
            self.dock.session.forget(layer)
        else:
            self.state.forget(layer)


def desk_of(viewer: "Viewer") -> Desk:
    return kept_with(viewer, "desk", Desk)
