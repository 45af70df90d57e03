"""Shares of classes as bars."""

from collections.abc import Sequence

from qtpy.QtCore import QRectF, QSize, Qt
from qtpy.QtGui import QColor, QPainter
from qtpy.QtWidgets import QGridLayout, QLabel, QSizePolicy, QWidget

from napari_spt.parts.widgets import plain_label


class Bar(QWidget):
    """One share from 0 to 1; a second one, below, to compare."""

    def __init__(self, rgb: Sequence[int]) -> None:
        super().__init__()
        self.colour = QColor(*(int(part) for part in rgb))
        self.share = 0.0
        self.other: float | None = None
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def sizeHint(self) -> QSize:
        height = self.fontMetrics().height()
        return QSize(6 * height, round(0.9 * height))

    def minimumSizeHint(self) -> QSize:
        height = self.fontMetrics().height()
        return QSize(3 * height, round(0.9 * height))

    def paintEvent(self, _event) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        area = QRectF(self.rect())
        shares = [self.share] if self.other is None else [self.share, self.other]
        height = area.height() / len(shares)
        for row, share in enumerate(shares):
            strip = QRectF(0, row * height, area.width(), height - len(shares) + 1)
            painter.setBrush(QColor(128, 128, 128, 60))
            painter.drawRoundedRect(strip, 3, 3)
            strip.setWidth(max(3.0, share * area.width()))
            colour = QColor(self.colour)
            if row:
                colour.setAlpha(140)
            painter.setBrush(colour)
            painter.drawRoundedRect(strip, 3, 3)
        painter.end()


class ClassBars(QWidget):
    """A bar for each class, in the order of the model."""

    def __init__(self) -> None:
        super().__init__()
        self._grid = QGridLayout(self)
        self._grid.setContentsMargins(0, 0, 0, 0)
        self._grid.setVerticalSpacing(4)
        self._grid.setHorizontalSpacing(8)
        self._grid.setColumnStretch(1, 1)
        self.bars: dict[str, Bar] = {}
        self._values: dict[str, QLabel] = {}

    def show_shares(
        self, shares: dict[str, float], others: dict[str, float] | None = None
    ) -> None:
        """Show shares by class; ``others`` beside them, to compare."""
        if list(shares) != list(self.bars):
            self._lay_out(list(shares))
        for name, share in shares.items():
            bar = self.bars[name]
            bar.share = share
            bar.other = None if others is None else others[name]
            words = f"{100 * share:.0f} %"
            if bar.other is not None:
                words += f" → {100 * bar.other:.0f} %"
            self._values[name].setText(words)
            bar.setAccessibleName(f"{name}: {words}")
            bar.update()

    def _lay_out(self, classes: Sequence[str]) -> None:
        from spt_core.insight.colours import class_colour

        while self._grid.count():
            widget = self._grid.takeAt(0).widget()
            widget.hide()
            widget.deleteLater()
        self.bars, self._values = {}, {}
        for row, name in enumerate(classes):
            label = plain_label(name)
            label.setWordWrap(True)
            self.bars[name] = Bar(class_colour(row))
            self._values[name] = QLabel()
            self._values[name].setAlignment(
                Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
            )
            self._grid.addWidget(label, row, 0)
            self._grid.addWidget(self.bars[name], row, 1)
            self._grid.addWidget(self._values[name], row, 2)
