"""The legend of the map: names with their colours, or a scale of numbers."""

from qtpy.QtCore import QEvent, QRectF, QSize, Qt, Signal
from qtpy.QtGui import QColor, QFontMetrics, QIcon, QLinearGradient, QPainter, QPixmap
from qtpy.QtWidgets import QSizePolicy, QToolButton, QVBoxLayout, QWidget
from superqt.utils import QFlowLayout

from napari_spt.parts.widgets import plain_tip
from napari_spt.slide_map.colouring import Colouring

LONGEST_WORDS = 26


class Legend(QWidget):
    """A click on a name lets its slides stand out, another one lets all."""

    only = Signal(object)

    def __init__(self) -> None:
        super().__init__()
        self.buttons: list[QToolButton] = []
        self.scale = ColourScale()
        self.names = _Names()
        box = QVBoxLayout(self)
        box.setContentsMargins(0, 0, 0, 0)
        box.addWidget(self.scale)
        box.addWidget(self.names)

    def show_colouring(self, found: Colouring) -> None:
        self.scale.show_colouring(found)
        self.scale.setVisible(found.bounds is not None)
        self._clear()
        for entry in found.entries:
            button = QToolButton()
            words = entry.words
            if len(words) > LONGEST_WORDS:
                words = words[: LONGEST_WORDS - 1] + "…"
            button.setText(f"{words} ({entry.count})")
            button.setIcon(_swatch(found.rgb(entry.group), self.fontMetrics()))
            button.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
            button.setCheckable(True)
            button.setObjectName("spt_name")
            button.setToolTip(plain_tip(f"Let {entry.words} stand out"))
            button.setAccessibleName(f"{entry.words}, {entry.count} slides")
            button.clicked.connect(
                lambda on, group=entry.group, one=button: self._choose(one, group, on)
            )
            self.buttons.append(button)
            self.names.flow.addWidget(button)
        self.names.setVisible(bool(self.buttons))
        self.names.take_room()

    def _choose(self, chosen: QToolButton, group: int, is_on: bool) -> None:
        for button in self.buttons:
            button.setChecked(is_on and button is chosen)
        self.only.emit(group if is_on else None)

    def _clear(self) -> None:
        while self.names.flow.count():
            widget = self.names.flow.takeAt(0).widget()
            widget.hide()
            widget.deleteLater()
        self.buttons = []


class _Names(QWidget):
    def __init__(self) -> None:
        super().__init__()
        self.flow = QFlowLayout(self)
        self.flow.setContentsMargins(0, 0, 0, 0)
        self.flow.setHorizontalSpacing(2)
        self.flow.setVerticalSpacing(2)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)

    def take_room(self) -> None:
        """As high as its rows; a scroll area asks nobody for that."""
        height = self.flow.heightForWidth(self.width())
        if self.minimumHeight() != height or self.maximumHeight() != height:
            self.setFixedHeight(height)

    def event(self, event: QEvent) -> bool:
        done = super().event(event)
        # Names that were added while the map was hidden have no height until now.
        if event.type() in (QEvent.Type.Resize, QEvent.Type.LayoutRequest):
            self.take_room()
        return done


class ColourScale(QWidget):
    """From the least to the greatest number, with both written below."""

    def __init__(self) -> None:
        super().__init__()
        self._colouring: Colouring | None = None
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def show_colouring(self, found: Colouring) -> None:
        self._colouring = found
        if found.bounds is not None:
            low, high = found.bounds
            self.setAccessibleName(f"{found.title}: {low:.3g} to {high:.3g}")
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(200, 14 + self.fontMetrics().height() + 4)

    def paintEvent(self, _event) -> None:
        if self._colouring is None or self._colouring.bounds is None:
            return
        colours = self._colouring.colours
        painter = QPainter(self)
        bar = QRectF(0, 0, self.width(), 12)
        gradient = QLinearGradient(bar.topLeft(), bar.topRight())
        for number, rgb in enumerate(colours):
            gradient.setColorAt(number / (len(colours) - 1), QColor(*rgb))
        painter.fillRect(bar, gradient)
        painter.setPen(self.palette().windowText().color())
        below = QRectF(0, 14, self.width(), self.fontMetrics().height() + 2)
        low, high = self._colouring.bounds
        painter.drawText(below, Qt.AlignmentFlag.AlignLeft, f"{low:.3g}")
        painter.drawText(below, Qt.AlignmentFlag.AlignRight, f"{high:.3g}")
        painter.end()


def _swatch(rgb: tuple[int, int, int], metrics: QFontMetrics) -> QIcon:
    side = max(12, metrics.height() - 2)
    picture = QPixmap(side, side)
    picture.fill(QColor(0, 0, 0, 0))
    painter = QPainter(picture)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.setBrush(QColor(*rgb))
    painter.setPen(QColor(128, 128, 128))
    painter.drawEllipse(QRectF(1, 1, side - 2, side - 2))
    painter.end()
    return QIcon(picture)
