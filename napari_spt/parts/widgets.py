"""Small widgets that docks are built from."""

import re
from html import escape

from qtpy.QtCore import QEvent, Qt, Signal
from qtpy.QtWidgets import QLabel, QSizePolicy, QToolButton, QVBoxLayout, QWidget

# Longer words than this are broken: a file's name would make a dock as wide as itself.
LONGEST = 18
_BREAK = "\u200b"


def plain_label(words: str = "") -> QLabel:
    """A label for what users and files named: nothing in it is taken for HTML."""
    label = QLabel(words)
    label.setTextFormat(Qt.TextFormat.PlainText)
    return label


def plain_tip(words: str) -> str:
    """The same for a tooltip, which has no such setting."""
    if "<" not in words:
        return words
    return f"<span style='white-space:pre-wrap'>{escape(words)}</span>"


class Text(QLabel):
    """A label that wraps, within long words too.

    Parameters
    ----------
    is_html
        Whether the words are HTML; what users and files named is escaped in them.
    """

    def __init__(self, words: str = "", *, is_html: bool = False) -> None:
        super().__init__()
        self.is_html = is_html
        kinds = Qt.TextFormat
        self.setTextFormat(kinds.RichText if is_html else kinds.PlainText)
        self.setWordWrap(True)
        self.setText(words)

    def setText(self, words: str) -> None:
        super().setText(words if self.is_html else _breakable(words))

    def text(self) -> str:
        return super().text().replace(_BREAK, "")


def text(words: str = "", name: str = "", *, is_html: bool = False) -> QLabel:
    """A label that wraps, and whose text can be copied."""
    label = Text(words, is_html=is_html)
    label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
    if name:
        label.setAccessibleName(name)
    return label


class Column(QWidget):
    """The content of a scroll area, as high as its wrapped text needs."""

    laid_out = Signal()

    def event(self, event: QEvent) -> bool:
        done = super().event(event)
        if event.type() in (QEvent.Type.LayoutRequest, QEvent.Type.Resize):
            height = self.layout().totalHeightForWidth(self.width())
            if height > 0 and height != self.minimumHeight():
                self.setMinimumHeight(height)
            self.laid_out.emit()
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


class FoldButton(QToolButton):
    """A heading that shows or hides what is below it."""

    # Not superqt's QCollapsible: what it folds stays in the order of the tab key, its
    # button shows no focus, and it cuts wrapped text off at the size hint's height.

    def __init__(self, title: str) -> None:
        super().__init__()
        self.setObjectName("spt_fold")
        self.setText(title)
        self.setCheckable(True)
        self.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
        self.setAutoRaise(True)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAccessibleName(f"{title}: show or hide")
        self.toggled.connect(self._point)
        self._point(False)

    def _point(self, is_open: bool) -> None:
        arrow = Qt.ArrowType.DownArrow if is_open else Qt.ArrowType.RightArrow
        self.setArrowType(arrow)


class Folded(QWidget):
    """A part that opens with a click; closed at first."""

    def __init__(self, title: str, content: QWidget) -> None:
        super().__init__()
        self.button = FoldButton(title)
        self.content = content
        content.hide()
        box = QVBoxLayout(self)
        box.setContentsMargins(0, 6, 0, 0)
        box.addWidget(self.button)
        box.addWidget(content)
        self.button.toggled.connect(self.open)

    def open(self, is_open: bool) -> None:
        self.button.setChecked(is_open)
        self.content.setVisible(is_open)


def _breakable(words: str) -> str:
    """Allow a break after each part of a long word."""
    return re.sub(
        rf"\S{{{LONGEST},}}",
        lambda found: re.sub(r"([-_./\\])|(\w{12})", rf"\g<0>{_BREAK}", found[0]),
        words,
    )
