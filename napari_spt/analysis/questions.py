"""Questions about an analysed slide: what is like this, what if not, is it right."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from napari.layers import Shapes
from napari.utils.notifications import show_error
from qtpy.QtCore import Signal
from qtpy.QtWidgets import QPushButton, QVBoxLayout, QWidget

from napari_spt.analysis.curve import Curve
from napari_spt.parts.engine import Message
from napari_spt.parts.post import ENDS, post
from napari_spt.parts.widgets import Folded, text

if TYPE_CHECKING:
    from napari.viewer import Viewer

    from napari_spt.analysis.display import Shown

LIKE, WITHOUT, CHECK = (
    "More like this…",
    "What if not here?…",
    "Does it look in the right place?",
)
WITHOUT_LAYER = "What if not here?"
DRAW = "Draw around a part of the slide: press, go round, let go."
LIKE_SHOWN = (
    "The brighter, the more alike. Click another place, or press the button again to "
    "end."
)


class Questions(QWidget):
    """Three questions, each a button with an answer in words below."""

    like_asked = Signal(tuple)
    likeness_ended = Signal()
    compared = Signal(object)

    def __init__(
        self, viewer: "Viewer", shown: Callable[[], "Shown | None"], *, user: int
    ) -> None:
        super().__init__()
        self.viewer = viewer
        self._shown = shown
        self._user = user
        self.like = _button(LIKE, "Click a place; all that looks alike lights up")
        self.without = _button(WITHOUT, "Draw around a part and ask without it")
        self.check = QPushButton(CHECK)
        self.check.setToolTip(
            "Takes away what was looked at most, and sees whether the answer changes"
        )
        self.hint = text("", "What to do now")
        self.answer = text("", "Answer to the question")
        self.why_not = text("", "Why some questions cannot be asked")
        self.curve = Curve()
        self.folded = Folded("Show the curve", self.curve)
        box = QVBoxLayout(self)
        box.setContentsMargins(0, 0, 0, 0)
        for widget in (self.like, self.without, self.check):
            box.addWidget(widget)
        for widget in (self.why_not, self.hint, self.answer, self.folded):
            widget.hide()
            box.addWidget(widget)
        self._drawing: Shapes | None = None
        self._asked: dict[str, int] = {}
        self.like.toggled.connect(self._like)
        self.without.toggled.connect(self._without)
        self.check.clicked.connect(self._check)

    def follow(self) -> None:
        """Offer what can be asked of the slide that is shown."""
        shown = self._shown()
        features = None if shown is None else shown.analysis.features
        known = features is not None and features.exists()
        reading = None if shown is None else shown.analysis.reading
        named = known and reading is not None and reading.probabilities is not None
        self.like.setEnabled(shown is not None and shown.look_alikes is not None)
        self.without.setEnabled(bool(named))
        self.check.setEnabled(bool(named) and CHECK not in self._asked)
        why = ""
        if features is not None and not known:
            why = "What was kept of this slide is cleared: analyse it again to ask."
        elif known and reading is not None and not named:
            why = "The others ask about the class a model names: here it names none."
        self.why_not.setText(why)
        self.why_not.setVisible(bool(why))

    def end(self) -> None:
        """Put away what was being asked."""
        self.like.setChecked(False)
        self.without.setChecked(False)
        self._clear()
        for question in (WITHOUT, CHECK):
            self._forget(question)

    # More like this

    def _like(self, is_on: bool) -> None:
        callbacks = self.viewer.mouse_drag_callbacks
        if is_on:
            self.without.setChecked(False)
            self._clear()
            self.say_hint("Click a place on the slide.")
            callbacks.append(self._click)
            return
        if self._click in callbacks:
            callbacks.remove(self._click)
        self.hint.hide()
        self.likeness_ended.emit()

    def _click(self, _viewer: Any, event: Any) -> Iterator[None]:
        """A click that is no drag."""
        start = np.asarray(event.pos)
        yield
        while event.type == "mouse_move":
            yield
        if np.abs(np.asarray(event.pos) - start).max() < 4:
            self.like_asked.emit(tuple(event.position[-2:]))

    # What if not here

    def _without(self, is_on: bool) -> None:
        if not is_on:
            self._put_away_drawing()
            self._forget(WITHOUT)
            self._clear()
            self.compared.emit(None)
            return
        self.like.setChecked(False)
        self._clear()
        shown = self._shown()
        if shown is None:
            return
        self.say_hint(DRAW)
        layer = Shapes(
            ndim=2,
            name=WITHOUT_LAYER,
            units=tuple(shown.layer.units[-2:]),
            edge_color="#111111",
            edge_width=_line_width(shown),
            face_color=[1.0, 1.0, 1.0, 0.5],
            metadata={"spt": {"map": "without", "of": shown.maps.key}},
        )
        self.viewer.add_layer(layer)
        self.viewer.layers.selection.active = layer
        layer.mode = "add_polygon_lasso"
        layer.events.data.connect(self._drawn)
        self.viewer.layers.events.removed.connect(self._on_removed)
        self._drawing = layer

    def _drawn(self, event: Any) -> None:
        action = str(getattr(event, "action", ""))
        if not any(done in action for done in ("added", "removed", "changed")):
            return
        if "ing" in action.rpartition(".")[2]:
            return
        self.ask_without()

    def _on_removed(self, event: Any) -> None:
        """The drawing is deleted by hand: the question is over."""
        if event.value is self._drawing:
            self.without.setChecked(False)

    def ask_without(self) -> None:
        """Ask for the answer without what is drawn."""
        shown, layer = self._shown(), self._drawing
        if shown is None or layer is None or shown.lattice is None:
            return
        region = [
            [shown.lattice.l0(shown.layer, layer.data_to_world(tuple(p))) for p in one]
            for one in layer.data
            if len(one) >= 3
        ]
        self._forget(WITHOUT)
        self._clear()
        self.compared.emit(None)
        if not region:
            self.say_hint(DRAW)
            return
        self.say_hint("Asking again without it…")
        analysis = shown.analysis
        self._asked[WITHOUT] = post().ask(
            "what_if",
            self._without_answered,
            user=self._user,
            features=str(analysis.features),
            model=str(analysis.model),
            device=analysis.device,
            title=analysis.slide.name,
            region=region,
        )

    def _without_answered(self, message: Message) -> None:
        if message.event in ENDS:
            self._asked.pop(WITHOUT, None)
        if message.event == "failed":
            self.say_hint(str(message.facts.get("sentence")))
        elif message.event == "done":
            self.say_hint("Draw another part, or press the button again to end.")
            after = message.facts["after"]
            self.compared.emit(after["probabilities"])
            self._say(without_words(message.facts))

    def _put_away_drawing(self) -> None:
        layer, self._drawing = self._drawing, None
        if layer is not None:
            layer.events.data.disconnect(self._drawn)
            self.viewer.layers.events.removed.disconnect(self._on_removed)
            if layer in self.viewer.layers:
                self.viewer.layers.remove(layer)

    # Does it look in the right place?

    def _check(self) -> None:
        shown = self._shown()
        if shown is None:
            return
        self.like.setChecked(False)
        self.without.setChecked(False)
        self._clear()
        self.check.setEnabled(False)
        self.say_hint("Taking tissue away bit by bit…")
        self._asked[CHECK] = post().ask(
            "faithfulness",
            self._check_answered,
            user=self._user,
            features=str(shown.analysis.features),
            model=str(shown.analysis.model),
            device=shown.analysis.device,
            title=shown.analysis.slide.name,
        )

    def _check_answered(self, message: Message) -> None:
        if message.event == "progress":
            done, total = message.facts.get("done"), message.facts.get("total")
            if total and not self._is_asking:
                self.say_hint(f"Taking tissue away bit by bit: {done} of {total}…")
            return
        if message.event not in ENDS:
            return
        self._asked.pop(CHECK, None)
        self.follow()
        if self._is_asking:
            return  # meanwhile something else is asked, and shown
        self.hint.hide()
        if message.event == "failed":
            show_error(str(message.facts.get("sentence")))
        elif message.event == "done":
            self._say(check_words(message.facts))
            self.curve.show_curves(message.arrays, message.facts["class_name"])
            self.folded.show()

    @property
    def _is_asking(self) -> bool:
        return self.like.isChecked() or self.without.isChecked()

    def _forget(self, question: str) -> None:
        post().forget(self._asked.pop(question, None))

    def _clear(self) -> None:
        """No old answer stays below a new question."""
        for widget in (self.hint, self.answer, self.folded):
            widget.hide()

    def _say(self, words: str) -> None:
        self.answer.setText(words)
        self.answer.setVisible(bool(words))

    def say_hint(self, words: str) -> None:
        self.hint.setText(words)
        self.hint.setVisible(bool(words))


def without_words(facts: dict[str, Any]) -> str:
    """The answer to "What if not here?"."""
    before, after = facts["before"], facts["after"]
    top = int(np.argmax(before["probabilities"]))
    name = facts["classes"][top]
    was, now = before["probabilities"][top], after["probabilities"][top]
    change = abs(now - was)
    verdict = (
        "hardly matters"
        if change < 0.05
        else "matters"
        if change < 0.3
        else "matters much"
    )
    return (
        f"What you drew {verdict}: without these {facts['removed']:,} patches "
        f"“{name}” goes from {100 * was:.0f} % to {100 * now:.0f} %."
    )


def check_words(facts: dict[str, Any]) -> str:
    """The answer to "Does it look in the right place?", in words first."""
    name, area = facts["class_name"], float(facts["area"])
    if area > 0.05:
        return (
            f"What it looked at matters: without it, “{name}” drops faster than "
            "without other tissue. Whether it is the right tissue, only you can say."
        )
    if area < -0.05:
        return (
            f"No: without what it looked at, “{name}” stays longer than without other "
            "tissue. Do not read the map as a reason."
        )
    return (
        f"It makes no difference: without what it looked at, “{name}” changes no more "
        "than without any other tissue. Do not read the map as a reason."
    )


def _button(words: str, tip: str) -> QPushButton:
    button = QPushButton(words)
    button.setCheckable(True)
    button.setToolTip(tip)
    return button


def _line_width(shown: "Shown") -> float:
    """A line as wide as a twentieth of a patch."""
    step = shown.analysis.l0_step_xy or (20, 20)
    return float(step[0] * shown.layer.scale[-1] / 20)
