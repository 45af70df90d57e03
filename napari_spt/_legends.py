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

from napari_spt._layers import heat_colours

NOT_WHERE = "Where the model looked, not where the tumour is."
MARGIN = 12
PAPER, INK = "rgba(255, 255, 255, 225)", "#1e1e1e"


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
            f"#spt_legend {{ background: {PAPER}; border-radius: 6px; }}"
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
        self.layout().activate()
        wanted = self.sizeHint()
        most = max(120, canvas.width() - 2 * MARGIN)
        width = min(wanted.width(), most)
        height = max(wanted.height(), self.heightForWidth(width))
        self.setGeometry(MARGIN, MARGIN, width, height)
        self.raise_()

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
        for place, text in enumerate(ends):
            label = QLabel(text)
            side = (
                Qt.AlignmentFlag.AlignLeft
                if place == 0
                else Qt.AlignmentFlag.AlignRight
                if place == len(ends) - 1
                else Qt.AlignmentFlag.AlignHCenter
            )
            row.addWidget(label, 0, place, side)
        box.addLayout(row)
        for words in sentences:
            sentence = QLabel(words)
            sentence.setWordWrap(True)
            box.addWidget(sentence)
        self.setFixedWidth(17 * self.fontMetrics().height())


class ClassPart(QWidget):
    """The legend of classes: a square of its colour and the name."""

    def __init__(
        self, title: str, names: Sequence[str], colours: Sequence[Sequence[int]]
    ) -> None:
        super().__init__()
        grid = QGridLayout(self)
        grid.setContentsMargins(0, 0, 0, 0)
        grid.setVerticalSpacing(2)
        grid.setHorizontalSpacing(8)
        grid.addWidget(QLabel(f"<b>{title}</b>"), 0, 0, 1, 4)
        for number, (name, rgb) in enumerate(zip(names, colours, strict=True)):
            row, side = divmod(number, 2)
            grid.addWidget(Swatch(rgb), row + 1, 2 * side)
            grid.addWidget(QLabel(name), row + 1, 2 * side + 1)
        grid.setColumnStretch(1, 1)
        grid.setColumnStretch(3, 1)
