"""The study's model beside simpler methods: one row each, with its interval."""

from collections.abc import Sequence

from qtpy.QtCore import Qt
from qtpy.QtWidgets import (
    QAbstractItemView,
    QHeaderView,
    QTableWidget,
    QTableWidgetItem,
)

from napari_spt.training.result_words import METHODS
from spt_core.studies.study_report import ReportRow


class ScoreTable(QTableWidget):
    """As high as its rows; the first, the study's own, is bold."""

    def __init__(self) -> None:
        super().__init__(0, 3)
        self.setHorizontalHeaderLabels(["Method", "Right", "95 %"])
        self.setAccessibleName("Share of right answers of each method")
        self.setToolTip(
            "The mean over labels of the share that was found, on slides of patients "
            "that were not learned from, and between which bounds it lies"
        )
        self.verticalHeader().hide()
        self.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.setSelectionMode(QAbstractItemView.SelectionMode.NoSelection)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setWordWrap(True)

    def show_rows(self, rows: Sequence[ReportRow]) -> None:
        self.setRowCount(len(rows))
        for number, row in enumerate(rows):
            called = METHODS.get(row.method, row.method)
            mean, low, high = (
                f"{100 * one:.0f}" for one in (row.mean, row.low, row.high)
            )
            for column, words in enumerate((called, f"{mean} %", f"{low} to {high}")):
                item = QTableWidgetItem(words)
                if number == 0:
                    font = item.font()
                    font.setBold(True)
                    item.setFont(font)
                self.setItem(number, column, item)
        header = self.horizontalHeader()
        header.setSectionResizeMode(0, QHeaderView.ResizeMode.Stretch)
        for column in (1, 2):
            header.setSectionResizeMode(column, QHeaderView.ResizeMode.ResizeToContents)

    def take_room(self) -> None:
        self.resizeRowsToContents()
        rows = sum(self.rowHeight(number) for number in range(self.rowCount()))
        self.setFixedHeight(rows + self.horizontalHeader().sizeHint().height() + 4)
