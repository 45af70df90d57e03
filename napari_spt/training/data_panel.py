"""The page "Data": slides, labels, and what is to be known of them."""

from pathlib import Path

from qtpy.QtCore import QTimer, Signal
from qtpy.QtWidgets import (
    QCheckBox,
    QComboBox,
    QFormLayout,
    QPushButton,
    QSizePolicy,
    QVBoxLayout,
    QWidget,
)

from napari_spt.parts.background import run_in_background
from napari_spt.parts.widgets import text
from napari_spt.training.checking import Checker
from napari_spt.training.draft import StudyDraft
from napari_spt.training.findings_list import FindingsList
from napari_spt.training.labels_source import MEANING_WORDS, LabelsSource
from napari_spt.training.labels_table import LabelsTable
from napari_spt.training.rows import PathRow
from spt_core.errors import InputError
from spt_core.learning.cohort import feature_files
from spt_core.patches.folder import find_slides
from spt_core.studies.study_finding import Finding
from spt_core.tokens.tables import read_cells

CHECK_MS = 500
LABELS_FILES = "Tables (*.csv *.tsv *.txt *.xlsx)"
NOT_USED = "(none)"


class DataPanel(QWidget):
    """``checked`` says whether the data allow a run."""

    checked = Signal()
    sample_asked = Signal()

    def __init__(self, draft: StudyDraft) -> None:
        super().__init__()
        self.draft = draft
        self.checker = Checker(self)
        self.is_looked_at = False
        self.slides = PathRow(
            "Slides",
            "No folder chosen.",
            is_folder=True,
            tooltip="The folder that holds the slides",
        )
        self.features = PathRow(
            "Features that are there already",
            "None: slides are read when the study runs.",
            is_folder=True,
            tooltip="A folder of features that were made from slides before",
        )
        self.labels = PathRow(
            "Labels",
            "None: it learns without them.",
            is_folder=False,
            tooltip="A table with a row per slide: CSV or Excel",
            kinds=LABELS_FILES,
        )
        self.out = PathRow(
            "The study's folder",
            "Beside the slides.",
            is_folder=True,
            tooltip="Where models, reports and what was read of the slides are kept",
        )
        self.sample = QPushButton("Try the sample")
        self.sample.setToolTip(
            "Paints a few synthetic slides on this computer, with labels"
        )
        self.by_hand = QCheckBox("Give labels here, slide by slide")
        self.by_hand.setToolTip("They are written to labels.csv in the study's folder")
        self.table = LabelsTable()
        self.columns = QWidget()
        self.column_form = QFormLayout(self.columns)
        self.column_form.setContentsMargins(8, 0, 0, 0)
        self.column_form.setFieldGrowthPolicy(
            QFormLayout.FieldGrowthPolicy.AllNonFixedFieldsGrow
        )
        self.column_form.setRowWrapPolicy(QFormLayout.RowWrapPolicy.WrapLongRows)
        self.lists: dict[str, QComboBox] = {}
        for meaning, words in MEANING_WORDS.items():
            one = QComboBox()
            one.setAccessibleName(f"Column: {words}")
            one.setToolTip(f"Which column of the table: {words.lower()}")
            one.setSizeAdjustPolicy(
                QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon
            )
            one.setSizePolicy(
                QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred
            )
            one.activated.connect(self._on_column)
            self.lists[meaning] = one
            self.column_form.addRow(words, one)
        self.summary = text("", "What the labels hold")
        self.heading = text("<b>What was found</b>", is_html=True)
        self.status = text("", "How far the look at the data is")
        self.findings = FindingsList()
        self.again = QPushButton("Look again")
        self.again.setToolTip("Look at slides and labels once more")
        box = QVBoxLayout(self)
        box.setContentsMargins(0, 4, 0, 0)
        box.setSpacing(8)
        for widget in (
            self.slides,
            self.sample,
            self.features,
            self.labels,
            self.columns,
            self.by_hand,
            self.table,
            self.summary,
            self.out,
            self.heading,
            self.status,
            self.findings,
            self.again,
        ):
            box.addWidget(widget)
        self._connect()
        self.refresh()

    def _connect(self) -> None:
        draft = self.draft
        self.slides.chosen.connect(self._take_slides)
        self.features.chosen.connect(lambda path: draft.set(features=path))
        self.labels.chosen.connect(self.take_labels)
        self.out.chosen.connect(lambda path: draft.set(out=path))
        self.sample.clicked.connect(self.sample_asked)
        self.by_hand.toggled.connect(self._on_by_hand)
        self.table.changed.connect(self._on_table)
        self.again.clicked.connect(self.look)
        self.checker.found.connect(self._on_found)
        self.checker.ended.connect(self._on_ended)
        self._soon = QTimer(self)
        self._soon.setSingleShot(True)
        self._soon.setInterval(CHECK_MS)
        self._soon.timeout.connect(self.look)
        draft.changed.connect(self._on_draft)

    # Choosing

    def _take_slides(self, path: str) -> None:
        """A folder of slides; a table of labels that lies in it is taken too."""
        values = {"slides": path}
        self.draft.set(**values)
        if not path or self.draft.labels.is_given:
            return
        for name in ("labels.csv", "labels.xlsx", "labels.tsv"):
            for folder in (Path(path), Path(path).parent):
                if (folder / name).is_file():
                    self.take_labels(str(folder / name))
                    return

    def take_labels(self, path: str) -> None:
        self.draft.set_labels(LabelsSource.of_file(path))

    def _on_column(self) -> None:
        columns = {
            meaning: one.currentText()
            for meaning, one in self.lists.items()
            if one.currentIndex() > 0
        }
        self.draft.set_labels(LabelsSource(self.draft.labels.file, columns))

    def _on_by_hand(self, wanted: bool) -> None:
        if wanted:
            if self.draft.labels.file:
                self.draft.set_labels(LabelsSource())
            self._fill_table()
        elif self.draft.labels.table:
            self.draft.set_labels(LabelsSource())
        self.refresh()

    def _on_table(self) -> None:
        self.draft.set_labels(LabelsSource(table=self.table.table()))

    def _fill_table(self) -> None:
        draft = self.draft

        def list_them() -> list[Path]:
            if draft.slides:
                return find_slides([Path(draft.slides)])
            return list(feature_files(draft.features)) if draft.features else []

        run_in_background(
            list_them,
            lambda paths: self.table.show_slides(paths, draft.labels.table),
            lambda error: self.summary.setText(str(error)),
            owner=self,
        )

    # Showing

    def refresh(self) -> None:
        draft, labels = self.draft, self.draft.labels
        self.slides.show_path(draft.slides)
        self.features.show_path(draft.features)
        self.labels.show_path(labels.file)
        self.labels.setVisible(not self.by_hand.isChecked())
        out = draft.out_folder
        self.out.show_path(str(out) if out else "")
        self.out.clear_button.setVisible(bool(draft.out))
        self.out.setVisible(draft.has_data)
        self.sample.setVisible(not draft.has_data)
        self.by_hand.setVisible(draft.has_data and not labels.file)
        if labels.file and self.by_hand.isChecked():
            self.by_hand.setChecked(False)
        self.table.setVisible(self.by_hand.isChecked() and draft.has_data)
        self._show_columns()
        for widget in (self.heading, self.again):
            widget.setVisible(draft.has_data)

    def _show_columns(self) -> None:
        labels = self.draft.labels
        words, header = "", []
        if labels.file:
            try:
                header, _ = read_cells(Path(labels.file))
                words = labels.problem() or labels.summary()
            except (InputError, OSError) as error:
                words = str(error)
        elif labels.table:
            words = labels.summary()
        for meaning, one in self.lists.items():
            one.clear()
            one.addItems([NOT_USED, *(name for name in header if name)])
            one.setCurrentIndex(max(0, one.findText(labels.columns.get(meaning, ""))))
        self.columns.setVisible(bool(header))
        self.summary.setText(words)
        self.summary.setVisible(bool(words))

    # Looking at the data

    def _on_draft(self) -> None:
        self.refresh()
        self.is_looked_at = False
        self.checker.stop()
        self._soon.start()
        self.checked.emit()

    def look(self) -> None:
        """Look at slides and labels, in a process of its own."""
        self._soon.stop()
        self.findings.clear()
        self.is_looked_at = False
        if not self.draft.has_data:
            self.status.setText("")
            self.status.hide()
            return
        self.status.show()
        try:
            settings = self.draft.checked_settings()
        except (InputError, OSError) as error:
            self.status.setText(str(error))
            self.checked.emit()
            return
        self.status.setText("Looking at slides and labels…")
        self.checker.check(settings)
        self.checked.emit()

    def _on_found(self, one: object) -> None:
        if not isinstance(one, Finding):
            return
        self.findings.add(one)
        if not self.is_looked_at:  # what stops the run comes first
            self.is_looked_at = True
            self.checked.emit()
        self.status.setText("Measuring how long it will take…")

    def _on_ended(self, said: str) -> None:
        self.status.setText(said)
        self.status.setVisible(bool(said))
        self.checked.emit()

    def stop(self) -> None:
        self._soon.stop()
        self.checker.close()
        self.table.stop()
