"""Where a report goes, and in which format."""

from collections.abc import Callable
from pathlib import Path

from qtpy.QtWidgets import QFileDialog, QWidget

from napari_spt.analysis.report import FORMATS


def ask_for_report(parent: QWidget, write: Callable[[Path], None]) -> QFileDialog:
    """Let the user choose a file; ``write`` gets it with its format's ending."""
    dialog = QFileDialog(parent, "Export report")
    dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
    dialog.setNameFilters(list(FORMATS))
    dialog.setDefaultSuffix("html")
    dialog.selectFile("report.html")
    dialog.filterSelected.connect(
        lambda chosen: dialog.setDefaultSuffix(FORMATS[chosen].lstrip("."))
    )
    dialog.fileSelected.connect(
        lambda path: write(
            with_ending(Path(path), FORMATS[dialog.selectedNameFilter()])
        )
    )
    dialog.open()
    return dialog


def with_ending(path: Path, ending: str) -> Path:
    """A file's path with the ending of the format that was chosen for it."""
    name = path.name
    if name.lower().endswith(ending):
        return path
    for known in (
        ".ome.tif",
        ".ome.tiff",
        ".html",
        ".geojson",
        ".tif",
        ".tiff",
        ".png",
    ):
        if name.lower().endswith(known):
            name = name[: -len(known)]
            break
    return path.with_name(name + ending)
