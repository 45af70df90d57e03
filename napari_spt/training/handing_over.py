"""From a study to the other docks: its model, one of its slides, all of its slides."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from qtpy.QtWidgets import QDockWidget, QWidget

from napari_spt import PLUGIN
from napari_spt.analysis.desk import desk_of
from napari_spt.slides.open_command import Opening, open_slides

if TYPE_CHECKING:
    from napari.viewer import Viewer

    from napari_spt.analysis.dock import AnalysisDock
    from napari_spt.slide_map.dock import SlideMapDock
    from napari_spt.slide_map.source_panel import Sources


def use_model(viewer: "Viewer", model: Path) -> "AnalysisDock":
    """Open the analysis dock, or bring it forward, with a model chosen."""
    dock = desk_of(viewer).dock
    if dock is None or dock.is_closed:
        _, dock = viewer.window.add_plugin_dock_widget(PLUGIN, "Slide analysis")
    else:
        dock.come_forward()
    dock.model.choose(model)
    return dock


def analyse_slide(viewer: "Viewer", slide: Path, model: Path | None) -> Opening:
    """Open a slide, and let the model show where it looks."""
    opening = open_slides(viewer, [slide], offers=False)

    def opened() -> None:
        front = desk_of(viewer).tracker.table.front
        is_there = front is not None and front.metadata["spt"].get("path")
        if model is not None and is_there and Path(is_there) == slide:
            dock = use_model(viewer, model)
            dock.session.begin()

    opening.ended.connect(opened)
    return opening


def map_slides(viewer: "Viewer", sources: "Sources") -> "SlideMapDock":
    """Open the map of slides with some sources."""
    from napari_spt.slide_map.dock import SlideMapDock

    found = _open_dock(viewer, lambda one: isinstance(one, SlideMapDock))
    if found is None:
        _, found = viewer.window.add_plugin_dock_widget(PLUGIN, "Map of slides")
    found.use(sources)
    return found


def _open_dock(
    viewer: "Viewer", is_wanted: Callable[[QWidget], bool]
) -> QWidget | None:
    window = viewer.window._qt_window
    for dock in window.findChildren(QDockWidget):
        for one in dock.findChildren(QWidget):
            if is_wanted(one) and not one.is_closed:
                dock.show()
                dock.raise_()
                return one
    return None
