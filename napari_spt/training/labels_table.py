"""Labels given here, slide by slide, with a picture of each."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from napari.qt.threading import GeneratorWorker, create_worker
from qtpy.QtCore import QSize, Qt, Signal
from qtpy.QtGui import QGuiApplication, QIcon, QImage, QKeySequence, QPixmap
from qtpy.QtWidgets import QHeaderView, QTableWidget, QTableWidgetItem

from napari_spt.parts.tool_style import table_style
from napari_spt.parts.widgets import plain_tip
from napari_spt.training.labels_source import name_of
from spt_core.errors import InputError
from spt_core.slides import open_slide

COLUMNS = ("slide", "label", "patient")
SIDE = 44
ROWS_SHOWN = 6
MOST_PIXELS = 4_000_000


class LabelsTable(QTableWidget):
    """One row per slide; ``changed`` when a cell was written."""

    changed = Signal()

    def __init__(self) -> None:
        super().__init__(0, len(COLUMNS))
        self.setHorizontalHeaderLabels(["Slide", "Label", "Patient"])
        self.setAccessibleName("Labels of slides")
        self.setToolTip(
            "Write a label in each row; rows without one are not tested. Ctrl+V pastes "
            "a column from a spreadsheet"
        )
        self.verticalHeader().hide()
        self.setIconSize(QSize(SIDE, SIDE))
        self.setTextElideMode(Qt.TextElideMode.ElideMiddle)
        self.setTabKeyNavigation(False)
        head = self.horizontalHeader()
        head.setSectionResizeMode(0, QHeaderView.ResizeMode.Stretch)
        self.setMinimumHeight(ROWS_SHOWN * (SIDE + 6))
        self._worker: GeneratorWorker | None = None
        self._is_filling = False
        self.itemChanged.connect(self._on_changed)

    def resizeEvent(self, event) -> None:
        super().resizeEvent(event)
        self._take_style()

    def _take_style(self) -> None:
        """Text as large as elsewhere; a slide's name is longer than a label."""
        style = table_style()
        if self.styleSheet() == style:
            return
        self.setStyleSheet(style)
        wide = self.fontMetrics().averageCharWidth()
        for column, letters in ((1, 12), (2, 9)):
            self.horizontalHeader().resizeSection(column, letters * wide)

    def show_slides(
        self, paths: list[Path], table: Mapping[str, Mapping[str, str]]
    ) -> None:
        self.stop()
        self._is_filling = True
        self.setRowCount(len(paths))
        for row, path in enumerate(paths):
            name = name_of(path)
            first = QTableWidgetItem(name)
            first.setFlags(first.flags() & ~Qt.ItemFlag.ItemIsEditable)
            first.setToolTip(plain_tip(str(path)))
            self.setItem(row, 0, first)
            for column, meaning in enumerate(COLUMNS[1:], start=1):
                cell = table.get(name, {}).get(meaning, "")
                self.setItem(row, column, QTableWidgetItem(cell))
            self.setRowHeight(row, SIDE + 6)
        self._is_filling = False
        worker = create_worker(pictures, list(paths))
        worker.yielded.connect(self._show_picture)
        self._worker = worker
        worker.start()

    def table(self) -> dict[str, dict[str, str]]:
        found = {}
        for row in range(self.rowCount()):
            cells = {
                meaning: item.text().strip()
                for column, meaning in enumerate(COLUMNS)
                if (item := self.item(row, column)) is not None
            }
            name = cells.pop("slide")
            found[name] = {key: cell for key, cell in cells.items() if cell}
        return found

    def paste(self, words: str) -> None:
        """Write lines down from the chosen cell, as out of a spreadsheet."""
        top, left = max(self.currentRow(), 0), max(self.currentColumn(), 1)
        self._is_filling = True
        for down, line in enumerate(words.rstrip("\r\n").splitlines()):
            for right, cell in enumerate(line.split("\t")):
                item = self.item(top + down, left + right)
                if item is not None and left + right > 0:
                    item.setText(cell.strip())
        self._is_filling = False
        self.changed.emit()

    def keyPressEvent(self, event) -> None:
        if event.matches(QKeySequence.StandardKey.Paste):
            self.paste(QGuiApplication.clipboard().text())
            return
        super().keyPressEvent(event)

    def stop(self) -> None:
        """Read no further pictures."""
        if self._worker is not None:
            self._worker.yielded.disconnect(self._show_picture)
            self._worker.quit()
            self._worker = None

    def _on_changed(self, item: QTableWidgetItem) -> None:
        if not self._is_filling and item.column() > 0:
            self.changed.emit()

    def _show_picture(self, found: tuple[int, np.ndarray | None]) -> None:
        row, rgb = found
        item = self.item(row, 0)
        if rgb is None or item is None:
            return
        rgb = np.ascontiguousarray(rgb)
        height, width = rgb.shape[:2]
        image = QImage(rgb.data, width, height, 3 * width, QImage.Format.Format_RGB888)
        picture = QPixmap.fromImage(image.copy()).scaled(
            SIDE, SIDE, Qt.AspectRatioMode.KeepAspectRatio
        )
        self._is_filling = True
        item.setIcon(QIcon(picture))
        self._is_filling = False


def pictures(paths: list[Path]) -> Iterator[tuple[int, np.ndarray | None]]:
    """A small picture of each slide; None of what cannot be read."""
    for row, path in enumerate(paths):
        try:
            yield row, small_picture(path)
        except (InputError, OSError, ValueError):
            yield row, None


def small_picture(path: Path, side: int = 2 * SIDE) -> np.ndarray:
    """(h, w, 3), about ``side`` pixels high or wide, of the coarsest level."""
    slide = open_slide(path)
    try:
        level = slide.pyramid[-1]
        height, width = level.shape[:2]
        if width * height > MOST_PIXELS:  # without coarse levels: too long to read
            raise InputError(f"{path.name} has no coarse level.")
        rgb = np.asarray(level)
    finally:
        slide.close()
    step = max(1, max(width, height) // side)
    return rgb[::step, ::step, :3]
