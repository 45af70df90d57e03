"""Small widgets that docks are built from."""

from qtpy.QtCore import QEvent, Qt, Signal
from qtpy.QtWidgets import QLabel, QToolButton, QVBoxLayout, QWidget


def text(words: str = "", name: str = "") -> QLabel:
    """A label that wraps, and whose text can be copied."""
    label = QLabel(words)
    label.setWordWrap(True)
    label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
    if name:
        label.setAccessibleName(name)
    return label


class Column(QWidget):
    """The content of a scroll area, as high as its wrapped text needs."""

    narrowest = Signal(int)

    def event(self, event: QEvent) -> bool:
        done = super().event(event)
        if event.type() in (QEvent.Type.LayoutRequest, QEvent.Type.Resize):
            height = self.layout().totalHeightForWidth(self.width())
            if height > 0 and height != self.minimumHeight():
                self.setMinimumHeight(height)
            self.narrowest.emit(self.minimumSizeHint().width())
        return done


class Section(QWidget):
    """A heading and the widgets below it."""

    def __init__(self, title: str, *content: QWidget) -> None:
        super().__init__()
        self.box = QVBoxLayout(self)
        self.box.setContentsMargins(0, 10, 0, 0)
        self.box.setSpacing(6)
        self.heading = QLabel(f"<b>{title}</b>")
        self.box.addWidget(self.heading)
        for widget in content:
            self.box.addWidget(widget)


class Folded(QWidget):
    """A part that opens with a click; closed at first."""

    # Not superqt's QCollapsible: what it folds stays in the order of the tab key, its
    # button shows no focus, and it cuts wrapped text off at the size hint's height.

    def __init__(self, title: str, content: QWidget) -> None:
        super().__init__()
        self.button = QToolButton()
        self.button.setText(title)
        self.button.setCheckable(True)
        self.button.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
        self.button.setArrowType(Qt.ArrowType.RightArrow)
        self.button.setAutoRaise(True)
        self.button.setAccessibleName(f"{title}: show or hide")
        self.content = content
        content.hide()
        box = QVBoxLayout(self)
        box.setContentsMargins(0, 10, 0, 0)
        box.addWidget(self.button)
        box.addWidget(content)
        self.button.toggled.connect(self.open)

    def open(self, is_open: bool) -> None:
        self.button.setChecked(is_open)
        self.content.setVisible(is_open)
        arrow = Qt.ArrowType.DownArrow if is_open else Qt.ArrowType.RightArrow
        self.button.setArrowType(arrow)
