"""Where the keyboard is: a ring around the control that has the focus."""

from qtpy.QtCore import QEvent, QObject, QPoint, QRect, QRectF, Qt
from qtpy.QtGui import QColor, QPainter, QPen
from qtpy.QtWidgets import QApplication, QWidget

WIDTH, ROOM = 2, 2


class FocusRing(QWidget):
    """Follows the focus within a widget, whatever a theme does with it.

    It is there for whoever uses keys: not after a click, as one sees what was clicked.
    """

    def __init__(self, within: QWidget) -> None:
        super().__init__(within)
        self._within = within
        self._around: QWidget | None = None
        self._colour = QColor("white")
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.hide()
        app = QApplication.instance()
        if app is not None:
            app.focusChanged.connect(self._on_focus)

    @property
    def around(self) -> QWidget | None:
        """The control that has the ring."""
        return self._around if self.isVisible() else None

    def use_colour(self, colour: str) -> None:
        self._colour = QColor(colour)
        self.update()

    def close_ring(self) -> None:
        """Follow nothing any more."""
        app = QApplication.instance()
        if app is not None:
            app.focusChanged.disconnect(self._on_focus)
        self._leave()

    def follow(self) -> None:
        """Lie where the control is now."""
        around = self._around
        if around is None or not around.isVisibleTo(self._within):
            self.hide()
            return
        place = QRect(around.mapTo(self._within, QPoint(0, 0)), around.size())
        self.setGeometry(place.adjusted(-ROOM, -ROOM, ROOM, ROOM))
        self.raise_()
        self.show()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        moved = (
            QEvent.Type.Move,
            QEvent.Type.Resize,
            QEvent.Type.Show,
            QEvent.Type.Hide,
        )
        if watched is self._around and event.type() in moved:
            self.follow()
        return False

    def paintEvent(self, _event) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QPen(self._colour, WIDTH))
        half = WIDTH / 2
        area = QRectF(self.rect()).adjusted(half, half, -half, -half)
        painter.drawRoundedRect(area, 4, 4)
        painter.end()

    def _on_focus(self, _before: QWidget | None, now: QWidget | None) -> None:
        is_click = QApplication.mouseButtons() != Qt.MouseButton.NoButton
        ours = now is not None and self._within.isAncestorOf(now)
        self._leave()
        if now is None or not ours or is_click:
            return
        # The line within a box of numbers or a list stands for the whole.
        above = now.parentWidget()
        if now.focusPolicy() == Qt.FocusPolicy.NoFocus or (
            above is not None and above.focusProxy() is now
        ):
            now = above
        self._around = now
        now.installEventFilter(self)
        self.follow()

    def _leave(self) -> None:
        if self._around is not None:
            self._around.removeEventFilter(self)
            self._around = None
        self.hide()
