"""The frame that napari puts around a dock, and its place among our others."""

from qtpy.QtCore import QEvent, QObject, QTimer
from qtpy.QtWidgets import QDockWidget, QMainWindow, QWidget

from napari_spt import PLUGIN


def frame_of(dock: QWidget) -> QDockWidget | None:
    """What napari put around a dock."""
    above = dock.parentWidget()
    while above is not None and not isinstance(above, QDockWidget):
        above = above.parentWidget()
    return above


def come_forward(dock: QWidget) -> None:
    """Be seen, also where it was hidden behind another dock."""
    frame = frame_of(dock)
    if frame is not None:
        frame.show()
        frame.raise_()


class DockTab(QObject):
    """Makes a dock a tab beside our others, in front of them, when it is opened.

    napari lays docks below one another, and leaves the older ones a strip in which
    nothing can be read. Wherever the user moves a dock afterwards, it stays.
    """

    def __init__(self, dock: QWidget) -> None:
        super().__init__(dock)
        self._dock = dock
        # Once napari has put the frame into its window.
        self._soon = QTimer(self)
        self._soon.setSingleShot(True)
        self._soon.setInterval(0)
        self._soon.timeout.connect(self._lie_as_tab)
        dock.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.ParentChange and self._dock.parent() is not None:
            self._soon.start()
        return super().eventFilter(watched, event)

    def _lie_as_tab(self) -> None:
        frame = frame_of(self._dock)
        window = None if frame is None else frame.parentWidget()
        if not isinstance(window, QMainWindow) or not _is_in_place(frame):
            return
        area = window.dockWidgetArea(frame)
        for other in window.findChildren(QDockWidget):
            is_ours = getattr(other, "name", "").endswith(f"({PLUGIN})")
            is_near = _is_in_place(other) and window.dockWidgetArea(other) == area
            if is_ours and is_near and other is not frame:
                if other not in window.tabifiedDockWidgets(frame):
                    window.tabifyDockWidget(other, frame)
                frame.raise_()
                return


def _is_in_place(frame: QDockWidget) -> bool:
    return not frame.isFloating() and not frame.isHidden()
