"""From a study to the other docks: its model, one of its slides, all of its slides."""

from pathlib import Path
from typing import TYPE_CHECKING

from qtpy.QtCore import QTimer

from napari_spt import PLUGIN
from napari_spt.analysis.desk import desk_of
from napari_spt.slides.open_command import Opening, open_slides
from napari_spt.slides.slide_source import slide_source
from napari_spt.slides.slide_table import table_of

if TYPE_CHECKING:
    from napari.viewer import Viewer

    from napari_spt.analysis.dock import AnalysisDock
    from napari_spt.slide_map.dock import SlideMapDock
    from napari_spt.slide_map.source_panel import Sources

# A slide that was opened lies in front after so long, or cannot be opened.
PATIENCE_MS = 3000


def use_model(viewer: "Viewer", model: Path) -> "AnalysisDock":
    """Open the analysis dock, or bring it forward, with a model chosen."""
    dock = desk_of(viewer).dock
    if dock is None or dock.is_closed:
        _, dock = viewer.window.add_plugin_dock_widget(
            PLUGIN, "Slide analysis", tabify=True
        )
    else:
        dock.come_forward()
    dock.model.choose(model)
    return dock


def analyse_slide(viewer: "Viewer", slide: Path, model: Path | None) -> Opening:
    """Open a slide, and let the model show where it looks."""
    table = table_of(viewer)
    waits = [True]

    def look() -> None:
        source = slide_source(table.front)
        path = None if source is None else source.path
        if waits[0] and path is not None and path.resolve() == slide.resolve():
            waits[0] = False
            QTimer.singleShot(0, go_on)

    def go_on() -> None:
        give_up()
        if model is not None:
            use_model(viewer, model).session.begin()

    def give_up() -> None:
        waits[0] = False
        table.front_changed.disconnect(look, missing_ok=True)

    table.front_changed.connect(look)
    opening = open_slides(viewer, [slide], offers=False)
    # napari adds the layer while it handles events: this may come before the slide.
    opening.ended.connect(look)
    opening.ended.connect(lambda: QTimer.singleShot(PATIENCE_MS, give_up))
    return opening


def map_slides(viewer: "Viewer", sources: "Sources") -> "SlideMapDock":
    """Open the map of slides with some sources."""
    from napari_spt.slide_map.dock import maps_of

    found = next(iter(maps_of(viewer)), None)
    if found is None:
        _, found = viewer.window.add_plugin_dock_widget(
            PLUGIN, "Map of slides", tabify=True
        )
    else:
        found.come_forward()
    found.use(sources)
    return found
