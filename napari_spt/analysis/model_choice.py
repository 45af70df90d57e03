"""Which model to ask: the one that came with the package, recent ones, or a file."""

from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from napari.utils.notifications import show_error
from qtpy.QtCore import Qt, Signal
from qtpy.QtWidgets import (
    QComboBox,
    QDialog,
    QDialogButtonBox,
    QFileDialog,
    QHBoxLayout,
    QLabel,
    QPushButton,
    QSizePolicy,
    QVBoxLayout,
    QWidget,
)

from napari_spt.parts.settings import remember, remembered
from spt_core.errors import InputError
from spt_core.insight.model_words import DEMONSTRATION, ModelWords, read_model_words

if TYPE_CHECKING:
    from collections.abc import Sequence

NONE_WORDS = "No model: map the tissue"
FILE_WORDS = "Choose a file…"
BUNDLED_WORDS = "Demonstration model"
_RECENT = 6
_NOT_FOR_DIAGNOSIS = "For research, not for diagnosis."


class ModelChoice(QWidget):
    """A list of models and the card of the chosen one."""

    changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.list = QComboBox()
        self.list.setAccessibleName("Model")
        self.list.setToolTip("The model that looks at the slide")
        self.list.setSizePolicy(
            QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred
        )
        self.list.setSizeAdjustPolicy(
            QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon
        )
        self.list.setMinimumContentsLength(15)
        self.about = QPushButton("About")
        self.about.setAccessibleName("About this model")
        self.about.setToolTip("What this model was trained for, on what, how well")
        self.doubt = _text("")
        self.doubt.setAccessibleName("What to know of this model")
        row = QHBoxLayout()
        row.addWidget(self.list, stretch=1)
        row.addWidget(self.about)
        box = QVBoxLayout(self)
        box.setContentsMargins(0, 0, 0, 0)
        box.addLayout(row)
        box.addWidget(self.doubt)
        self._last = 0
        self.fill()
        self.list.activated.connect(self._chosen)
        self.about.clicked.connect(self.show_card)

    @property
    def path(self) -> Path | None:
        """The chosen model's file; None to map the tissue without one."""
        data = self.list.currentData()
        return Path(data) if data else None

    def fill(self) -> None:
        chosen = remembered("model", "bundled")
        self.list.blockSignals(True)
        self.list.clear()
        bundled = _bundled()
        if bundled is not None:
            self.list.addItem(BUNDLED_WORDS, str(bundled))
            if chosen == "bundled":
                chosen = str(bundled)
        for path in recent_models():
            self.list.addItem(Path(path).stem, path)
            self.list.setItemData(
                self.list.count() - 1, path, Qt.ItemDataRole.ToolTipRole
            )
        self.list.addItem(NONE_WORDS, "")
        self.list.addItem(FILE_WORDS, None)
        at = self.list.findData(chosen)
        self.list.setCurrentIndex(max(at, 0))
        self._last = self.list.currentIndex()
        self.list.blockSignals(False)
        self._follow()

    def choose(self, path: str | Path) -> None:
        """Take a model file; a sentence where it is none."""
        try:
            read_model_words(path)
        except InputError as error:
            show_error(str(error))
            self.list.setCurrentIndex(self._last)
            return
        if str(path) != str(_bundled()):
            recent = [str(path), *recent_models()]
            remember("recent_models", list(dict.fromkeys(recent))[:_RECENT])
        remember("model", str(path))
        self.fill()
        self.changed.emit()

    def choose_none(self) -> None:
        self.list.setCurrentIndex(self.list.findData(""))
        self._chosen(self.list.currentIndex())

    def show_card(self) -> QDialog | None:
        if self.path is None:
            return None
        try:
            card = read_model_words(self.path)
        except InputError as error:
            show_error(str(error))
            return None
        self.card = CardDialog(card, self)
        self.card.open()
        return self.card

    def _chosen(self, index: int) -> None:
        if self.list.itemText(index) == FILE_WORDS:
            self.list.setCurrentIndex(self._last)
            self._ask_file()
            return
        self._last = index
        path = self.list.itemData(index)
        is_bundled = path and path == str(_bundled())
        remember("model", "bundled" if is_bundled else path)
        self._follow()
        self.changed.emit()

    def _ask_file(self) -> None:
        folder = str(Path(remembered("model", "")).parent)
        self.dialog = QFileDialog(self, "Choose a model", folder)
        self.dialog.setNameFilters(["Models (*.safetensors)", "All files (*)"])
        self.dialog.setFileMode(QFileDialog.FileMode.ExistingFile)
        self.dialog.fileSelected.connect(self.choose)
        self.dialog.open()

    def _follow(self) -> None:
        self.about.setEnabled(self.path is not None)
        is_demonstration = False
        if self.path is not None:
            with suppress(InputError):
                is_demonstration = read_model_words(self.path).card.demonstration
        self.doubt.setText(f"Made to try things out. {DEMONSTRATION}")
        self.doubt.setVisible(is_demonstration)


class CardDialog(QDialog):
    """A model's card, in words."""

    def __init__(self, card: ModelWords, parent: QWidget) -> None:
        super().__init__(parent)
        self.setWindowTitle("About this model")
        self.setMinimumWidth(420)
        box = QVBoxLayout(self)
        rows: Sequence[tuple[str, str]] = (
            ("What it is for", card.purpose),
            ("What it learned from", card.learned_from),
            ("How well it does", card.how_well),
        )
        box.addWidget(_text(f'<span style="font-size:large">{card.title}</span>'))
        for title, words in rows:
            box.addWidget(_text(f"<b>{title}</b><br>{words}"))
        details = "<br>".join(f"{name}: {value}" for name, value in card.details)
        box.addWidget(_text(f"<b>Details</b><br>{details}"))
        box.addWidget(_text(_NOT_FOR_DIAGNOSIS))
        buttons = QDialogButtonBox(QDialogButtonBox.StandardButton.Close)
        buttons.rejected.connect(self.reject)
        box.addWidget(buttons)


def recent_models() -> list[str]:
    return [path for path in remembered("recent_models", []) if Path(path).exists()]


@cache
def _bundled() -> Path | None:
    """The model that came with the package, where there is one."""
    from spt_core.bundled import slide_model_path

    try:
        return slide_model_path()
    except InputError:
        return None


def _text(words: str) -> QLabel:
    label = QLabel(words)
    label.setWordWrap(True)
    label.setTextFormat(Qt.TextFormat.RichText)
    label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
    return label
