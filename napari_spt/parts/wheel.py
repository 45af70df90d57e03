"""The wheel scrolls a dock; it changes nothing there that nobody has taken hold of."""

import time

from qtpy.QtCore import QEvent, QObject, Qt
from qtpy.QtWidgets import (
    QAbstractSlider,
    QAbstractSpinBox,
    QComboBox,
    QScrollArea,
    QScrollBar,
    QWidget,
)

# Someone who scrolls goes on scrolling, whatever comes to lie below the mouse.
SCROLLING_S = 0.6


class CalmWheel(QObject):
    """Lets the wheel pass over the controls of a scroll area.

    A list never follows it. A slider or a number does once it was clicked or reached
    by key, unless the dock is being scrolled.
    """

    def __init__(self, scroll: QScrollArea) -> None:
        super().__init__(scroll)
        self._scrolled = 0.0
        self._viewport = scroll.viewport()
        self._viewport.installEventFilter(self)

    def keep(self, widget: QWidget) -> None:
        """Keep a widget, and all that is in it, from following the wheel."""
        for control in (widget, *widget.findChildren(QWidget)):
            if is_turned_by_wheel(control):
                control.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
                control.removeEventFilter(self)
                control.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() != QEvent.Type.Wheel:
            return False
        now = time.monotonic()
        if watched is self._viewport:
            self._scrolled = now
            return False
        is_held = not isinstance(watched, QComboBox) and watched.hasFocus()
        if is_held and now - self._scrolled > SCROLLING_S:
            return False
        event.ignore()  # what is ignored goes on to the scroll area
        return True


def is_turned_by_wheel(widget: QWidget) -> bool:
    """Whether Qt lets the wheel change a widget's value."""
    kinds = (QComboBox, QAbstractSpinBox, QAbstractSlider)
    return isinstance(widget, kinds) and not isinstance(widget, QScrollBar)
