"""On which terms a model may be used: its own, and those of what it looks through."""

from qtpy.QtWidgets import QDialog, QDialogButtonBox, QVBoxLayout, QWidget

from napari_spt.parts.widgets import text
from spt_core.learning.model_card import ModelCard
from spt_core.patches.encoder_card import EncoderCard
from spt_core.patches.known import find_known
from spt_core.studies.study_slides import known_card

NO_LICENCE = "The model's file states no terms."
TRAVEL = (
    "What reads the patches has terms of its own, which bind whoever uses the model or "
    "hands it on:"
)
NONE_KNOWN = "none are known here; ask whoever made it."


def terms_words(card: ModelCard) -> list[str]:
    """The model's own terms first."""
    said = [card.licence or NO_LICENCE]
    name = card.tokens.encoder
    if name:
        said += [TRAVEL, f"{name}: {_reader_terms(name, card.encoder_terms)}"]
    return said


def encoder_words(card: EncoderCard) -> list[str]:
    return [card.licence or NO_LICENCE, *card.terms]


def _reader_terms(name: str, terms: tuple[str, ...]) -> str:
    published = find_known(name)
    card = known_card(name) or (published.card if published else None)
    licence = card.licence if card else ""
    return "; ".join(filter(None, (licence, *terms))) or NONE_KNOWN


class TermsDialog(QDialog):
    def __init__(self, words: list[str], parent: QWidget) -> None:
        super().__init__(parent)
        self.setWindowTitle("Licence terms")
        self.setMinimumWidth(420)
        box = QVBoxLayout(self)
        for one in words:
            box.addWidget(text(one))
        buttons = QDialogButtonBox(QDialogButtonBox.StandardButton.Close)
        buttons.rejected.connect(self.reject)
        box.addWidget(buttons)
