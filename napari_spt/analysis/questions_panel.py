"""Questions about an analysed slide: what is like this, what if not, is it right."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from qtpy.QtCore import Signal
from qtpy.QtWidgets import QPushButton

from napari_spt.analysis.curve import Curve
from napari_spt.analysis.drawing import Drawing
from napari_spt.analysis.panel import Panel
from napari_spt.analysis.places import Place, alike_places
from napari_spt.analysis.region_strip import RegionStrip
from napari_spt.analysis.session import Session
from napari_spt.analysis.slide_analysis import Analysis, Change
from napari_spt.analysis.state import AnalysisState, ComparedPatch
from napari_spt.analysis.words import (
    check_words,
    failure_words,
    removing_words,
    without_words,
)
from napari_spt.parts.notices import show_error, show_info
from napari_spt.parts.widgets import Folded, text
from spt_core.engine.protocol import (
    END_TYPES,
    AskWithout,
    CheckFaithfulness,
    Failed,
    FaithfulnessChecked,
    Reply,
    WithoutAnswered,
    Working,
)

if TYPE_CHECKING:
    from napari.viewer import Viewer

CLICK = "Click a place on the slide."
LIKE_SHOWN = (
    "The brighter, the more alike; the likest are below. Click another place, or press "
    "the button again to end."
)
DRAW = "Draw around a part of the slide: press, go round, let go."
DRAW_MORE = "Draw another part, or press the button again to end."
CLEARED = "What was kept of this slide is cleared: analyse it again to ask."
NAMES_NONE = "The others ask about the class a model names: here it names none."
# Screen pixels between press and release that make a click a drag.
DRAG = 4


class QuestionsPanel(Panel):
    """Three questions, each a button with an answer in words below."""

    shows = frozenset(
        {
            Change.BEGUN,
            Change.PREDICTION,
            Change.TISSUE_MAP,
            Change.LOOK_ALIKES,
            Change.FEATURES,
            Change.ENDED,
        }
    )

    chosen = Signal(object)  # a place to show

    def __init__(
        self, state: AnalysisState, session: Session, viewer: "Viewer"
    ) -> None:
        super().__init__(state)
        self._session = session
        self._viewer = viewer
        self.like = _button(
            "More like this…", "Click a place; all that looks alike lights up"
        )
        self.without = _button(
            "What if not here?…", "Draw around a part and ask without it"
        )
        self.check = QPushButton("Does it look in the right place?")
        self.check.setToolTip(
            "Takes away what was looked at most, and sees whether the answer changes"
        )
        self.hint = text("", "What to do now")
        self.cancel = QPushButton("Cancel")
        self.cancel.setToolTip("Ask no further")
        self.answer = text("", "Answer to the question")
        self.why_not = text("", "Why some questions cannot be asked")
        self.alike = RegionStrip()
        self.alike.tab_after = self.check
        self.curve = Curve()
        self.folded = Folded("Show the curve", self.curve)
        for widget in (self.like, self.without, self.check):
            self.box.addWidget(widget)
        for widget in (
            self.why_not,
            self.hint,
            self.cancel,
            self.alike,
            self.answer,
            self.folded,
        ):
            widget.hide()
            self.box.addWidget(widget)
        self.alike.chosen.connect(self._on_alike)
        self._drawing: Drawing | None = None
        self._without_request: int | None = None
        self._check_request: int | None = None
        self._asked_of: object = None
        self.like.toggled.connect(self._on_like)
        self.without.toggled.connect(self._on_without)
        self.check.clicked.connect(self._on_check)
        self.cancel.clicked.connect(self._on_cancel)
        state.cache_changed.connect(self.refresh)
        self.refresh()

    def refresh(self) -> None:
        """Offer what can be asked of the chosen slide."""
        analysis = self.state.analysis
        if analysis is not self._asked_of:
            self._asked_of = analysis
            self.end()
        features = None if analysis is None else analysis.features
        if analysis is None or features is None:
            self.hide()
            return
        self.setVisible(analysis.has_attention or analysis.tissue_map is not None)
        is_kept = features.exists()
        can_ask = is_kept and analysis.names_class
        self.like.setEnabled(analysis.look_alikes is not None)
        self.without.setEnabled(can_ask)
        self.check.setEnabled(can_ask and self._check_request is None)
        for button in (self.without, self.check):
            button.setVisible(analysis.has_attention)
        why_not = ""
        if not is_kept:
            why_not = CLEARED
        elif analysis.prediction is not None and not analysis.names_class:
            why_not = NAMES_NONE
        _show_words(self.why_not, why_not)

    def end(self) -> None:
        """Put away what was being asked."""
        self.like.setChecked(False)
        self.without.setChecked(False)
        self._clear()
        self._drop_without()
        self._session.drop(self._check_request)
        self._check_request = None

    @property
    def _is_asking(self) -> bool:
        return self.like.isChecked() or self.without.isChecked()

    def _clear(self) -> None:
        """No old answer stays below a new question."""
        for widget in (self.hint, self.cancel, self.answer, self.folded):
            widget.hide()

    def _on_cancel(self) -> None:
        """Nobody waits for an answer any more; a drawing stays to be gone on with."""
        self._drop_without()
        self._session.drop(self._check_request)
        self._check_request = None
        self.cancel.hide()
        _show_words(self.hint, DRAW_MORE if self.without.isChecked() else "Cancelled.")
        self.refresh()

    # More like this

    def _on_like(self, is_on: bool) -> None:
        callbacks = self._viewer.mouse_drag_callbacks
        if is_on:
            self.without.setChecked(False)
            self._clear()
            _show_words(self.hint, CLICK)
            callbacks.append(self._on_press)
            return
        if self._on_press in callbacks:
            callbacks.remove(self._on_press)
        self.hint.hide()
        self.alike.clear()
        self.alike.hide()
        self.state.show_likeness(None)

    def _on_press(self, _viewer: Any, event: Any) -> Iterator[None]:
        """A click that is no drag."""
        start = np.asarray(event.pos)
        yield
        while event.type == "mouse_move":
            yield
        if np.abs(np.asarray(event.pos) - start).max() < DRAG:
            self.show_alike(tuple(event.position[-2:]))

    def show_alike(self, world_yx: tuple[float, float]) -> None:
        """Show what is like a place in the world."""
        analysis = self.state.analysis
        if analysis is None or analysis.lattice is None:
            return
        row = analysis.row_at(analysis.lattice.l0(analysis.layer, world_yx))
        if row is None:
            show_info(
                "There is no tissue here that was looked at. Click another place."
            )
            return
        compared = ComparedPatch(analysis, row)
        self.state.show_likeness(compared)
        _show_words(self.hint, LIKE_SHOWN)
        places = alike_places(compared, self.state.analyses.values())
        self.alike.show_places(
            places, analysis.asked.slide, analysis.lattice.l0_step_xy
        )
        self.alike.show()

    def _on_alike(self, place: Place) -> None:
        """Go to a place; on another slide the same is still asked."""
        compared = self.state.likeness
        if compared is not None:
            self._asked_of = place.of or compared.analysis
        self.chosen.emit(
            place if compared is None else replace(place, of=self._asked_of)
        )

    # What if not here?

    def _on_without(self, is_on: bool) -> None:
        if not is_on:
            if self._drawing is not None:
                self._drawing.close()
                self._drawing = None
            self._drop_without()
            self._clear()
            self.state.compare(None)
            return
        self.like.setChecked(False)
        self._clear()
        analysis = self.state.analysis
        if analysis is None:
            return
        _show_words(self.hint, DRAW)
        self._drawing = Drawing(
            self._viewer,
            analysis,
            on_drawn=self.ask_without,
            on_removed=lambda: self.without.setChecked(False),
        )

    def ask_without(self) -> None:
        """Ask for the answer without what is drawn."""
        analysis, drawing = self.state.analysis, self._drawing
        if analysis is None or drawing is None or analysis.features is None:
            return
        l0_polygons = drawing.l0_polygons
        self._drop_without()
        self._clear()
        self.state.compare(None)
        if not l0_polygons or analysis.asked.model is None:
            _show_words(self.hint, DRAW)
            return
        _show_words(self.hint, "Asking again without it…")
        question = AskWithout(
            analysis.features,
            analysis.slide.name,
            analysis.asked.model,
            l0_polygons,
            analysis.asked.device,
            analysis.asked.site,
        )
        answered = partial(self._on_without_reply, analysis)
        self._without_request = self._session.ask(question, answered)
        self.cancel.show()

    def _on_without_reply(self, analysis: Analysis, reply: Reply) -> None:
        if isinstance(reply, WithoutAnswered):
            self.state.apply(analysis, reply)
        if isinstance(reply, END_TYPES):
            self._without_request = None
            self.cancel.setVisible(self._check_request is not None)
        if isinstance(reply, Failed):
            _show_words(self.hint, self._failure(reply))
        elif isinstance(reply, WithoutAnswered):
            _show_words(self.hint, DRAW_MORE)
            self.state.compare(reply.what_if.after)
            _show_words(self.answer, without_words(reply.what_if))

    def _drop_without(self) -> None:
        self._session.drop(self._without_request)
        self._without_request = None

    # Does it look in the right place?

    def _on_check(self) -> None:
        analysis = self.state.analysis
        if (
            analysis is None
            or analysis.features is None
            or analysis.asked.model is None
        ):
            return
        self.like.setChecked(False)
        self.without.setChecked(False)
        self._clear()
        self.check.setEnabled(False)
        _show_words(self.hint, removing_words(None))
        question = CheckFaithfulness(
            analysis.features,
            analysis.slide.name,
            analysis.asked.model,
            analysis.asked.device,
            site=analysis.asked.site,
        )
        answered = partial(self._on_check_reply, analysis)
        self._check_request = self._session.ask(question, answered)
        self.cancel.show()

    def _on_check_reply(self, analysis: Analysis, reply: Reply) -> None:
        if isinstance(reply, FaithfulnessChecked):
            self.state.apply(analysis, reply)
        if isinstance(reply, Working) and not self._is_asking:
            _show_words(self.hint, removing_words(reply.progress))
        if not isinstance(reply, END_TYPES):
            return
        self._check_request = None
        self.cancel.setVisible(self._without_request is not None)
        self.refresh()
        if self._is_asking:
            return  # meanwhile something else is asked, and shown
        self.hint.hide()
        if isinstance(reply, Failed):
            show_error(self._failure(reply))
        elif isinstance(reply, FaithfulnessChecked):
            _show_words(self.answer, check_words(reply.faithfulness))
            self.curve.show_curves(reply.faithfulness)
            self.folded.show()

    def _failure(self, failed: Failed) -> str:
        source = self.state.source
        return failure_words(failed, "The slide" if source is None else source.name)


def _show_words(label: Any, words: str) -> None:
    label.setText(words)
    label.setVisible(bool(words))


def _button(words: str, tip: str) -> QPushButton:
    button = QPushButton(words)
    button.setCheckable(True)
    button.setToolTip(tip)
    return button
