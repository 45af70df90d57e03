"""Keys: named actions that napari lists, and lets users change, in its settings."""

from collections.abc import Generator
from typing import TYPE_CHECKING
from weakref import WeakSet

from napari.components import ViewerModel
from napari.settings import get_settings
from napari.utils.action_manager import action_manager

from napari_spt.parts.viewing import plain_viewer

if TYPE_CHECKING:
    from napari_spt.analysis.dock import AnalysisDock

HIDE = "napari-spt:hide_overlays"
NEXT = "napari-spt:next_region"
PREVIOUS = "napari-spt:previous_region"
# None of these is a key of any kind of layer.
DEFAULT_KEYS = {HIDE: "H", NEXT: "N", PREVIOUS: "Shift+N"}

_docks: "WeakSet[AnalysisDock]" = WeakSet()


def _dock_of(viewer: ViewerModel) -> "AnalysisDock | None":
    wanted = plain_viewer(viewer)
    return next((dock for dock in _docks if plain_viewer(dock.viewer) is wanted), None)


def hide_maps(viewer: ViewerModel) -> Generator[None, None, None]:
    """Show the slide alone while the key is held."""
    dock = _dock_of(viewer)
    if dock is None:
        yield
        return
    dock.renderer.hide_maps()
    try:
        yield
    finally:
        # Also where the release of the key went to another window.
        dock.renderer.show_maps_soon()


def next_region(viewer: ViewerModel) -> None:
    """Go to the next region."""
    if (dock := _dock_of(viewer)) is not None:
        dock.regions.strip.go_on(1)


def previous_region(viewer: ViewerModel) -> None:
    """Go to the region before."""
    if (dock := _dock_of(viewer)) is not None:
        dock.regions.strip.go_on(-1)


_ACTIONS = {
    HIDE: (hide_maps, "Slide analysis: press and hold to see the slide alone"),
    NEXT: (next_region, "Slide analysis: go to the next region"),
    PREVIOUS: (previous_region, "Slide analysis: go to the region before"),
}


_is_registered = False


def register(dock: "AnalysisDock") -> None:
    """Let the keys act on a dock; the user's own keys win over ours."""
    global _is_registered
    _docks.add(dock)
    if _is_registered:
        return
    _is_registered = True
    chosen = get_settings().shortcuts.shortcuts
    for name, (command, words) in _ACTIONS.items():
        action_manager.register_action(name, command, words, ViewerModel)
        for key in chosen.get(name) or [DEFAULT_KEYS[name]]:
            action_manager.bind_shortcut(name, key)


def unregister(dock: "AnalysisDock") -> None:
    _docks.discard(dock)
