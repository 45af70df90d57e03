"""The camera, scale bar and window of napari's viewer, in all of its versions."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from qtpy.QtCore import QEasingCurve, QObject, QVariantAnimation
from qtpy.QtWidgets import QApplication, QMainWindow, QWidget

if TYPE_CHECKING:
    from napari.layers import Layer
    from napari.viewer import Viewer

T = TypeVar("T")
FLIGHT_MS = 350
# The part of the canvas that a whole slide fills.
FILLED = 0.95


def plain_viewer(viewer: Any) -> Any:
    """The viewer behind the proxy that napari hands to plugins."""
    return getattr(viewer, "__wrapped__", viewer)


def kept_with(viewer: Any, name: str, make: Callable[[Any], T]) -> T:
    """What we keep of a viewer, made when it is first asked for; it goes with it."""
    viewer = plain_viewer(viewer)
    name = f"_spt_{name}"
    kept = vars(viewer).get(name)
    if kept is None:
        kept = make(viewer)
        # The viewer is a model of pydantic's, which refuses what it does not know.
        object.__setattr__(viewer, name, kept)
    return kept


def camera(viewer: "Viewer") -> Any:
    return viewer.scene.camera if hasattr(viewer, "scene") else viewer.camera


def scale_bar(viewer: "Viewer") -> Any:
    """The scale bar, which moved in napari 0.9."""
    if hasattr(viewer, "canvas"):
        return viewer.canvas.overlays.scale_bar
    return viewer.scale_bar


def grid(viewer: "Viewer") -> Any:
    """napari's grid, which moved in 0.9."""
    return viewer.canvas.grid if hasattr(viewer, "canvas") else viewer.grid


def on_canvas(
    viewer: "Viewer", world: NDArray, size_xy: tuple[int, int]
) -> NDArray[np.float64]:
    """Places (n, 2) of the world, (y, x), on a canvas, in its pixels (x, y)."""
    eye = camera(viewer)
    seen = (world - np.asarray(eye.center[-2:])) * eye.zoom
    return seen[:, ::-1] + np.asarray(size_xy) / 2


def viewbox_size(viewer: "Viewer") -> tuple[float, float]:
    """Height and width of the canvas, or of one cell of the grid, in screen pixels."""
    viewer = plain_viewer(viewer)
    if hasattr(viewer, "canvas"):
        height, width = viewer.canvas.viewbox_size(viewer.layers)
    else:
        height, width = viewer._canvas_size
    return max(float(height), 1.0), max(float(width), 1.0)


def world_box(layers: "Sequence[Layer]") -> NDArray[np.float64]:
    """What layers cover in the world: ((top, left), (bottom, right))."""
    boxes = np.array([np.asarray(layer.extent.world)[:, -2:] for layer in layers])
    return np.array([boxes[:, 0].min(axis=0), boxes[:, 1].max(axis=0)])


def show_whole(viewer: "Viewer", layers: "Sequence[Layer]") -> None:
    """Let all of some layers be in view."""
    low, high = world_box(layers)
    eye = camera(viewer)
    eye.center = tuple((low + high) / 2)
    size = np.maximum(high - low, 1e-9)
    eye.zoom = FILLED * float((np.array(viewbox_size(viewer)) / size).min())


def is_in_view(viewer: "Viewer", layers: "Sequence[Layer]") -> bool:
    """Whether all of some layers is in view, and not too small to be seen."""
    low, high = world_box(layers)
    eye = camera(viewer)
    half = np.array(viewbox_size(viewer)) / float(eye.zoom) / 2
    middle = np.array(eye.center[-2:])
    is_inside = (low >= middle - half).all() and (high <= middle + half).all()
    return bool(is_inside and ((high - low) > 0.1 * half).any())


def active_window() -> QWidget | None:
    """The window that a new dialog belongs to."""
    windows = [w for w in QApplication.topLevelWidgets() if isinstance(w, QMainWindow)]
    return QApplication.activeWindow() or (windows[-1] if windows else None)


def main_window(widget: QWidget) -> QMainWindow | None:
    """The window that a dock belongs to, floating or not."""
    above: QObject | None = widget
    while above is not None and not isinstance(above, QMainWindow):
        above = above.parent()
    return above


def canvas_size(widget: QWidget) -> tuple[int, int]:
    """Width and height of the canvas, in screen pixels."""
    window = main_window(widget)
    middle = window.centralWidget() if window is not None else None
    if middle is None or min(middle.width(), middle.height()) < 100:
        return 800, 600
    return middle.width(), middle.height()


class Flight(QObject):
    """Moves the camera smoothly, so that one sees where the new place lies."""

    def __init__(self, viewer: "Viewer", parent: QObject) -> None:
        super().__init__(parent)
        self.viewer = viewer
        self.animation = QVariantAnimation(self)
        self.animation.setDuration(FLIGHT_MS)
        self.animation.setStartValue(0.0)
        self.animation.setEndValue(1.0)
        self.animation.setEasingCurve(QEasingCurve.Type.InOutCubic)
        self.animation.valueChanged.connect(self._move)
        self._route: tuple[Any, Any] | None = None

    def to(self, world_yx: tuple[float, float], zoom: float) -> None:
        eye = camera(self.viewer)
        start = (tuple(eye.center[-2:]), float(eye.zoom))
        self._route = (start, (world_yx, zoom))
        self.animation.stop()
        self.animation.start()

    def land(self) -> None:
        """Arrive at once."""
        self.animation.stop()
        if self._route is not None:
            self._move(1.0)

    def _move(self, part: float) -> None:
        if self._route is None:
            return
        (start, start_zoom), (end, end_zoom) = self._route
        eye = camera(self.viewer)
        eye.zoom = start_zoom * (end_zoom / start_zoom) ** part
        eye.center = tuple(a + (b - a) * part for a, b in zip(start, end, strict=True))
        if part >= 1:
            self._route = None
