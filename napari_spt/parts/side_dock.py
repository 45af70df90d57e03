"""A dock beside the canvas: a column that scrolls, as wide as its text is large."""

from qtpy.QtCore import QEvent, QSize, Qt
from qtpy.QtWidgets import QFrame, QScrollArea, QVBoxLayout, QWidget

from napari_spt.parts.dock_frame import DockTab, come_forward
from napari_spt.parts.focus_ring import FocusRing
from napari_spt.parts.tool_style import ink_of
from napari_spt.parts.wheel import CalmWheel
from napari_spt.parts.widgets import Column


class SideDock(QWidget):
    """``shut_down`` is called once, however the dock is closed.

    Widgets are put into ``box``; ``lay_below`` adds what stays in sight below it.
    """

    narrowest, narrowest_lines, tall = 340, 18, 600

    def __init__(self) -> None:
        super().__init__()
        self.is_closed = False
        self._was_docked = False
        self._tab = DockTab(self)
        self.column = Column()
        self.box = QVBoxLayout(self.column)
        self.box.setContentsMargins(10, 8, 10, 10)
        self.box.setSpacing(6)
        self.scroll = QScrollArea()
        self.scroll.setWidgetResizable(True)
        self.scroll.setFrameShape(QFrame.Shape.NoFrame)
        self.scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.scroll.setWidget(self.column)
        self._outer = QVBoxLayout(self)
        self._outer.setContentsMargins(0, 0, 0, 0)
        self._outer.setSpacing(0)
        self._outer.addWidget(self.scroll)
        self.rings = [FocusRing(self.column)]
        self.wheel = CalmWheel(self.scroll)

    def lay_below(self, foot: QWidget) -> None:
        self._outer.addWidget(foot)
        self.rings.append(FocusRing(foot))

    def settle(self, label: QWidget) -> None:
        """All widgets are there: keep the dock wide enough for text as in a label."""
        self._label = label
        self.wheel.keep(self.column)
        self.column.laid_out.connect(self._on_laid_out)
        self._keep_wide()

    def sizeHint(self) -> QSize:
        return QSize(self.scroll.minimumWidth(), self.tall)

    def _on_laid_out(self) -> None:
        self._keep_wide()
        for ring in self.rings:
            ring.follow()

    def _keep_wide(self) -> None:
        lines = self.narrowest_lines * self._label.fontMetrics().height()
        bar = self.scroll.verticalScrollBar().sizeHint().width()
        width = max(self.narrowest, lines) + bar
        if width != self.scroll.minimumWidth():
            self.scroll.setMinimumWidth(width)
            self.on_text_size(width)

    def on_text_size(self, width: int) -> None:
        """The text has another size, and the dock another width."""

    def colour_rings(self, theme: str) -> None:
        for ring in self.rings:
            ring.use_colour(ink_of(theme))

    # Coming and going

    def event(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.ParentChange:
            # napari takes the widget out of its dock when the dock is closed.
            if self.parent() is None and self._was_docked:
                self.shut_down()
            self._was_docked = self.parent() is not None
        return super().event(event)

    def closeEvent(self, event: QEvent) -> None:
        self.shut_down()
        super().closeEvent(event)

    def come_forward(self) -> None:
        come_forward(self)

    def shut_down(self) -> None:
        """Leave napari as it was."""
        if self.is_closed:
            return
        self.is_closed = True
        for ring in self.rings:
            ring.close_ring()
        self.leave_window()

    def leave_window(self) -> None:
        """What else is to be done, once, when the dock is closed."""
