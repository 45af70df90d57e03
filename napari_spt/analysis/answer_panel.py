"""What the model says of the slide: the answer, what to doubt, and bars."""

from html import escape

from napari_spt.analysis.bars import ClassBars
from napari_spt.analysis.panel import Panel
from napari_spt.analysis.slide_analysis import Change
from napari_spt.analysis.state import AnalysisState
from napari_spt.analysis.words import (
    SCORES,
    headline,
    remark_lines,
    seen_words,
    tissue_words,
)
from napari_spt.parts.widgets import text
from spt_core.insight.results import Prediction


class AnswerPanel(Panel):
    """The answer of the model, or what the slide is made of."""

    shows = frozenset(
        {Change.BEGUN, Change.PREDICTION, Change.TISSUE_MAP, Change.ENDED}
    )

    def __init__(self, state: AnalysisState) -> None:
        super().__init__(state, "What the model says")
        self.answer = text("", "Answer", is_html=True)
        self.doubt = text("", "What to think of the answer")
        self.bars = ClassBars()
        self.seen = text("", "How much was seen")
        self.scores = text(SCORES, "What the numbers are")
        self.remarks = text("", "Remarks")
        self.tissue = text("", "What the slide is made of")
        self._of_model = (
            self.answer,
            self.doubt,
            self.bars,
            self.seen,
            self.scores,
            self.remarks,
        )
        for widget in (*self._of_model, self.tissue):
            self.box.addWidget(widget)
        self.box.setSpacing(4)
        state.model_changed.connect(self.refresh)
        state.comparison_changed.connect(self.refresh)
        self.refresh()

    def refresh(self) -> None:
        analysis = self.state.analysis
        has_attention = analysis is not None and analysis.has_attention
        tissue_map = None if analysis is None else analysis.tissue_map
        self.setVisible(has_attention or tissue_map is not None)
        for widget in self._of_model:
            widget.setVisible(has_attention)
        self.tissue.setVisible(tissue_map is not None)
        heading = "What the slide is made of"
        if analysis is not None and analysis.has_attention:
            heading = "What the model says"
            if analysis.asked.model != self.state.model:
                heading = f"What “{analysis.model_name}” said"
            if analysis.prediction is not None:
                self._show(analysis.prediction)
        self.heading.setText(f"<b>{escape(heading)}</b>")
        if tissue_map is not None:
            self.tissue.setText(tissue_words(tissue_map))

    def _show(self, prediction: Prediction) -> None:
        answer, doubt = headline(prediction)
        self.answer.setText(f'<span style="font-size:x-large">{escape(answer)}</span>')
        self.doubt.setText(doubt)
        self.doubt.setVisible(bool(doubt))
        other = self.state.comparison
        self.bars.show_shares(
            _shares(prediction), None if other is None else _shares(other) or None
        )
        self.seen.setText(seen_words(prediction))
        self.scores.setVisible(
            prediction.probabilities is not None and not prediction.calibrated
        )
        remarks = "\n".join(remark_lines(prediction))
        self.remarks.setText(remarks)
        self.remarks.setVisible(bool(remarks))


def _shares(prediction: Prediction) -> dict[str, float]:
    if prediction.probabilities is None:
        return {}
    pairs = zip(prediction.classes, prediction.probabilities.tolist(), strict=True)
    return dict(pairs)
