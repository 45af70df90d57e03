"""What was found of slides and labels: what stops the run first, each with a remedy."""

from html import escape

from qtpy.QtWidgets import QVBoxLayout, QWidget

from napari_spt.parts.widgets import Text
from napari_spt.training.words import RANKS, finding_words
from spt_core.studies.study_finding import Finding, Rank

# Read on both of napari's themes; a mark says the same without colour.
MARKS = {
    Rank.STOPS: ("✖", "#d9534f"),
    Rank.DOUBTFUL: ("▲", "#c98a1b"),
    Rank.FINE: ("✔", "#3f9d5a"),
}


class FindingsList(QWidget):
    """A heading for each rank that there is, and its findings."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Finding] = []
        self.box = QVBoxLayout(self)
        self.box.setContentsMargins(0, 0, 0, 0)
        self.box.setSpacing(4)
        self.parts: dict[Rank, Text] = {}
        for rank in Rank:
            part = Text(is_html=True)
            part.setAccessibleName(RANKS[rank])
            part.hide()
            self.parts[rank] = part
            self.box.addWidget(part)

    @property
    def stops(self) -> bool:
        return any(one.rank is Rank.STOPS for one in self.found)

    def clear(self) -> None:
        self.found = []
        self._show()

    def add(self, one: Finding) -> None:
        self.found.append(one)
        self._show()

    def _show(self) -> None:
        for rank, part in self.parts.items():
            found = [one for one in self.found if one.rank is rank]
            part.setVisible(bool(found))
            mark, colour = MARKS[rank]
            lines = [f"<b>{RANKS[rank]}</b>"]
            for one in found:
                says, do = finding_words(one)
                words = _broken(says) + (f" <i>{_broken(do)}</i>" if do else "")
                lines.append(
                    f"<table cellspacing=0 cellpadding=0><tr><td style='color:{colour};"
                    f" padding-right:6px'>{mark}</td><td>{words}</td></tr></table>"
                )
            part.setText("".join(lines))


def _broken(words: str) -> str:
    """As HTML, with long names and paths that may be broken."""
    parts = escape(words).split(" ")
    return " ".join(
        "".join(f"{c}&#8203;" if c in "/_-\\." else c for c in part)
        if len(part) > 18
        else part
        for part in parts
    )
