"""Which slides a new site is measured by, and what it is to be called."""

from collections.abc import Collection, Sequence

from qtpy.QtCore import Qt, Signal
from qtpy.QtWidgets import (
    QDialog,
    QDialogButtonBox,
    QLineEdit,
    QListWidget,
    QListWidgetItem,
    QVBoxLayout,
    QWidget,
)

from napari_spt.parts.widgets import text

ABOUT = (
    "Tick the slides that were stained and scanned in one place. A handful is better "
    "than one: whatever is special of a single slide counts as its site's."
)
NAME = "The model's file will know the site by this name, for whoever gets the file:"
TAKEN = "The model learned from a site of this name: choose another."
_SIZE = (420, 360)


class SiteDialog(QDialog):
    """
    Parameters
    ----------
    slides
        Each slide's name, and its site where that is known already.
    taken
        Names that a new site cannot have.
    """

    answered = Signal(str, list)  # the name, and the numbers of the ticked slides

    def __init__(
        self,
        parent: QWidget,
        slides: Sequence[tuple[str, str | None]],
        name: str,
        taken: Collection[str],
    ) -> None:
        super().__init__(parent)
        self.setWindowTitle("Learn a site")
        self.resize(*_SIZE)
        self.taken = taken
        self.list = QListWidget()
        self.list.setAccessibleName("Slides of the site")
        for slide, site in slides:
            item = QListWidgetItem(slide if site is None else f"{slide} ({site})")
            ticked = Qt.CheckState.Unchecked if site else Qt.CheckState.Checked
            item.setCheckState(ticked)
            self.list.addItem(item)
        self.name = QLineEdit(name)
        self.name.setAccessibleName("Name of the site")
        self.trouble = text("", "What is wrong with the name")
        buttons = QDialogButtonBox(QDialogButtonBox.StandardButton.Cancel)
        self.learn = buttons.addButton("Learn", QDialogButtonBox.ButtonRole.AcceptRole)
        box = QVBoxLayout(self)
        box.addWidget(text(ABOUT))
        box.addWidget(self.list)
        box.addWidget(text(NAME))
        box.addWidget(self.name)
        box.addWidget(self.trouble)
        box.addWidget(buttons)
        buttons.rejected.connect(self.reject)
        buttons.accepted.connect(self._on_learn)
        self.name.textChanged.connect(self._check)
        self.list.itemChanged.connect(self._check)
        self._check()
        self.name.setFocus()

    def ticked(self) -> list[int]:
        return [
            row
            for row in range(self.list.count())
            if self.list.item(row).checkState() == Qt.CheckState.Checked
        ]

    def _check(self, _changed: object = None) -> None:
        name = self.name.text().strip()
        self.trouble.setText(TAKEN if name in self.taken else "")
        self.trouble.setVisible(name in self.taken)
        fits = bool(name) and name not in self.taken and bool(self.ticked())
        self.learn.setEnabled(fits)

    def _on_learn(self) -> None:
        self.accept()
        self.answered.emit(self.name.text().strip(), self.ticked())
