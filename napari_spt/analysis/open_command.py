"""The layer menu's "Analyse this slide"."""

from typing import TYPE_CHECKING

from napari_spt import PLUGIN
from napari_spt.analysis.desk import desk_of
from napari_spt.parts.notices import show_error
from napari_spt.slides.slide_source import slide_source

if TYPE_CHECKING:
    from napari.viewer import Viewer


def open_analysis(viewer: "Viewer") -> None:
    """Show the dock that analyses slides: the one that is open, or else a new one."""
    dock = desk_of(viewer).dock
    if dock is None or dock.is_closed:
        viewer.window.add_plugin_dock_widget(PLUGIN, "Slide analysis")
    else:
        dock.come_forward()
    layer = viewer.layers.selection.active
    if layer is not None and slide_source(layer) is None:
        show_error(
            f"“{layer.name}” is not a slide: it is not a colour image. Open a slide "
            "with “Open slide…”, or choose its layer."
        )
