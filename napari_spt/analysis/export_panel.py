"""Taking what was found elsewhere: a report, or maps for other programs."""

from pathlib import Path

from qtpy.QtCore import Signal
from qtpy.QtWidgets import QCheckBox, QFileDialog, QHBoxLayout, QPushButton

from napari_spt.analysis.panel import Panel
from napari_spt.analysis.slide_analysis import Change
from napari_spt.analysis.state import AnalysisState
from spt_core.insight.exporting import FORMATS, Format


class ExportPanel(Panel):
    """Asks for a file; ``asked`` gives it, and whether to name the slide in it."""

    shows = frozenset({Change.BEGUN, Change.PREDICTION, Change.TISSUE_MAP})
    asked = Signal(object, bool)

    def __init__(self, state: AnalysisState) -> None:
        super().__init__(state)
        self.export = QPushButton("Export…")
        self.export.setToolTip("Write what was found, to read it elsewhere")
        self.names_slide = QCheckBox("with the slide's name")
        self.names_slide.setToolTip("Otherwise the report calls it by a pseudonym")
        row = QHBoxLayout()
        row.addWidget(self.export, stretch=1)
        row.addWidget(self.names_slide)
        self.box.addLayout(row)
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
        dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
        dialog.setNameFilters(list(filters))
        dialog.setDefaultSuffix(_suffix(FORMATS[0]))
        dialog.selectFile(f"report{FORMATS[0].endings[0]}")
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

    def write(self, path: Path) -> None:
        """Write to a file; the button waits until it is there."""
        self.export.setEnabled(False)
        self.asked.emit(path, self.names_slide.isChecked())

    def finish(self) -> None:
        self.export.setEnabled(True)


def _suffix(one: Format) -> str:
    return one.endings[0].lstrip(".")
