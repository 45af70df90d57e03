"""How often answers of a confidence come true: points beside the diagonal."""

import numpy as np
from numpy.typing import NDArray
from qtpy.QtCore import QPointF, QRectF, QSize, Qt
from qtpy.QtGui import QFontMetrics, QPainter, QPen
from qtpy.QtWidgets import QSizePolicy, QWidget

from napari_spt.parts.tool_style import text_font

SIDE = 150
# Radii of points, with their edge.
SMALLEST, LARGEST = 3, 10


class CalibrationPlot(QWidget):
    """Confidence to the right, share that was right upwards; larger: more slides."""

    def __init__(self) -> None:
        super().__init__()
        self.bins: NDArray[np.float64] = np.zeros((0, 3))
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAccessibleName("How often answers come true, by their confidence")
        self.setToolTip(
            "Each point: answers of one confidence (to the right) and how many of "
            "them were right (upwards). On the line, the numbers can be believed."
        )

    def show_bins(self, bins: NDArray[np.float64]) -> None:
        """Mean confidence, share that was right and slides, (n, 3)."""
        self.bins = bins
        self.update()

    def sizeHint(self) -> QSize:
        line = QFontMetrics(text_font(self.font())).height()
        return QSize(2 * SIDE, SIDE + 2 * line)

    def paintEvent(self, _event) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        ink = self.palette().windowText().color()
        painter.setFont(text_font(self.font()))
        line = painter.fontMetrics().height()
        area = QRectF(
            line + 6,
            LARGEST,
            self.width() - line - 6 - LARGEST,
            self.height() - line - 6 - LARGEST,
        )
        painter.setPen(QPen(ink, 1))
        painter.drawRect(area)
        painter.setPen(QPen(ink, 1, Qt.PenStyle.DashLine))
        painter.drawLine(area.bottomLeft(), area.topRight())
        painter.setPen(QPen(ink, 1))
        below = QRectF(area.left(), area.bottom() + 2, area.width(), line + 6)
        painter.drawText(
            below, Qt.AlignmentFlag.AlignHCenter, "how sure it was, 0 to 100 %"
        )
        painter.save()
        painter.translate(0, area.bottom())
        painter.rotate(-90)
        beside = QRectF(0, 0, area.height(), line + 4)
        painter.drawText(beside, Qt.AlignmentFlag.AlignHCenter, "how often right")
        painter.restore()
        most = max(1.0, float(self.bins[:, 2].max(initial=1)))
        painter.setBrush(self.palette().highlight())
        for sure, right, slides in self.bins.tolist():
            x = area.left() + sure * area.width()
            y = area.bottom() - right * area.height()
            radius = SMALLEST + (LARGEST - 1 - SMALLEST) * (slides / most) ** 0.5
            painter.drawEllipse(QPointF(x, y), radius, radius)
        painter.end()
