"""How the answer changes as tissue is taken away, drawn as lines."""

from collections.abc import Sequence

from qtpy.QtCore import QPointF, QRectF, QSize
from qtpy.QtGui import QColor, QPainter, QPen, QPolygonF
from qtpy.QtWidgets import QSizePolicy, QWidget

from spt_core.insight.results import Faithfulness

CURVES = (
    ("most_first", "the most looked at first", (238, 102, 119)),
    ("random", "any, by chance", (150, 150, 150)),
    ("least_first", "the least looked at first", (68, 119, 170)),
)


class Curve(QWidget):
    """How likely the class stays as tissue is taken away."""

    def __init__(self) -> None:
        super().__init__()
        self.removed: Sequence[float] = ()
        self.curves: dict[str, Sequence[float]] = {}
        self.class_name = ""
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAccessibleName("Curve of the answer as tissue is taken away")

    def show_curves(self, found: Faithfulness) -> None:
        self.removed = found.removed.tolist()
        self.curves = {name: getattr(found, name).tolist() for name, _, _ in CURVES}
        self.class_name = found.class_name
        self.update()

    def sizeHint(self) -> QSize:
        line = self.fontMetrics().height()
        return QSize(14 * line, 14 * line)

    def paintEvent(self, _event) -> None:
        if not self.curves:
            return
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        ink = self.palette().text().color()
        line = self.fontMetrics().height()
        area = QRectF(self.rect()).adjusted(3 * line, 1.6 * line, -line, -5.6 * line)
        painter.setPen(QPen(ink, 1))
        painter.drawText(QPointF(2, line), f"How likely “{self.class_name}” stays")
        painter.drawRect(area)
        for share in (0.0, 0.5, 1.0):
            y = area.bottom() - share * area.height()
            painter.drawText(QPointF(2, y + line / 3), f"{share:.0%}")
            x = area.left() + share * area.width()
            painter.drawText(QPointF(x - line, area.bottom() + line), f"{share:.0%}")
        painter.drawText(
            QPointF(area.left(), area.bottom() + 2 * line), "of the tissue taken away:"
        )
        for row, (name, words, rgb) in enumerate(CURVES):
            painter.setPen(QPen(QColor(*rgb), 2))
            points = [
                QPointF(
                    area.left() + gone * area.width(),
                    area.bottom() - share * area.height(),
                )
                for gone, share in zip(self.removed, self.curves[name], strict=True)
            ]
            painter.drawPolyline(QPolygonF(points))
            y = area.bottom() + (3 + row) * line
            painter.drawLine(
                QPointF(area.left(), y - line / 3),
                QPointF(area.left() + 1.4 * line, y - line / 3),
            )
            painter.setPen(ink)
            painter.drawText(QPointF(area.left() + 1.8 * line, y), words)
        painter.end()
