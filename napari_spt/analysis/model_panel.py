"""Which model to ask: the one that came with the package, recent ones, or a file."""

from contextlib import suppress
from functools import cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from qtpy.QtCore import Qt
from qtpy.QtWidgets import (
    QComboBox,
    QDialog,
    QDialogButtonBox,
    QFileDialog,
    QHBoxLayout,
    QInputDialog,
    QLabel,
    QMenu,
    QPushButton,
    QSizePolicy,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from napari_spt.analysis.model_names import NamedModel, labels, named_model, rename
from napari_spt.analysis.panel import Panel
from napari_spt.analysis.state import AnalysisState
from napari_spt.parts.notices import show_error
from napari_spt.parts.settings import remember, remembered
from napari_spt.parts.widgets import plain_tip
from spt_core.errors import InputError
from spt_core.insight.model_words import DEMONSTRATION, ModelWords, read_model_words
from spt_core.notice import NOT_FOR_DIAGNOSIS

if TYPE_CHECKING:
    from collections.abc import Sequence

NONE_WORDS = "No model: map the tissue"
FILE_WORDS = "Choose a file…"
BUNDLED_WORDS = "Demonstration model"
DOUBT = f"Made to try things out. {DEMONSTRATION}"
# What can be done where no model fits, of what there is.
# Qt's own blue of links is not to be read on napari's dark theme; this one is on both.
_LINK = '<a href="{}" style="color: #3f86d9">{}</a>'
INSTEAD = (
    f"Instead: {_LINK.format('tissue', 'map the tissue')} without a model, "
    f"{_LINK.format('file', 'open one')}, or train one in the Train dock."
)
_RECENT = 6


class ModelPanel(Panel):
    """A list of models and the card of the chosen one."""

    def __init__(self, state: AnalysisState) -> None:
        super().__init__(state, "Model")
        self.list = QComboBox()
        self.list.setAccessibleName("Model")
        self.list.setToolTip("The model that looks at the slide")
        self.list.setSizePolicy(
            QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred
        )
        self.list.setSizeAdjustPolicy(
            QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon
        )
        self.list.setMinimumContentsLength(9)
        self.about = QPushButton("About")
        self.about.setAccessibleName("About this model")
        self.about.setToolTip("What this model was trained for, on what, how well")
        self.more = QToolButton()
        self.more.setText("⋯")
        self.more.setAccessibleName("Rename this model, or remove it from the list")
        self.more.setToolTip("Rename it, or remove it from the list")
        self.more.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        menu = QMenu(self.more)
        self.rename_action = menu.addAction("Rename…", self.ask_name)
        self.remove_action = menu.addAction("Remove from the list", self.remove)
        self.more.setMenu(menu)
        self.doubt = _text("")
        self.doubt.setAccessibleName("What to know of this model")
        self.doubt.setTextInteractionFlags(
            Qt.TextInteractionFlag.TextBrowserInteraction
        )
        self.doubt.linkActivated.connect(self._on_link)
        row = QHBoxLayout()
        row.setSpacing(4)
        row.addWidget(self.list, stretch=1)
        row.addWidget(self.more)
        row.addWidget(self.about)
        self.box.addLayout(row)
        self.box.addWidget(self.doubt)
        self._named: dict[str, NamedModel] = {}
        self._last = 0
        self._fill()
        self.list.activated.connect(self._on_activated)
        self.about.clicked.connect(self.show_card)
        self._take(self.list.currentIndex())
        self.refresh()

    def refresh(self) -> None:
        self.setVisible(self.state.source is not None)

    def _fill(self) -> None:
        chosen = remembered("model", "bundled")
        self.list.clear()
        bundled = _bundled()
        if bundled is not None:
            self.list.addItem(BUNDLED_WORDS, str(bundled))
            if chosen == "bundled":
                chosen = str(bundled)
        named = [one for path in recent_models() if (one := _named(path)) is not None]
        self._named = {str(one.path): one for one in named}
        for one, label in zip(named, labels(named), strict=True):
            self.list.addItem(label, str(one.path))
            self.list.setItemData(
                self.list.count() - 1,
                plain_tip(one.tooltip),
                Qt.ItemDataRole.ToolTipRole,
            )
        self.list.addItem(NONE_WORDS, "")
        self.list.addItem(FILE_WORDS, None)
        at = self.list.findData(chosen)
        self.list.setCurrentIndex(max(at, 0))
        self._last = self.list.currentIndex()

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
        self._fill()
        self._take(self.list.currentIndex())

    def show_card(self) -> QDialog | None:
        if self.state.model is None:
            return None
        try:
            card = read_model_words(self.state.model)
        except InputError as error:
            show_error(str(error))
            return None
        self.card = CardDialog(card, self)
        self.card.open()
        return self.card

    def _on_activated(self, index: int) -> None:
        if self.list.itemText(index) == FILE_WORDS:
            self.list.setCurrentIndex(self._last)
            self._ask_file()
            return
        path = self.list.itemData(index)
        is_bundled = path and path == str(_bundled())
        remember("model", "bundled" if is_bundled else path)
        self._take(index)

    def choose_none(self) -> None:
        """Map the tissue without a model."""
        self.list.setCurrentIndex(self.list.findData(""))
        self._on_activated(self.list.currentIndex())

    def _take(self, index: int) -> None:
        self._last = index
        path = self.list.itemData(index)
        model = Path(path) if path else None
        self.about.setEnabled(model is not None)
        named = self._named.get(str(path)) if path else None
        # What came with the package keeps its name and its place in the list.
        self.more.setEnabled(named is not None)
        self._show_facts(model, named)
        self.list.setToolTip(
            plain_tip(named.tooltip) if named else "The model that looks at the slide"
        )
        self.state.choose_model(model, self.list.itemText(index))

    def _show_facts(self, model: Path | None, named: NamedModel | None) -> None:
        """What the chosen model answers; of one that shows off, what to do instead."""
        words = ""
        if model is not None:
            with suppress(InputError):
                if read_model_words(model).card.demonstration:
                    words = DOUBT if self._named else f"{DOUBT} {INSTEAD}"
        if not words and named is not None:
            words = escape(named.facts)
        self.doubt.setText(words)
        self.doubt.setVisible(bool(words))

    def _on_link(self, link: str) -> None:
        if link == "tissue":
            self.choose_none()
        else:
            self._ask_file()

    # Names, and the list itself

    def ask_name(self) -> None:
        """Ask what to call the chosen model."""
        model = self.state.model
        if model is None:
            return
        named = self._named.get(str(model))
        self.naming = QInputDialog(self)
        self.naming.setWindowTitle("Rename the model")
        self.naming.setLabelText("Call this model:")
        self.naming.setTextValue("" if named is None else named.title)
        self.naming.textValueSelected.connect(lambda name: self.rename(model, name))
        self.naming.open()

    def rename(self, model: Path, name: str) -> None:
        rename(model, name)
        self._fill()
        self._take(self.list.currentIndex())

    def remove(self) -> None:
        """Take the chosen model off the list; its file stays."""
        model = self.state.model
        if model is None:
            return
        left = [path for path in remembered("recent_models", []) if path != str(model)]
        remember("recent_models", left)
        remember("model", "bundled")
        self._fill()
        self._take(self.list.currentIndex())

    def _ask_file(self) -> None:
        folder = str(Path(remembered("model", "")).parent)
        self.dialog = QFileDialog(self, "Choose a model", folder)
        self.dialog.setNameFilters(["Models (*.safetensors)", "All files (*)"])
        self.dialog.setFileMode(QFileDialog.FileMode.ExistingFile)
        self.dialog.fileSelected.connect(self.choose)
        self.dialog.open()


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
        box.addWidget(
            _text(f'<span style="font-size:large">{escape(card.title)}</span>')
        )
        for title, words in rows:
            box.addWidget(_text(f"<b>{title}</b><br>{escape(words)}"))
        details = "<br>".join(f"{name}: {escape(v)}" for name, v in card.details)
        box.addWidget(_text(f"<b>Details</b><br>{details}"))
        box.addWidget(_text(NOT_FOR_DIAGNOSIS))
        buttons = QDialogButtonBox(QDialogButtonBox.StandardButton.Close)
        buttons.rejected.connect(self.reject)
        box.addWidget(buttons)


def _named(path: str) -> NamedModel | None:
    """A model by its name; None where its file is none any more."""
    try:
        return named_model(read_model_words(path))
    except (InputError, OSError):
        return None


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
