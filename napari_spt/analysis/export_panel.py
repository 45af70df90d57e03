"""Taking what was found elsewhere: a report, or maps for other programs."""

from pathlib import Path

from qtpy.QtCore import Signal
from qtpy.QtWidgets import QCheckBox, QFileDialog, QHBoxLayout, QPushButton

from napari_spt.analysis.panel import Panel
from napari_spt.analysis.slide_analysis import Change
from napari_spt.analysis.state import AnalysisState
from napari_spt.parts.settings import remember, remembered
from spt_core.insight.exporting import FORMATS, Format

FOLDER = "export_folder"


class ExportPanel(Panel):
    """Asks for a file; ``asked`` gives it, and whether to name the slide in it.

    ``cancelled`` says that nobody waits for the file any more.
    """

    shows = frozenset({Change.BEGUN, Change.PREDICTION, Change.TISSUE_MAP})
    asked = Signal(object, bool)
    cancelled = Signal()

    def __init__(self, state: AnalysisState) -> None:
        super().__init__(state)
        self.export = QPushButton("Export…")
        self.export.setToolTip("Write what was found, to read it elsewhere")
        self.names_slide = QCheckBox("with the slide's name")
        self.names_slide.setToolTip("Otherwise the report calls it by a pseudonym")
        self.cancel = QPushButton("Cancel")
        self.cancel.setAccessibleName("Cancel the export")
        self.cancel.setToolTip("Write no file")
        self.cancel.hide()
        row = QHBoxLayout()
        row.addWidget(self.export, stretch=1)
        row.addWidget(self.cancel)
        row.addWidget(self.names_slide)
        self.box.addLayout(row)
        self.cancel.clicked.connect(self._on_cancel)
        self.export.clicked.connect(self.choose_file)
        self.refresh()

    def refresh(self) -> None:
        analysis = self.state.analysis
        self.setVisible(
            analysis is not None
            and (analysis.has_attention or analysis.tissue_map is not None)
        )

    def choose_file(self) -> QFileDialog:
        filters = {one.name_filter: one for one in FORMATS}
        dialog = QFileDialog(self, "Export")
        dialog.setDirectory(remembered(FOLDER, ""))
        dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
        dialog.setNameFilters(list(filters))
        dialog.setDefaultSuffix(_suffix(FORMATS[0]))
        dialog.selectFile(f"{self.proposed_name}{FORMATS[0].endings[0]}")
        dialog.filterSelected.connect(
            lambda chosen: dialog.setDefaultSuffix(_suffix(filters[chosen]))
        )
        dialog.fileSelected.connect(
            lambda path: self.write(
                filters[dialog.selectedNameFilter()].with_ending(Path(path))
            )
        )
        dialog.open()
        return dialog

    @property
    def proposed_name(self) -> str:
        """What a file is called, without its ending: the slide's pseudonym, unless the
        slide is to be named."""
        analysis = self.state.analysis
        if analysis is None or analysis.prediction is None:
            return "report"
        if self.names_slide.isChecked():
            return analysis.slide.name.replace("/", "_")
        return analysis.prediction.pseudonym

    def write(self, path: Path) -> None:
        """Write to a file; the button waits until it is there."""
        remember(FOLDER, str(path.parent))
        self.export.setEnabled(False)
        self.cancel.show()
        self.asked.emit(path, self.names_slide.isChecked())

    def finish(self) -> None:
        self.export.setEnabled(True)
        self.cancel.hide()

    def _on_cancel(self) -> None:
        self.cancelled.emit()
        self.finish()


def _suffix(one: Format) -> str:
    return one.endings[0].lstrip(".")
