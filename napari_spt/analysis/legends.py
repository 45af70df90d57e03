"""Legends in view: what the colours over the slide mean, drawn above it."""

from collections.abc import Sequence

from qtpy.QtCore import QEvent, QObject, QRectF, QSize, Qt
from qtpy.QtGui import QBrush, QColor, QLinearGradient, QPainter
from qtpy.QtWidgets import (
    QFrame,
    QGridLayout,
    QLabel,
    QSizePolicy,
    QVBoxLayout,
    QWidget,
)

from spt_core.insight.colours import heat_colours

MARGIN = 12
PAPER, INK, EDGE = "rgba(255, 255, 255, 225)", "#1e1e1e", "rgba(0, 0, 0, 60)"


class ColourBar(QWidget):
    """The scale of numbers, from clear to full."""

    def __init__(self) -> None:
        super().__init__()
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAccessibleName("Colour scale")

    def sizeHint(self) -> QSize:
        height = self.fontMetrics().height()
        return QSize(14 * height, round(0.8 * height))

    def paintEvent(self, _event) -> None:
        painter = QPainter(self)
        area = QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5)
        ramp = QLinearGradient(area.left(), 0, area.right(), 0)
        colours = heat_colours()
        for place, (red, green, blue, alpha) in enumerate(colours):
            ramp.setColorAt(
                place / (len(colours) - 1),
                QColor.fromRgbF(float(red), float(green), float(blue), float(alpha)),
            )
        painter.setPen(QColor(0, 0, 0, 90))
        painter.setBrush(QBrush(ramp))
        painter.drawRoundedRect(area, 2, 2)
        painter.end()


class Swatch(QWidget):
    """A square of a class's colour."""

    def __init__(self, rgb: Sequence[int]) -> None:
        super().__init__()
        self.colour = QColor(*(int(part) for part in rgb))
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)

    def sizeHint(self) -> QSize:
        side = round(0.8 * self.fontMetrics().height())
        return QSize(side, side)

    def paintEvent(self, _event) -> None:
        painter = QPainter(self)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(self.colour)
        painter.drawRoundedRect(QRectF(self.rect()), 2, 2)
        painter.end()


class Legend(QFrame):
    """A card in the corner of the canvas; the mouse goes through it."""

    def __init__(self, canvas: QWidget) -> None:
        super().__init__(canvas)
        self.setObjectName("spt_legend")
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.setAccessibleName("Legend")
        # On paper in both themes: it lies over a slide, which is bright in both.
        self.setStyleSheet(
            f"#spt_legend {{ background: {PAPER}; border: 1px solid {EDGE};"
            " border-radius: 6px; }"
            f"#spt_legend QWidget {{ background: transparent; color: {INK}; }}"
        )
        self.box = QVBoxLayout(self)
        self.box.setContentsMargins(12, 8, 12, 10)
        self.box.setSpacing(4)
        canvas.installEventFilter(self)
        self.hide()

    def show_parts(self, parts: Sequence["HeatPart | ClassPart"]) -> None:
        while self.box.count():
            item = self.box.takeAt(0)
            widget = item.widget()
            if widget is not None:
                widget.hide()
                widget.deleteLater()
        for number, part in enumerate(parts):
            if number:
                self.box.addSpacing(6)
            self.box.addWidget(part)
            part.show()  # at once: what is not shown yet takes no room
        self.setVisible(bool(parts))
        self.place()

    def place(self) -> None:
        """Lie in the upper left corner: below come scale bar and notifications."""
        canvas = self.parentWidget()
        if canvas is None:
            return
        self.ensurePolished()
        edges = self.box.contentsMargins()
        most = max(120, canvas.width() - 2 * MARGIN) - edges.left() - edges.right()
        for part in self._parts():
            part.fit(most)
        self.layout().activate()
        wanted = self.sizeHint()
        height = max(wanted.height(), self.heightForWidth(wanted.width()))
        self.setGeometry(MARGIN, MARGIN, wanted.width(), height)
        self.raise_()

    def _parts(self) -> list["HeatPart | ClassPart"]:
        widgets = (self.box.itemAt(n).widget() for n in range(self.box.count()))
        return [one for one in widgets if isinstance(one, HeatPart | ClassPart)]

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Resize and self.isVisible():
            self.place()
        return super().eventFilter(watched, event)


class HeatPart(QWidget):
    """The legend of numbers: a scale, what its ends mean, and a sentence."""

    def __init__(self, title: str, ends: Sequence[str], sentences: Sequence[str]):
        super().__init__()
        box = QVBoxLayout(self)
        box.setContentsMargins(0, 0, 0, 0)
        box.setSpacing(2)
        box.addWidget(QLabel(f"<b>{title}</b>"))
        box.addWidget(ColourBar())
        row = QGridLayout()
        row.setHorizontalSpacing(8)
        self.low, self.high = (QLabel(words) for words in ends)
        top, right = Qt.AlignmentFlag.AlignTop, Qt.AlignmentFlag.AlignRight
        self.low.setAlignment(top)
        self.high.setAlignment(top | right)
        row.addWidget(self.low, 0, 0)
        row.addWidget(self.high, 0, 1)
        row.setColumnStretch(1, 1)
        box.addLayout(row)
        for words in sentences:
            sentence = QLabel(words)
            sentence.setWordWrap(True)
            box.addWidget(sentence)

    def fit(self, most: int) -> None:
        """Be no wider than ``most`` pixels."""
        width = min(17 * self.fontMetrics().height(), most)
        self.high.setWordWrap(False)
        ends = self.low.sizeHint().width() + self.high.sizeHint().width()
        self.high.setWordWrap(ends + 8 > width)
        self.setFixedWidth(width)


class ClassPart(QWidget):
    """The legend of classes: a square of its colour and the name."""

    def __init__(
        self, title: str, names: Sequence[str], colours: Sequence[Sequence[int]]
    ) -> None:
        super().__init__()
        self.grid = QGridLayout(self)
        self.grid.setContentsMargins(0, 0, 0, 0)
        self.grid.setVerticalSpacing(2)
        self.grid.setHorizontalSpacing(8)
        self.grid.addWidget(QLabel(f"<b>{title}</b>"), 0, 0, 1, 4)
        self.entries = [
            (Swatch(rgb), QLabel(name))
            for name, rgb in zip(names, colours, strict=True)
        ]
        self.grid.setColumnStretch(1, 1)
        self.grid.setColumnStretch(3, 1)
        self._lay_out(2)

    def fit(self, most: int) -> None:
        """Be no wider than ``most`` pixels: side by side, or else one below another."""
        for _, name in self.entries:
            name.setWordWrap(False)
        self._lay_out(2)
        if self.grid.sizeHint().width() > most:
            self._lay_out(1)
            for _, name in self.entries:
                name.setWordWrap(True)
        self.setMaximumWidth(most)

    def _lay_out(self, columns: int) -> None:
        for number, (swatch, name) in enumerate(self.entries):
            row, side = divmod(number, columns)
            self.grid.addWidget(swatch, row + 1, 2 * side)
            self.grid.addWidget(name, row + 1, 2 * side + 1)
        self.grid.setColumnStretch(3, columns - 1)
        self.grid.invalidate()
