"""Three lists of slides: nearest to the open one, unusual ones, and those chosen."""

import io
from collections.abc import Sequence
from pathlib import Path

from qtpy.QtCore import Signal
from qtpy.QtWidgets import (
    QApplication,
    QCheckBox,
    QFileDialog,
    QHBoxLayout,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from napari_spt.parts.notices import show_error
from napari_spt.parts.tabs import Tabs
from napari_spt.parts.widgets import text
from napari_spt.slide_map.slide_list import MOST, SlideList
from napari_spt.slide_map.words import (
    NO_CHOICE,
    NO_SLIDE,
    UNUSUAL_HELP,
    chosen_table,
    nearest_words,
    slide_lines,
    unusual_words,
)
from spt_core.csv_files import write_lines
from spt_core.files import written_whole
from spt_core.insight.slide_map import MapOfSlides
from spt_core.tokens import Labels

NEAREST = 20


class ListsPanel(QWidget):
    """Pages of slides; a click opens one, a key points to it."""

    opened = Signal(int)
    pointed = Signal(int)

    def __init__(self) -> None:
        super().__init__()
        self._map: MapOfSlides | None = None
        self._labels: Labels | None = None
        self.nearest_of, self.nearest = text(NO_SLIDE), SlideList("Nearest slides")
        self.unusual = SlideList("Unusual slides, the most unusual first")
        self.chosen_says, self.chosen = text(NO_CHOICE), SlideList("Chosen slides")
        self.copy, self.save = QPushButton("Copy"), QPushButton("Save…")
        self.copy.setToolTip("Copy the list, to paste it elsewhere")
        self.save.setToolTip("Save the list as a table (.csv)")
        self.named = QCheckBox("With the slides’ names")
        self.named.setToolTip("Without, slides are called by pseudonyms")
        self.tabs = Tabs("map_tab")
        self.tabs.add("Nearest", _page(self.nearest_of, self.nearest))
        self.tabs.add("Unusual first", _page(text(UNUSUAL_HELP), self.unusual))
        self._buttons = QWidget()
        row = QHBoxLayout(self._buttons)
        row.setContentsMargins(0, 0, 0, 0)
        row.addWidget(self.copy)
        row.addWidget(self.save)
        self.tabs.add(
            "Chosen", _page(self.chosen_says, self.chosen, self.named, self._buttons)
        )
        box = QVBoxLayout(self)
        box.setContentsMargins(0, 0, 0, 0)
        box.addWidget(self.tabs)
        for one in (self.nearest, self.unusual, self.chosen):
            one.opened.connect(self.opened)
            one.pointed.connect(self.pointed)
        self.copy.clicked.connect(self._copy)
        self.save.clicked.connect(self._ask_file)
        self._show_choice([])

    def show_map(self, found: MapOfSlides, labels: Labels | None) -> None:
        self._map, self._labels = found, labels
        times = found.unusual
        order = (-times).argsort(kind="stable")[:MOST].tolist()
        words = [unusual_words(row, times[row], found, labels) for row in order]
        self.unusual.show_slides(order, words)

    def show_nearest(self, slide: int) -> None:
        """The slides most like one; -1 where none of the map is open."""
        found = self._map
        self.nearest.setVisible(found is not None and slide >= 0)
        if found is None or slide < 0:
            self.nearest_of.setText(NO_SLIDE)
            return
        self.nearest_of.setText(
            f"Most like {found.names[slide]}, with their distance: 0 is the same, 1 "
            "has nothing in common."
        )
        near = found.nearest(slide, NEAREST)
        words = [nearest_words(row, far, found, self._labels) for row, far in near]
        self.nearest.show_slides([row for row, _ in near], words)

    def choose(self, rows: Sequence[int]) -> None:
        """Show the slides that were lassoed."""
        self._show_choice(rows)
        self.tabs.show_page("Chosen")

    def _show_choice(self, rows: Sequence[int]) -> None:
        is_any = self._map is not None and len(rows) > 0
        for one in (self.chosen, self.named, self._buttons):
            one.setVisible(is_any)
        self._rows = list(rows)
        if self._map is None or not is_any:
            self.chosen_says.setText(NO_CHOICE)
            return
        many = "1 slide" if len(rows) == 1 else f"{len(rows):,} slides"
        self.chosen_says.setText(f"{many} chosen.")
        words = [
            " · ".join(slide_lines(row, self._map, self._labels)) for row in rows[:MOST]
        ]
        self.chosen.show_slides(list(rows), words)

    # Taking the list along

    def table_text(self, delimiter: str = ",") -> str:
        if self._map is None:
            return ""
        named = self.named.isChecked()
        file = io.StringIO()
        table = chosen_table(self._rows, self._map, self._labels, named=named)
        write_lines(file, table, delimiter=delimiter)
        return file.getvalue()

    def _copy(self) -> None:
        # By tabs, so that a spreadsheet takes the columns apart.
        QApplication.clipboard().setText(self.table_text("\t"))

    def _ask_file(self) -> None:
        self.dialog = QFileDialog(self, "Save the list", "slides.csv")
        self.dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
        self.dialog.setDefaultSuffix("csv")
        self.dialog.fileSelected.connect(self.save_to)
        self.dialog.open()

    def save_to(self, path: str | Path) -> None:
        try:
            with written_whole(Path(path)) as temporary:
                temporary.write_text(self.table_text(), encoding="utf-8")
        except OSError as error:
            show_error(f"{Path(path).name} cannot be written: {error.strerror}.")


def _page(*widgets: QWidget) -> QWidget:
    page = QWidget()
    box = QVBoxLayout(page)
    box.setContentsMargins(0, 0, 0, 0)
    box.setSpacing(4)
    for widget in widgets:
        box.addWidget(widget)
    return page
