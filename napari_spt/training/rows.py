"""Small parts of the dock's pages."""

from pathlib import Path

from qtpy.QtCore import Signal
from qtpy.QtWidgets import (
    QFileDialog,
    QHBoxLayout,
    QPushButton,
    QSizePolicy,
    QVBoxLayout,
    QWidget,
)

from napari_spt.parts.widgets import plain_tip, text
from napari_spt.slides.recent import recent_slides


class PathRow(QWidget):
    """A file or folder: what it is for, its name, and buttons to choose or leave it."""

    chosen = Signal(str)

    def __init__(
        self, title: str, none: str, *, is_folder: bool, tooltip: str, kinds: str = ""
    ) -> None:
        super().__init__()
        self._title, self._none = title, none
        self._is_folder, self._kinds = is_folder, kinds
        self.path = ""
        self.shown = text("", title)
        self.shown.setSizePolicy(
            QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred
        )
        self.choose_button = QPushButton("Choose…")
        self.choose_button.setAccessibleName(f"Choose: {title}")
        self.choose_button.setToolTip(tooltip)
        self.clear_button = QPushButton("✕")
        self.clear_button.setAccessibleName(f"Leave out: {title}")
        self.clear_button.setToolTip("Leave it out")
        self.clear_button.setFixedWidth(self.clear_button.sizeHint().height() + 6)
        row = QHBoxLayout()
        row.setSpacing(4)
        row.addWidget(text(f"<b>{title}</b>", is_html=True), stretch=1)
        row.addWidget(self.clear_button)
        row.addWidget(self.choose_button)
        box = QVBoxLayout(self)
        box.setContentsMargins(0, 0, 0, 0)
        box.setSpacing(2)
        box.addLayout(row)
        box.addWidget(self.shown)
        self.choose_button.clicked.connect(self.choose)
        self.clear_button.clicked.connect(lambda: self.chosen.emit(""))
        self.show_path("")

    def show_path(self, path: str, note: str = "") -> None:
        self.path = path
        words = Path(path).name if path else self._none
        self.shown.setText(f"{words} {note}".strip())
        self.shown.setToolTip(plain_tip(path))
        self.clear_button.setVisible(bool(path))

    def choose(self) -> None:
        """Ask for another; ``dialog`` is what asks."""
        self.dialog = QFileDialog(self, self._title)
        if self._is_folder:
            self.dialog.setFileMode(QFileDialog.FileMode.Directory)
        else:
            self.dialog.setFileMode(QFileDialog.FileMode.ExistingFile)
            if self._kinds:
                self.dialog.setNameFilters([self._kinds, "All files (*)"])
        recent = recent_slides()
        start = self.path or (recent[0] if recent else "")
        if start:
            self.dialog.setDirectory(str(Path(start).parent))
        self.dialog.fileSelected.connect(self.chosen)
        self.dialog.open()
