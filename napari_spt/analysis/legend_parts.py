"""What a legend is made of: scales of numbers, and colours of classes with names."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape

from qtpy.QtCore import QRectF, QSize, Qt
from qtpy.QtGui import QBrush, QColor, QLinearGradient, QPainter
from qtpy.QtWidgets import (
    QGridLayout,
    QLabel,
    QSizePolicy,
    QVBoxLayout,
    QWidget,
)

from napari_spt.parts.widgets import plain_label
from spt_core.insight.colours import ATTENTION_RAMP, Ramp, heat_colours


@dataclass(frozen=True)
class Scale:
    """What is to be said of a map of numbers."""

    title: str
    ends: tuple[str, str]
    sentences: tuple[str, ...] = ()
    ramp: Ramp = ATTENTION_RAMP

    def widget(self) -> "HeatPart":
        return HeatPart(self)


@dataclass(frozen=True)
class Classes:
    """What is to be said of a map of classes: each name with its colour."""

    title: str
    names: tuple[str, ...]
    rgb: tuple[tuple[int, int, int], ...]

    def widget(self) -> "ClassPart":
        return ClassPart(self)


class ColourBar(QWidget):
    """The scale of numbers, from clear to full."""

    def __init__(self, ramp: Ramp) -> None:
        super().__init__()
        self._colours = heat_colours(ramp)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAccessibleName("Colour scale")

    def sizeHint(self) -> QSize:
        height = self.fontMetrics().height()
        return QSize(14 * height, round(0.8 * height))

    def paintEvent(self, _event) -> None:
        painter = QPainter(self)
        area = QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5)
        ramp = QLinearGradient(area.left(), 0, area.right(), 0)
        colours = self._colours
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
        painter.setPen(QColor(0, 0, 0, 90))
        painter.setBrush(self.colour)
        painter.drawRoundedRect(
            QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5), 2, 2
        )
        painter.end()


class HeatPart(QWidget):
    """The legend of numbers: a scale, what its ends mean, and a sentence."""

    def __init__(self, said: Scale) -> None:
        super().__init__()
        self.said = said
        box = QVBoxLayout(self)
        box.setContentsMargins(0, 0, 0, 0)
        box.setSpacing(2)
        self.title = QLabel(f"<b>{escape(said.title)}</b>")
        self.title.setWordWrap(True)
        box.addWidget(self.title)
        box.addWidget(ColourBar(said.ramp))
        row = QGridLayout()
        row.setHorizontalSpacing(8)
        self.low, self.high = (plain_label(words) for words in said.ends)
        top, right = Qt.AlignmentFlag.AlignTop, Qt.AlignmentFlag.AlignRight
        self.low.setAlignment(top)
        self.high.setAlignment(top | right)
        row.addWidget(self.low, 0, 0)
        row.addWidget(self.high, 0, 1)
        row.setColumnStretch(1, 1)
        box.addLayout(row)
        for words in said.sentences:
            sentence = QLabel(words)
            sentence.setWordWrap(True)
            box.addWidget(sentence)

    def say(self, said: Scale | Classes) -> bool:
        """Take on other ends of the same scale; False if it is another scale."""
        if not isinstance(said, Scale) or said != replace(self.said, ends=said.ends):
            return False
        self.said = said
        self.low.setText(said.ends[0])
        self.high.setText(said.ends[1])
        return True

    def fit(self, most: int) -> None:
        """Be no wider than ``most`` pixels."""
        width = min(17 * self.fontMetrics().height(), most)
        self.high.setWordWrap(False)
        ends = self.low.sizeHint().width() + self.high.sizeHint().width()
        self.high.setWordWrap(ends + 8 > width)
        self.setFixedWidth(width)


class ClassPart(QWidget):
    """The legend of classes: a square of its colour and the name."""

    def __init__(self, said: Classes) -> None:
        super().__init__()
        self.said = said
        self.grid = QGridLayout(self)
        self.grid.setContentsMargins(0, 0, 0, 0)
        self.grid.setVerticalSpacing(2)
        self.grid.setHorizontalSpacing(8)
        self.title = QLabel(f"<b>{escape(said.title)}</b>")
        self.grid.addWidget(self.title, 0, 0, 1, 4)
        self.entries = [
            (Swatch(rgb), plain_label(name))
            for name, rgb in zip(said.names, said.rgb, strict=True)
        ]
        self.grid.setColumnStretch(1, 1)
        self.grid.setColumnStretch(3, 1)
        self._lay_out(2)

    def say(self, said: Scale | Classes) -> bool:
        return said == self.said

    def fit(self, most: int) -> None:
        """Be no wider than ``most`` pixels: side by side, or else one below another."""
        labels = [self.title, *(name for _, name in self.entries)]
        for label in labels:
            label.setWordWrap(False)
        self._lay_out(2)
        if self.grid.sizeHint().width() > most:
            self._lay_out(1)
            for label in labels:
                label.setWordWrap(True)
        self.setMaximumWidth(most)

    def _lay_out(self, columns: int) -> None:
        for number, (swatch, name) in enumerate(self.entries):
            row, side = divmod(number, columns)
            self.grid.addWidget(swatch, row + 1, 2 * side)
            self.grid.addWidget(name, row + 1, 2 * side + 1)
        self.grid.setColumnStretch(3, columns - 1)
        self.grid.invalidate()
