"""The camera, scale bar and window of napari's viewer, in all of its versions."""

from typing import TYPE_CHECKING, Any

from qtpy.QtCore import QEasingCurve, QObject, QVariantAnimation
from qtpy.QtWidgets import QApplication, QMainWindow, QWidget

if TYPE_CHECKING:
    from napari.viewer import Viewer

FLIGHT_MS = 350


def camera(viewer: "Viewer") -> Any:
    return viewer.scene.camera if hasattr(viewer, "scene") else viewer.camera


def scale_bar(viewer: "Viewer") -> Any:
    """The scale bar, which moved in napari 0.9."""
    if hasattr(viewer, "canvas"):
        return viewer.canvas.overlays.scale_bar
    return viewer.scale_bar


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
