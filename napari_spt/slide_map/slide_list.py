"""A list of slides, each with a few words; a click opens one."""

from collections.abc import Sequence

from qtpy.QtCore import Qt, Signal
from qtpy.QtWidgets import QAbstractItemView, QListWidget, QListWidgetItem

# Longer lists are cut: what is not first in them, nobody looks for by scrolling.
from napari_spt.parts.widgets import plain_tip

MOST = 500


class SlideList(QListWidget):
    """Rows of a map in some order."""

    opened = Signal(int)
    pointed = Signal(int)

    def __init__(self, name: str) -> None:
        super().__init__()
        self.setAccessibleName(name)
        self.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setTextElideMode(Qt.TextElideMode.ElideRight)
        self.setToolTip("A click opens the slide")
        self.itemClicked.connect(self._open)
        self.itemActivated.connect(self._on_activated)
        self.currentItemChanged.connect(self._point)
        self.setSpacing(1)
        self._clicked: QListWidgetItem | None = None

    def show_slides(self, rows: Sequence[int], words: Sequence[str]) -> None:
        self.clear()
        for row, said in zip(rows[:MOST], words[:MOST], strict=True):
            item = QListWidgetItem(said)
            item.setToolTip(plain_tip(said))
            item.setData(Qt.ItemDataRole.UserRole, int(row))
            self.addItem(item)
        lines = min(8, max(2, self.count()))
        high = max(self.sizeHintForRow(0), self.fontMetrics().height()) + 2
        self.setFixedHeight(lines * high + 2 * self.frameWidth() + 4)

    @property
    def rows(self) -> list[int]:
        role = Qt.ItemDataRole.UserRole
        return [self.item(number).data(role) for number in range(self.count())]

    def _open(self, item: QListWidgetItem) -> None:
        self._clicked = item
        self.opened.emit(item.data(Qt.ItemDataRole.UserRole))

    def _on_activated(self, item: QListWidgetItem) -> None:
        # Some styles activate by a click, which was told already.
        if item is self._clicked:
            self._clicked = None
        else:
            self.opened.emit(item.data(Qt.ItemDataRole.UserRole))

    def _point(self, item: QListWidgetItem | None) -> None:
        self.pointed.emit(-1 if item is None else item.data(Qt.ItemDataRole.UserRole))
