"""What all panels of the dock have in common."""

from typing import ClassVar

from qtpy.QtWidgets import QLabel, QVBoxLayout, QWidget

from napari_spt.analysis.slide_analysis import Analysis, Change
from napari_spt.analysis.state import AnalysisState


class Panel(QWidget):
    """A part of the dock that owns its widgets and shows its part of the state.

    ``shows`` are the changes of an analysis after which it has to ``refresh``; it does
    so too whenever another slide is chosen.
    """

    shows: ClassVar[frozenset[Change]] = frozenset()

    def __init__(self, state: AnalysisState, title: str = "") -> None:
        super().__init__()
        self.state = state
        self.box = QVBoxLayout(self)
        self.box.setContentsMargins(0, 10 if title else 0, 0, 0)
        self.box.setSpacing(6)
        self.heading = QLabel(f"<b>{title}</b>")
        if title:
            self.box.addWidget(self.heading)
        state.slide_chosen.connect(self.refresh)
        state.analysis_changed.connect(self._on_analysis)

    def refresh(self) -> None:
        """Show the chosen slide's part of the state."""

    def _on_analysis(self, analysis: Analysis, change: Change) -> None:
        chosen = self.state.analysis
        if chosen is None or (analysis is chosen and change in self.shows):
            self.refresh()
