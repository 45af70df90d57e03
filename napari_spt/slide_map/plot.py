"""Slides as points that can be moved, hovered, clicked and lassoed; 10,000 and more."""

import numpy as np
from numpy.typing import NDArray
from qtpy.QtCore import QPointF, QSize, Qt, Signal
from qtpy.QtGui import QColor, QPainter, QPen, QPixmap, QPolygonF, QTransform
from qtpy.QtWidgets import QSizePolicy, QWidget
from scipy.spatial import cKDTree

from napari_spt.slide_map.colouring import Colouring
from napari_spt.slide_map.lasso import inside

# In pixels of the screen: of a point among few and among many, and of its reach.
LARGE, SMALL = 11.0, 6.0
MANY = 1500
REACH = 14.0
# A press that moves further than this is no click.
STILL = 4.0
EDGE = 0.06
ZOOM_STEP = 1.2
DIMMED = 45
# Qt draws a point as a line of 1/63 of a unit: in units of a map this wide, as none.
WIDE = 1e4
_KEYS = {
    Qt.Key.Key_Left: (-1, 0),
    Qt.Key.Key_Right: (1, 0),
    Qt.Key.Key_Up: (0, 1),
    Qt.Key.Key_Down: (0, -1),
}


class MapPlot(QWidget):
    """Points by colour; what is under the mouse, or the keys, is told.

    Attributes
    ----------
    xy : (n, 2)
        Where the slides are, y upwards.
    is_lasso
        Whether a drag draws around slides rather than moving the map; Shift does, too.
    """

    hovered = Signal(int)  # the slide's row, -1 for none
    clicked = Signal(int)
    lassoed = Signal(object)  # rows, (m,)

    def __init__(self) -> None:
        super().__init__()
        self.xy = np.zeros((0, 2))
        self.is_lasso = False
        self.current = -1
        self.open_slide = -1
        self.chosen = np.zeros(0, np.int64)
        self.colouring: Colouring | None = None
        self.only: int | None = None
        self.ink, self.ground = QColor("white"), QColor("black")
        self._tree: cKDTree | None = None
        self._shapes: list[tuple[int, QPolygonF]] = []
        self._centre, self._scale, self._fine = np.zeros(2), 1.0, 1.0
        self._is_whole = True
        self._picture: QPixmap | None = None
        self._pressed: QPointF | None = None
        self._last: QPointF | None = None
        self._lasso: list[QPointF] = []
        self.setMouseTracking(True)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.setMinimumSize(220, 220)
        self.setAccessibleName("Map of slides")
        self.setAccessibleDescription(
            "Arrow keys go from slide to slide, Enter opens one, plus and minus zoom"
        )

    # What is shown

    def show_points(self, xy: NDArray[np.floating], colouring: Colouring) -> None:
        """Show slides at (n, 2) places; another number of them is another map."""
        is_other = len(xy) != len(self.xy)
        self.xy = np.asarray(xy, np.float64)
        self._tree = cKDTree(self.xy) if len(xy) else None
        if is_other:
            self.chosen, self.open_slide = np.zeros(0, np.int64), -1
            self.only = None
        self.current = -1
        self.show_colours(colouring)
        self.show_whole()

    def show_colours(self, colouring: Colouring) -> None:
        self.colouring = colouring
        groups = np.unique(colouring.group)
        extent = float(np.ptp(self.xy, axis=0).max()) if len(self.xy) else 0.0
        self._fine = WIDE / extent if extent > 0 else 1.0
        self._shapes = [
            (int(group), _polygon(self.xy[colouring.group == group] * self._fine))
            for group in groups[np.argsort(groups >= 0, kind="stable")]
        ]
        self._redraw()

    def show_only(self, group: int | None) -> None:
        """Let the slides of one colour stand out; None lets all."""
        self.only = group
        self._redraw()

    def mark(self, *, open_slide: int | None = None, chosen=None) -> None:
        """Ring the slide that is open, and those that were chosen."""
        if open_slide is not None:
            self.open_slide = open_slide
        if chosen is not None:
            self.chosen = np.asarray(chosen, np.int64)
        self.update()

    def use_colours(self, ink: str, ground: str) -> None:
        self.ink, self.ground = QColor(ink), QColor(ground)
        self._redraw()

    def point_size(self) -> float:
        return SMALL if len(self.xy) > MANY else LARGE

    # The view

    def show_whole(self) -> None:
        self._is_whole = True
        if len(self.xy):
            low, high = self.xy.min(axis=0), self.xy.max(axis=0)
            self._centre = (low + high) / 2
            size = np.maximum(high - low, 1e-9)
            room = np.array([self.width(), self.height()]) * (1 - 2 * EDGE)
            self._scale = float((np.maximum(room, 1) / size).min())
        self._redraw()

    def zoom(self, factor: float, at: QPointF | None = None) -> None:
        """Zoom around a place of the screen, or the middle."""
        at = at or QPointF(self.width() / 2, self.height() / 2)
        before = self._world(at)
        self._scale *= factor
        self._centre += before - self._world(at)
        self._is_whole = False
        self._redraw()

    def move_by(self, dx: float, dy: float) -> None:
        """Move the map by pixels of the screen."""
        self._centre -= np.array([dx, -dy]) / self._scale
        self._is_whole = False
        self._redraw()

    def screen(self, xy: NDArray[np.floating]) -> NDArray[np.float64]:
        """Places (n, 2) of the map on the screen."""
        middle = np.array([self.width(), self.height()]) / 2
        return (np.asarray(xy) - self._centre) * self._scale * (1, -1) + middle

    def slide_at(self, at: QPointF) -> int:
        """The slide under a place of the screen; -1 for none."""
        if self._tree is None:
            return -1
        far, slide = self._tree.query(self._world(at))
        return int(slide) if far * self._scale <= REACH else -1

    def _world(self, at: QPointF) -> NDArray[np.float64]:
        offset = np.array([at.x() - self.width() / 2, at.y() - self.height() / 2])
        return self._centre + offset * (1, -1) / self._scale

    # Drawing

    def _redraw(self) -> None:
        self._picture = None
        self.update()

    def _draw_points(self) -> QPixmap:
        ratio = self.devicePixelRatioF()
        picture = QPixmap(
            max(1, round(self.width() * ratio)), max(1, round(self.height() * ratio))
        )
        picture.setDevicePixelRatio(ratio)
        picture.fill(self.ground)
        if self.colouring is None:
            return picture
        painter = QPainter(picture)
        few = len(self.xy) <= MANY
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, few)
        painter.setTransform(self._transform())
        size = self.point_size()
        edge = QColor(self.ink)
        edge.setAlpha(150)
        for group, polygon in self._shapes:
            colour = QColor(*self.colouring.rgb(group))
            is_dimmed = self.only is not None and group != self.only
            if is_dimmed:
                colour.setAlpha(DIMMED)
            elif few:
                painter.setPen(_round(edge, size + 1.5))
                painter.drawPoints(polygon)
            painter.setPen(_round(colour, size))
            painter.drawPoints(polygon)
        painter.end()
        return picture

    def _transform(self) -> QTransform:
        x, y = self._centre
        return (
            QTransform()
            .translate(self.width() / 2, self.height() / 2)
            .scale(self._scale / self._fine, -self._scale / self._fine)
            .translate(-x * self._fine, -y * self._fine)
        )

    def paintEvent(self, _event) -> None:
        if self._picture is None:
            self._picture = self._draw_points()
        painter = QPainter(self)
        painter.drawPixmap(0, 0, self._picture)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        size = self.point_size()
        self._ring(painter, self.chosen, size / 2 + 2, 1.5)
        if 0 <= self.current < len(self.xy):
            self._ring(painter, self._alike(), size / 2 + 2, 1.0)
            self._ring(painter, [self.current], size / 2 + 4, 2.0)
        if 0 <= self.open_slide < len(self.xy):
            self._ring(painter, [self.open_slide], size / 2 + 5, 2.5)
        if self._lasso:
            painter.setPen(QPen(self.ink, 1.5, Qt.PenStyle.DashLine))
            painter.drawPolyline(QPolygonF(self._lasso))
        painter.end()

    def _alike(self) -> NDArray[np.int64]:
        """The slides of the current one's value, where colours do not tell it."""
        if self.colouring is None or not self.colouring.has_others:
            return np.zeros(0, np.int64)
        value = self.colouring.value[self.current]
        return np.flatnonzero(self.colouring.value == value) if value >= 0 else value

    def _ring(self, painter: QPainter, rows, radius: float, width: float) -> None:
        painter.setPen(QPen(self.ink, width))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        for x, y in self.screen(self.xy[np.atleast_1d(rows)]):
            painter.drawEllipse(QPointF(x, y), radius, radius)

    # Mouse and keys

    def mousePressEvent(self, event) -> None:
        if event.button() != Qt.MouseButton.LeftButton:
            return
        self._pressed = self._last = event.position()
        shift = event.modifiers() & Qt.KeyboardModifier.ShiftModifier
        self._lasso = [event.position()] if self.is_lasso or shift else []

    def mouseMoveEvent(self, event) -> None:
        at = event.position()
        if self._pressed is None:
            self._point_to(self.slide_at(at))
            return
        if self._lasso:
            self._lasso.append(at)
            self.update()
        elif self._last is not None and not self._is_still(at):
            self.move_by(at.x() - self._last.x(), at.y() - self._last.y())
            self._point_to(-1)
            self._last = at

    def mouseReleaseEvent(self, event) -> None:
        if self._pressed is None:
            return
        at, lasso = event.position(), self._lasso
        was_still = self._last == self._pressed and self._is_still(at)
        self._lasso = []
        if len(lasso) > 2 and not self._is_still(lasso[len(lasso) // 2]):
            self._choose_within(lasso)
        elif was_still and (slide := self.slide_at(at)) >= 0:
            self._point_to(slide)
            self.clicked.emit(slide)
        self._pressed = self._last = None
        self.update()

    def _is_still(self, at: QPointF) -> bool:
        start = self._pressed or at
        return abs(at.x() - start.x()) + abs(at.y() - start.y()) <= STILL

    def _choose_within(self, lasso: list[QPointF]) -> None:
        polygon = np.array([[one.x(), one.y()] for one in lasso])
        self.chosen = np.flatnonzero(inside(self.screen(self.xy), polygon))
        self.update()
        self.lassoed.emit(self.chosen)

    def _point_to(self, slide: int) -> None:
        if slide != self.current:
            self.current = slide
            self.update()
            self.hovered.emit(slide)

    def leaveEvent(self, event) -> None:
        self._point_to(-1)
        super().leaveEvent(event)

    def wheelEvent(self, event) -> None:
        self.zoom(ZOOM_STEP ** (event.angleDelta().y() / 120), event.position())
        event.accept()

    def keyPressEvent(self, event) -> None:
        key = Qt.Key(event.key())
        if key in _KEYS:
            self._go(*_KEYS[key])
        elif key in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and self.current >= 0:
            self.clicked.emit(self.current)
        elif key in (Qt.Key.Key_Plus, Qt.Key.Key_Equal):
            self.zoom(ZOOM_STEP)
        elif key == Qt.Key.Key_Minus:
            self.zoom(1 / ZOOM_STEP)
        elif key in (Qt.Key.Key_Home, Qt.Key.Key_0):
            self.show_whole()
        else:
            super().keyPressEvent(event)

    def _go(self, right: int, up: int) -> None:
        """To the nearest slide on one side."""
        if not len(self.xy):
            return
        start = self.xy[self.current] if self.current >= 0 else self._centre
        step = self.xy - start
        along = step @ np.array([right, up])
        beside = np.abs(step @ np.array([up, right]))
        far = np.where((along > 0) & (along >= beside), along + 2 * beside, np.inf)
        if np.isfinite(far).any():
            self._point_to(int(far.argmin()))
        elif self.current < 0:
            self._point_to(int(np.square(step).sum(axis=1).argmin()))

    def resizeEvent(self, event) -> None:
        super().resizeEvent(event)
        if self._is_whole:
            self.show_whole()
        self._picture = None

    def sizeHint(self) -> QSize:
        return QSize(360, 360)


def _polygon(xy: NDArray[np.float64]) -> QPolygonF:
    return QPolygonF([QPointF(x, y) for x, y in xy.tolist()])


def _round(colour: QColor, width: float) -> QPen:
    pen = QPen(colour, width)
    pen.setCapStyle(Qt.PenCapStyle.RoundCap)
    pen.setCosmetic(True)  # the same size however far the map is zoomed
    return pen
