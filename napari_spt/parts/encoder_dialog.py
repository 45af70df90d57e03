"""All patch encoders that are known: which are ready, and how to get the others."""

from qtpy.QtCore import Signal
from qtpy.QtWidgets import (
    QDialog,
    QDialogButtonBox,
    QHeaderView,
    QTableWidget,
    QTableWidgetItem,
    QVBoxLayout,
    QWidget,
)

from napari_spt.parts.widgets import text
from spt_core.patches.encoder_card import FROM_SEED
from spt_core.patches.listing import EncoderState, ListedEncoder, list_encoders

BUTTON = "All patch encoders…"
TOOLTIP = "Which are ready on this computer, and how to get the others"
_COLUMNS = ("Patch encoder", "State", "About")
_SIZE = (760, 480)


class EncoderDialog(QDialog):
    """A table of encoders; what the chosen one asks for is said below it."""

    chosen = Signal(str)

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.setWindowTitle("Patch encoders")
        self.resize(*_SIZE)
        listed = [one for one in list_encoders() if one.card.weights != FROM_SEED]
        # Sorting keeps the order of those of a state.
        states = list(EncoderState)
        self.listed = sorted(listed, key=lambda one: states.index(one.state))
        self.table = QTableWidget(len(self.listed), len(_COLUMNS))
        self.table.setHorizontalHeaderLabels(_COLUMNS)
        self.table.verticalHeader().hide()
        self.table.setSelectionBehavior(QTableWidget.SelectionBehavior.SelectRows)
        self.table.setSelectionMode(QTableWidget.SelectionMode.SingleSelection)
        self.table.setEditTriggers(QTableWidget.EditTrigger.NoEditTriggers)
        for row, one in enumerate(self.listed):
            for column, words in enumerate(
                (one.card.name, str(one.state), one.card.about)
            ):
                self.table.setItem(row, column, QTableWidgetItem(words))
        header = self.table.horizontalHeader()
        header.setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
        header.setStretchLastSection(True)
        self.about = text("", "About the chosen patch encoder")
        buttons = QDialogButtonBox(QDialogButtonBox.StandardButton.Close)
        self.use = buttons.addButton("Use", QDialogButtonBox.ButtonRole.AcceptRole)
        box = QVBoxLayout(self)
        box.addWidget(self.table)
        box.addWidget(self.about)
        box.addWidget(buttons)
        buttons.rejected.connect(self.reject)
        buttons.accepted.connect(self._on_use)
        self.table.itemSelectionChanged.connect(self._show)
        self.table.selectRow(0)

    @property
    def current(self) -> ListedEncoder:
        return self.listed[max(0, self.table.currentRow())]

    def _show(self) -> None:
        self.about.setText(about(self.current))
        self.use.setEnabled(self.current.is_ready)

    def _on_use(self) -> None:
        self.chosen.emit(self.current.card.name)
        self.accept()


def about(one: ListedEncoder) -> str:
    """What there is to know before one takes it."""
    card = one.card
    terms = f" ({', '.join(card.terms)})" if card.terms else ""
    lines = [
        f"{card.dim} numbers a patch of {card.patch_size} px at {card.mpp:g} µm. "
        f"{card.citation}.",
        f"Licence: {card.licence}{terms}. {card.page or ''}".strip(),
    ]
    if card.trained_on:
        lines.append(
            f"It has learned from {', '.join(card.trained_on)}: results on slides of "
            "these would look better than they are."
        )
    if one.how:
        lines.append(f"To get it: {one.how}. The commands are for a terminal.")
    return "\n".join(lines)
