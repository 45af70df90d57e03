"""Legends in view: what the colours over the slide mean, drawn above it."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from qtpy.QtCore import QEvent, QObject, QPoint, QPointF, QRect, QSize, Qt
from qtpy.QtGui import QWheelEvent
from qtpy.QtWidgets import (
    QApplication,
    QFrame,
    QHBoxLayout,
    QLabel,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from napari_spt.analysis.legend_parts import Classes, ClassPart, HeatPart, Scale
from napari_spt.parts.settings import remember, remembered

MARGIN = 12
# As wide as napari's scale bar becomes, with the room around it.
SCALE_BAR = 170
PAPER, INK, EDGE = "rgba(255, 255, 255, 225)", "#1e1e1e", "rgba(0, 0, 0, 60)"


class Legend(QFrame):
    """A card on the canvas, where the tissue is not; it can be moved and folded.

    Attributes
    ----------
    tissue
        Gives the places (n, 2) of tissue on the canvas, in its pixels (x, y).
    """

    def __init__(self, canvas: QWidget) -> None:
        super().__init__(canvas)
        self.tissue: Callable[[], NDArray[np.floating] | None] = lambda: None
        self.setObjectName("spt_legend")
        self.setAccessibleName("Legend")
        self.setCursor(Qt.CursorShape.OpenHandCursor)
        self.setToolTip("Drag it elsewhere; a double click puts it back")
        # On paper in both themes: it lies over a slide, which is bright in both.
        self.setStyleSheet(
            f"#spt_legend {{ background: {PAPER}; border: 1px solid {EDGE};"
            " border-radius: 6px; }"
            f"#spt_legend QWidget {{ background: transparent; color: {INK}; }}"
            "#spt_legend QToolButton { border: none; padding: 0px; }"
            f"#spt_legend QToolButton:focus {{ border: 2px solid {INK}; }}"
        )
        self.fold = QToolButton()
        self.fold.setArrowType(Qt.ArrowType.DownArrow)
        self.fold.setCheckable(True)
        self.fold.setAccessibleName("Legend: show or hide")
        self.fold.setToolTip("Show or hide the legend")
        self.fold.setCursor(Qt.CursorShape.PointingHandCursor)
        self.title = QLabel("<b>Legend</b>")
        head = QHBoxLayout()
        head.setSpacing(4)
        head.addWidget(self.fold)
        head.addWidget(self.title, stretch=1)
        self.content = QWidget()
        self.box = QVBoxLayout(self.content)
        self.box.setContentsMargins(0, 0, 0, 0)
        self.box.setSpacing(4)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(10, 6, 12, 8)
        outer.setSpacing(4)
        outer.addLayout(head)
        outer.addWidget(self.content)
        kept = remembered("legend", {})
        self._place: tuple[float, float] | None = _pair(kept.get("place"))
        self._is_folded = bool(kept.get("folded", False))
        # Opened by hand where it hides most of a small canvas.
        self._is_wanted = False
        self._corner = 0
        self._grip: QPoint | None = None
        self.fold.clicked.connect(self._on_fold)
        canvas.installEventFilter(self)
        self.hide()

    def show_parts(self, parts: Sequence[Scale | Classes]) -> None:
        before = self._parts()
        is_new = self.isHidden()
        if len(before) != len(parts) or not all(
            part.say(said) for part, said in zip(before, parts, strict=True)
        ):
            # Another size: another corner may be the one with the least tissue.
            is_new = True
            self._make(parts)
        self.setVisible(bool(parts))
        self.place(looks_around=is_new)

    def _make(self, parts: Sequence[Scale | Classes]) -> None:
        while self.box.count():
            item = self.box.takeAt(0)
            widget = item.widget()
            if widget is not None:
                widget.hide()
                widget.deleteLater()
        for number, said in enumerate(parts):
            if number:
                self.box.addSpacing(6)
            part = said.widget()
            self.box.addWidget(part)
            part.show()  # at once: what is not shown yet takes no room

    # Where it lies

    def place(self, *, looks_around: bool = False) -> None:
        """Lie where it was put, or else in a corner.

        ``looks_around`` takes the corner with the least tissue.
        """
        canvas = self.parentWidget()
        if canvas is None:
            return
        self.ensurePolished()
        size = self._fit(canvas)
        free = (canvas.width() - size.width(), canvas.height() - size.height())
        if self._place is not None:
            x, y = (
                round(part * max(room, 0))
                for part, room in zip(self._place, free, strict=True)
            )
        else:
            corners = self._corners(free)
            if looks_around:
                self._corner = self._emptiest(corners, size)
            x, y = corners[self._corner]
        self.setGeometry(x, y, size.width(), size.height())
        self.raise_()

    def make_way(self) -> None:
        """Go to another corner where tissue has come below and a corner is free."""
        if self._place is None and self.isVisible() and self._covered(self.geometry()):
            self.place(looks_around=True)

    def _fit(self, canvas: QWidget) -> QSize:
        """Its size on a canvas: folded where it would hide most of it."""
        edges = self.layout().contentsMargins()
        most = max(120, canvas.width() - 2 * MARGIN) - edges.left() - edges.right()
        for part in self._parts():
            part.fit(most)
        self._open(not self._is_folded)
        size = self._wanted_size()
        is_large = (
            size.height() > canvas.height() - 2 * MARGIN
            or size.width() * size.height() > 0.4 * canvas.width() * canvas.height()
        )
        if is_large and not self._is_folded and not self._is_wanted:
            self._open(False)
            size = self._wanted_size()
        return size

    def _wanted_size(self) -> QSize:
        self.content.layout().activate()
        self.layout().activate()
        wanted = self.sizeHint()
        height = max(wanted.height(), self.heightForWidth(wanted.width()))
        return QSize(wanted.width(), height)

    def _open(self, is_open: bool) -> None:
        self.content.setVisible(is_open)
        self.fold.setChecked(is_open)
        arrow = Qt.ArrowType.DownArrow if is_open else Qt.ArrowType.RightArrow
        self.fold.setArrowType(arrow)

    def _corners(self, free: tuple[int, int]) -> list[tuple[int, int]]:
        """The upper ones first: below come scale bar and notifications."""
        right, bottom = (max(MARGIN, room - MARGIN) for room in free)
        above_bar = max(MARGIN, bottom - 3 * MARGIN)
        # On a narrow canvas the left one reaches the scale bar, too.
        low = bottom if right > SCALE_BAR else above_bar
        return [(MARGIN, MARGIN), (right, MARGIN), (MARGIN, low), (right, above_bar)]

    def _emptiest(self, corners: Sequence[tuple[int, int]], size: QSize) -> int:
        covered = [self._covered(QRect(QPoint(*one), size)) for one in corners]
        return covered.index(min(covered))

    def _covered(self, area: QRect) -> int:
        """How many places of tissue an area hides."""
        tissue = self.tissue()
        if tissue is None or not len(tissue):
            return 0
        x, y = tissue.T
        inside = (x >= area.left()) & (x <= area.right())
        inside &= (y >= area.top()) & (y <= area.bottom())
        return int(np.count_nonzero(inside))

    # What the mouse does

    def mousePressEvent(self, event) -> None:
        if event.button() == Qt.MouseButton.LeftButton:
            self._grip = event.position().toPoint()
            self.setCursor(Qt.CursorShape.ClosedHandCursor)

    def mouseMoveEvent(self, event) -> None:
        canvas = self.parentWidget()
        if self._grip is None or canvas is None:
            return
        wanted = self.mapToParent(event.position().toPoint()) - self._grip
        right, bottom = canvas.width() - self.width(), canvas.height() - self.height()
        x, y = (
            min(max(0, at), max(0, end))
            for at, end in ((wanted.x(), right), (wanted.y(), bottom))
        )
        self.move(x, y)
        self._place = (x / max(right, 1), y / max(bottom, 1))

    def mouseReleaseEvent(self, _event) -> None:
        self._grip = None
        self.setCursor(Qt.CursorShape.OpenHandCursor)
        self._keep()

    def mouseDoubleClickEvent(self, _event) -> None:
        self._place = None
        self._keep()
        self.place(looks_around=True)

    def wheelEvent(self, event) -> None:
        """Zoom, as if it were not there."""
        canvas = self.parentWidget()
        if canvas is None:
            return
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents, True)
        place = self.mapToParent(event.position().toPoint())
        below = canvas.childAt(place)
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents, False)
        if below is None or below is self or self.isAncestorOf(below):
            event.ignore()
            return
        passed = QWheelEvent(
            QPointF(below.mapFrom(canvas, place)),
            event.globalPosition(),
            event.pixelDelta(),
            event.angleDelta(),
            event.buttons(),
            event.modifiers(),
            event.phase(),
            event.inverted(),
        )
        QApplication.sendEvent(below, passed)

    def _on_fold(self, is_open: bool) -> None:
        self._is_folded, self._is_wanted = not is_open, is_open
        self._keep()
        self.place()

    def _keep(self) -> None:
        remember("legend", {"place": self._place, "folded": self._is_folded})

    def _parts(self) -> list[HeatPart | ClassPart]:
        widgets = (self.box.itemAt(n).widget() for n in range(self.box.count()))
        return [one for one in widgets if isinstance(one, HeatPart | ClassPart)]

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Resize and self.isVisible():
            self.place(looks_around=True)
        return super().eventFilter(watched, event)


def _pair(kept: Any) -> tuple[float, float] | None:
    if not isinstance(kept, list | tuple) or len(kept) != 2:
        return None
    return float(kept[0]), float(kept[1])
