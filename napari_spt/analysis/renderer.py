"""Draws the state on the canvas: maps as layers, a legend, and the status bar."""

from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakSet

import numpy as np
from napari.layers import Layer
from qtpy.compat import isalive
from qtpy.QtCore import QTimer
from qtpy.QtWidgets import QWidget

from napari_spt.analysis import layers as _layers
from napari_spt.analysis.legends import Legend
from napari_spt.analysis.overlay import SlideOverlay
from napari_spt.analysis.slide_analysis import Analysis, Change
from napari_spt.analysis.state import AnalysisState, ComparedPatch
from napari_spt.analysis.status import restore_status, show_hover
from napari_spt.parts.viewing import camera, main_window, on_canvas, world_box
from napari_spt.slides.slide_table import table_of
from spt_core.engine.protocol import FailureKind

if TYPE_CHECKING:
    from napari.viewer import Viewer
    from numpy.typing import NDArray

# Keys repeat every 25 to 50 ms.
KEY_REPEAT_MS = 90
# Looked at on each slide and side, where slides lie side by side.
PLACES = 12
WITHOUT_TISSUE = (FailureKind.NO_TISSUE, FailureKind.TOO_SMALL)


class MapRenderer:
    """Listens to the state; the legend is that of the chosen slide."""

    def __init__(self, viewer: "Viewer", state: AnalysisState) -> None:
        self.viewer = viewer
        self.state = state
        self.owner: QWidget | None = None  # a widget of the window, while there is one
        self.overlays: dict[str, SlideOverlay] = {}
        self._legend: Legend | None = None
        self._hovered: list[Layer] = []
        self._watched: WeakSet[Layer] = WeakSet()
        self._hidden: list[Layer] = []
        self._showing = QTimer()
        self._showing.setSingleShot(True)
        self._showing.timeout.connect(self.show_maps)
        self._listen()
        viewer.layers.events.removed.connect(self._follow_layers)
        camera(viewer).events.zoom.connect(self._follow_zoom)
        table_of(viewer).layout_changed.connect(self.follow_view)

    def _listen(self) -> None:
        state = self.state
        state.slide_chosen.connect(self._on_slide)
        state.view_changed.connect(self.follow_view)
        state.analysis_changed.connect(self._on_analysis)
        state.likeness_changed.connect(self._on_likeness)

    @property
    def current(self) -> SlideOverlay | None:
        """What is drawn over the chosen slide."""
        analysis = self.state.analysis
        return None if analysis is None else self.overlay(analysis)

    def overlay(self, analysis: Analysis) -> SlideOverlay:
        overlay = self.overlays.get(analysis.key)
        if overlay is None:
            overlay = self.overlays[analysis.key] = SlideOverlay(self.viewer, analysis)
        return overlay

    @property
    def legend(self) -> Legend | None:
        if self._legend is not None and not isalive(self._legend):
            self._legend = None
        if self._legend is None and self.owner is not None:
            window = main_window(self.owner)
            if window is not None and window.centralWidget() is not None:
                self._legend = Legend(window.centralWidget())
                self._legend.tissue = self._tissue_on_canvas
        return self._legend

    @property
    def in_sight(self) -> list[SlideOverlay]:
        """What is drawn over the chosen slide, or over all that lie side by side."""
        if table_of(self.viewer).shows_all:
            return list(self.overlays.values())
        return [] if self.current is None else [self.current]

    def _tissue_on_canvas(self) -> "NDArray[np.float64] | None":
        """Where not to lie: on the slide's tissue, or on slides side by side."""
        overlay, legend = self.current, self._legend
        canvas = None if legend is None else legend.parentWidget()
        if overlay is None or canvas is None:
            return None
        size, table = (canvas.width(), canvas.height()), table_of(self.viewer)
        if not table.is_side_by_side:
            return overlay.tissue_on_canvas(size)
        boxes = np.array([world_box([slide]) for slide in table.slides])
        # As many places on each slide, however small: none is to be covered.
        parts = (np.indices((PLACES, PLACES)).reshape(2, -1).T + 0.5) / PLACES
        world = boxes[:, :1] + parts * (boxes[:, 1:] - boxes[:, :1])
        return on_canvas(self.viewer, world.reshape(-1, 2), size)

    # Changes of the state

    def _on_slide(self) -> None:
        overlay = self.current
        if overlay is not None:
            overlay.draw_attention(self.state.view)
            overlay.draw_classes(self.state.view)
            overlay.draw_tissue_kinds()
            overlay.outline_classes()
            overlay.follow_zoom(self.state.view)
            self._watch(overlay)
        self.draw_legend()

    def follow_view(self) -> None:
        """What a control of the view changes; all else stays as it was drawn."""
        for overlay in self.in_sight:
            overlay.draw_attention(self.state.view)
            overlay.follow_class_control(self.state.view)
            overlay.outline_classes()
            overlay.follow_zoom(self.state.view)
            self._watch(overlay)
        self.draw_legend()

    def _on_analysis(self, analysis: Analysis, change: Change) -> None:
        view = self.state.view
        match change:
            case Change.BEGUN:
                self._begin(analysis)
            case Change.PREDICTION:
                self.overlay(analysis).draw_attention(view)
                # A model that declines to name a class maps none any more.
                if not analysis.names_class:
                    self.overlay(analysis).draw_classes(view)
            case Change.CLASS_MAP:
                self.overlay(analysis).draw_classes(view)
            case Change.TISSUE_MAP:
                self.overlay(analysis).draw_tissue_kinds()
            case Change.ENDED:
                failure = analysis.failure
                if failure is not None and failure.kind in WITHOUT_TISSUE:
                    self.overlay(analysis).draw_tissue_mask()
            case Change.FORGOTTEN:
                self._forget(analysis)
                return
            case _:
                return
        overlay = self.overlay(analysis)
        overlay.outline_classes()
        self._watch(overlay)
        self.draw_legend()

    def _begin(self, analysis: Analysis) -> None:
        before = self.overlays.pop(analysis.key, None)
        if before is not None and before.analysis.asks_the_same(analysis):
            # What was drawn stays until something newer comes.
            before.analysis = analysis
            self.overlays[analysis.key] = before
        else:
            # What is there may be of another model, or of a dock that was closed.
            self.overlay(analysis).layers.remove(*_layers.NAMES)
            restore_status(analysis.layer)

    def _forget(self, analysis: Analysis) -> None:
        overlay = self.overlays.pop(analysis.key, None)
        self.draw_legend()
        if overlay is not None:
            # Not now: whoever removes several layers at once counts on them.
            QTimer.singleShot(0, partial(overlay.layers.remove, *_layers.NAMES))

    def _on_likeness(
        self, before: ComparedPatch | None, now: ComparedPatch | None
    ) -> None:
        if now is not None:
            for analysis in self.state.analyses.values():
                overlay = self.overlay(analysis)
                overlay.draw_likeness(now)
                self._watch(overlay)
            if before is None:
                self._follow_layers()
            return
        for overlay in self.overlays.values():
            if overlay.layers.find(_layers.LIKENESS) is not None:
                overlay.end_likeness()
                overlay.draw_attention(self.state.view)
                overlay.follow_class_control(self.state.view)
                overlay.outline_classes()
        self.draw_legend()

    # Changes in the viewer

    def _watch(self, overlay: SlideOverlay) -> None:
        """Follow layers that are shown or hidden by hand, and what is hovered over."""
        for layer in overlay.shown:
            if layer not in self._watched:
                self._watched.add(layer)
                layer.events.visible.connect(self._follow_layers)
        if overlay.hover is None:
            return
        for layer in (overlay.analysis.layer, *overlay.shown):
            # Again each time: it may still be that of an analysis before this one.
            show_hover(layer, lambda: overlay.hover)
            if layer not in self._hovered:
                self._hovered.append(layer)

    def _follow_layers(self, _event: object = None) -> None:
        """Layers were shown, hidden or removed by hand: so are outlines and legend."""
        if self._hidden:
            return
        for overlay in self.in_sight:
            overlay.outline_classes()
        self.draw_legend()

    def _follow_zoom(self, _event: object = None) -> None:
        for overlay in self.in_sight:
            overlay.follow_zoom(self.state.view)

    def draw_legend(self) -> None:
        if self._hidden or (self._legend is None and self.current is None):
            return
        legend, overlay = self.legend, self.current
        if legend is not None:
            parts = [] if overlay is None else overlay.legend_parts(self.state.view)
            legend.show_parts(parts)

    def move_legend(self) -> None:
        """The camera has come to rest: let the legend lie beside the tissue."""
        if self._legend is not None:
            self._legend.make_way()

    def hide_legend(self) -> None:
        if self._legend is not None:
            self._legend.hide()

    # The slide alone, and regions

    def hide_maps(self) -> None:
        """Show the slide alone."""
        self._showing.stop()
        shown = [layer for overlay in self.in_sight for layer in overlay.shown]
        visible = [layer for layer in shown if layer.visible]
        # What is hidden already is to come back too.
        self._hidden += visible
        self.hide_legend()
        for layer in visible:
            layer.visible = False

    def show_maps_soon(self) -> None:
        """Show what was hidden, unless it is hidden again within a moment.

        A key that is held repeats: some systems send that as releases and presses.
        """
        self._showing.start(KEY_REPEAT_MS)

    def show_maps(self) -> None:
        """Show what was hidden."""
        self._showing.stop()
        hidden, self._hidden = self._hidden, []
        for layer in hidden:
            layer.visible = True
        self.follow_view()

    def rest(self) -> None:
        """The dock is closed: maps that are left keep their legend, and no more."""
        if self._hidden:
            self.show_maps()
        self.owner = None
        for layer in self._hovered:
            restore_status(layer)
        self._hovered.clear()
        self._listen()
