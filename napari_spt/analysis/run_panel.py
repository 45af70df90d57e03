"""The button, how far the work is, and what went wrong."""

from napari.utils.theme import get_theme
from qtpy.QtCore import Signal
from qtpy.QtWidgets import QHBoxLayout, QProgressBar, QPushButton, QVBoxLayout, QWidget

from napari_spt.analysis.panel import Panel
from napari_spt.analysis.slide_analysis import Analysis, Change
from napari_spt.analysis.state import AnalysisState
from napari_spt.analysis.words import progress_words, trouble_words
from napari_spt.parts.activity import ActivityBar
from napari_spt.parts.widgets import text
from spt_core.engine.protocol import FailureKind, Step, Working
from spt_core.insight.results import RemarkKind, Verdict

# Failures of a model, for which the tissue can still be mapped without one.
OF_MODEL = (FailureKind.MODEL, FailureKind.OTHER_ENCODER, FailureKind.TOO_COARSE)
OF_SITE = (RemarkKind.SITE_NOT_NAMED, RemarkKind.SITE_UNKNOWN)
ANALYSE, MAP_TISSUE = "Analyse", "Map the tissue"
NO_FIT = (
    "This model does not fit this slide: map the tissue without one, choose or open "
    "another above, or train one in the Train dock."
)


class RunPanel(Panel):
    """Starts and stops the analysis of the chosen slide."""

    shows = frozenset({Change.BEGUN, Change.NOTICE, Change.PREDICTION, Change.ENDED})
    asked = Signal()
    cancelled = Signal()
    tissue_asked = Signal()

    def __init__(self, state: AnalysisState) -> None:
        super().__init__(state)
        self.analyse = QPushButton(ANALYSE)
        self.analyse.setObjectName("spt_primary")
        self.analyse.setToolTip("Look at the slide with this model")
        self.cancel = QPushButton("Cancel")
        self.cancel.setToolTip("Stop; what was found so far stays")
        self.bar = QProgressBar()
        self.bar.setAccessibleName("Progress")
        self.bar.setTextVisible(False)
        self.progress = text("", "Progress in words")
        self.trouble = text("", "What went wrong")
        self.no_fit = text(NO_FIT, "What can be done instead")
        self.map_tissue = QPushButton(MAP_TISSUE)
        self.map_tissue.setToolTip(
            "Kinds of tissue, places like no others, and look-alikes need no model"
        )
        row = QHBoxLayout()
        row.setContentsMargins(0, 6, 0, 0)
        row.addWidget(self.analyse, stretch=3)
        row.addWidget(self.cancel, stretch=1)
        self.running = QWidget()
        box = QVBoxLayout(self.running)
        box.setContentsMargins(0, 0, 0, 0)
        box.addWidget(self.bar)
        box.addWidget(self.progress)
        self.box.addLayout(row)
        for widget in (self.running, self.trouble, self.no_fit, self.map_tissue):
            self.box.addWidget(widget)
        self.activity = ActivityBar()
        self.analyse.clicked.connect(self.asked)
        self.cancel.clicked.connect(self.cancelled)
        self.map_tissue.clicked.connect(self.tissue_asked)
        for signal in (
            state.model_changed,
            state.options_changed,
            state.preparing_changed,
        ):
            signal.connect(self.refresh)
        self.refresh()

    def refresh(self) -> None:
        state, analysis = self.state, self.state.analysis
        is_open = analysis is not None and analysis.is_open
        self.analyse.setVisible(state.source is not None)
        self.analyse.setText(self._offer())
        is_answered = not state.asks_pixel_size or state.slide_mpp is not None
        self.analyse.setEnabled(not is_open and not state.is_preparing and is_answered)
        is_mapping = analysis is not None and analysis.is_mapping_tissue
        self.cancel.setVisible(is_open or is_mapping or state.is_preparing)
        self._show_progress(analysis)
        trouble = "" if analysis is None else trouble_words(analysis)
        self.trouble.setText(trouble)
        self.trouble.setVisible(bool(trouble))
        fits = analysis is None or _fits(analysis)
        self.no_fit.setVisible(not fits)
        self.map_tissue.setVisible(not fits and state.model is not None)

    def use_theme(self, name: str) -> None:
        """Let the button have the theme's colour."""
        theme = get_theme(name)
        colour = theme.current.as_hex()
        ink = "#1e1e1e" if getattr(theme, "type", "") == "light" else "white"
        self.analyse.setStyleSheet(
            f"QPushButton#spt_primary:enabled {{ background-color: {colour};"
            f" color: {ink}; font-weight: bold; padding: 8px; }}"
            "QPushButton#spt_primary { padding: 8px; }"
        )

    def _on_analysis(self, analysis: Analysis, change: Change) -> None:
        if change is Change.PROGRESS and analysis is self.state.analysis:
            self.cancel.setVisible(analysis.is_open or analysis.is_mapping_tissue)
            self._show_progress(analysis)
        else:
            super()._on_analysis(analysis, change)

    def _offer(self) -> str:
        """What the button says: what it does, by one name."""
        return MAP_TISSUE if self.state.model is None else ANALYSE

    def _show_progress(self, analysis: Analysis | None) -> None:
        if self.state.is_preparing:
            self._show_bar("Preparing the picture…")
        elif analysis is not None and analysis.is_stopping and analysis.is_open:
            self._show_bar("Stopping…", analysis.working)
        elif analysis is not None and analysis.is_open:
            self._show_bar(progress_words(analysis.working), analysis.working)
        elif analysis is not None and analysis.is_mapping_tissue:
            self._show_bar(progress_words(Working(Step.GROUPING_TISSUE)))
        else:
            self.running.hide()
            self.activity.close()

    def _show_bar(self, words: str, working: Working | None = None) -> None:
        progress = None if working is None else working.progress
        done, total = (0, 0) if progress is None else (progress.done, progress.total)
        # A bar whose value is set draws the whole window at once, unless it is still.
        self.bar.setUpdatesEnabled(False)
        self.bar.setRange(0, total)
        self.bar.setValue(done)
        self.bar.setUpdatesEnabled(True)
        self.progress.setText(words)
        self.running.show()
        if working is not None:
            self.activity.show(done, total)


def _fits(analysis: Analysis) -> bool:
    """Whether the model can say something of the slide."""
    if analysis.failure is not None:
        return analysis.failure.kind not in OF_MODEL
    found = analysis.prediction
    if analysis.is_open or found is None or found.verdict != Verdict.UNLIKE:
        return True
    # It may fit, once it is known where the slide is from.
    return any(one.kind in OF_SITE for one in found.remarks)
