"""A confusion matrix that can be clicked."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from qtpy.QtCore import Qt, Signal
from qtpy.QtGui import QColor
from qtpy.QtWidgets import (
    QAbstractItemView,
    QHeaderView,
    QTableWidget,
    QTableWidgetItem,
)

from napari_spt.parts.widgets import plain_tip

RIGHT, WRONG = (0, 114, 178), (213, 94, 0)


class Matrix(QTableWidget):
    """Slides by their class (rows) and the answer (columns)."""

    chosen = Signal(int, int)  # class and answer

    def __init__(self) -> None:
        super().__init__()
        self.setAccessibleName("Slides by their label and by the answer")
        self.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setToolTip("A click lists the slides, the most wrong one first")
        self.cellClicked.connect(self._choose)
        self.cellActivated.connect(self._choose)

    def show_counts(self, counts: NDArray[np.int64], classes: Sequence[str]) -> None:
        self.setRowCount(len(classes))
        self.setColumnCount(len(classes))
        self.setVerticalHeaderLabels([_short(name) for name in classes])
        self.setHorizontalHeaderLabels([_short(name) for name in classes])
        header = self.horizontalHeader()
        header.setSectionResizeMode(QHeaderView.ResizeMode.Stretch)
        for number, name in enumerate(classes):
            self.horizontalHeaderItem(number).setToolTip(plain_tip(f"answered: {name}"))
            self.verticalHeaderItem(number).setToolTip(plain_tip(f"labelled: {name}"))
        totals = np.maximum(counts.sum(axis=1), 1)
        for row, label in enumerate(classes):
            for column, said in enumerate(classes):
                count = int(counts[row, column])
                item = QTableWidgetItem(str(count))
                item.setTextAlignment(Qt.AlignmentFlag.AlignCenter)
                colour = QColor(*(RIGHT if row == column else WRONG))
                colour.setAlphaF(0.6 * count / float(totals[row]))
                item.setBackground(colour)
                many = "1 slide" if count == 1 else f"{count} slides"
                item.setToolTip(plain_tip(f"{many} of {label}, answered {said}"))
                self.setItem(row, column, item)
        self.take_room()

    def take_room(self) -> None:
        """As high as its rows."""
        self.resizeRowsToContents()
        rows = sum(self.rowHeight(row) for row in range(self.rowCount()))
        self.setFixedHeight(rows + self.horizontalHeader().sizeHint().height() + 4)

    def _choose(self, row: int, column: int) -> None:
        self.chosen.emit(row, column)


def _short(name: str) -> str:
    return name if len(name) <= 14 else name[:13] + "…"
