"""The page "Run": how the study goes, and Pause, Stop and keep, Discard."""

from qtpy.QtCore import Signal
from qtpy.QtWidgets import (
    QComboBox,
    QHBoxLayout,
    QMenu,
    QMessageBox,
    QProgressBar,
    QPushButton,
    QSizePolicy,
    QVBoxLayout,
    QWidget,
)

from napari_spt.parts.widgets import Folded, text
from napari_spt.training.reading import Look, Phase, Training
from napari_spt.training.result_words import in_window
from napari_spt.training.run_words import (
    alarm_words,
    explained,
    headline,
    rank_words,
    stages_words,
    training_words,
)
from spt_core.studies.study_folder import Request

ASKED = {
    Request.PAUSE: "Pausing…",
    Request.KEEP_BEST: "Stopping…",
    Request.KEEP_LAST: "Stopping…",
    Request.DISCARD: "Discarding…",
}
NEWEST = "The newest training"
GOES_ON = (
    Phase.PAUSED,
    Phase.STOPPED,
    Phase.DISCARDED,
    Phase.FAILED,
    Phase.LOST,
    Phase.FINISHED,
)


# Nobody does it, and it could go on: it can be ended as well.
LEFT = (Phase.PAUSED, Phase.FAILED, Phase.LOST)


class RunPanel(QWidget):
    """Shows what the watcher saw; what is wanted is a signal."""

    asked = Signal(object)  # a request
    go_on_asked = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.last: Look | None = None
        self._request: Request | None = None
        self._asked_at = 0.0
        self._refusal = ""
        self.stands = text(
            "<b>Nothing runs.</b>", "Where the study stands", is_html=True
        )
        self.stages = text("", "Parts of the study", is_html=True)
        self.bar = QProgressBar()
        self.bar.setAccessibleName("How far this part is")
        self.bar.setTextVisible(False)
        self.says = text("", "What is to be known of the run")
        self.pause = QPushButton("Pause")
        self.pause.setToolTip("Everything is kept; it goes on whenever you like")
        self.go_on = QPushButton("Go on")
        self.go_on.setToolTip("Take the study up where it was")
        self.stop = QPushButton("Stop and keep")
        self.stop.setToolTip("End the training of your model, and keep what it is now")
        menu = QMenu(self.stop)
        self.keep_best = menu.addAction("Keep the best model so far")
        self.keep_last = menu.addAction("Keep the model as it is now")
        self.stop.setMenu(menu)
        self.discard = QPushButton("Discard")
        self.discard.setToolTip("Remove this run; what was read of the slides is kept")
        row = QHBoxLayout()
        row.setSpacing(4)
        for button in (self.go_on, self.pause, self.stop, self.discard):
            button.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
            row.addWidget(button)
        self.alarm = text("", "What goes wrong")
        self.which = QComboBox()
        self.which.setAccessibleName("Training that is shown")
        self.which.setToolTip("Whose curves are shown")
        self.which.setSizeAdjustPolicy(
            QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon
        )
        self.curves = None
        self.rank = text("", "How slides differ")
        self.notes = text("", "What was said so far")
        self.folded_notes = Folded("What was said so far", self.notes)
        self.box = QVBoxLayout(self)
        self.box.setContentsMargins(0, 4, 0, 0)
        self.box.setSpacing(6)
        for widget in (self.stands, self.stages, self.bar, self.says):
            self.box.addWidget(widget)
        self.box.addLayout(row)
        self.curve_place = QVBoxLayout()
        self.growth_place = QVBoxLayout()
        for widget in (self.alarm, self.which):
            self.box.addWidget(widget)
        self.box.addLayout(self.curve_place)
        self.box.addWidget(self.rank)
        self.box.addLayout(self.growth_place)
        self.box.addWidget(self.folded_notes)
        self.pause.clicked.connect(lambda: self.ask(Request.PAUSE))
        self.keep_best.triggered.connect(lambda: self.ask(Request.KEEP_BEST))
        self.keep_last.triggered.connect(lambda: self.ask(Request.KEEP_LAST))
        self.discard.clicked.connect(self._ask_discard)
        self.go_on.clicked.connect(self._on_go_on)
        self.which.activated.connect(lambda _: self._show_curves())
        self._colours = ("#ffffff", "#262930")
        self.show_none()

    # Asking

    def ask(self, request: Request) -> None:
        """Acknowledged at once; it is in effect within seconds."""
        self._request = request
        # What nobody does says something new once the request is heard.
        is_left = self.last is not None and self.last.phase in LEFT
        self._asked_at = _said_at(self.last) if is_left else 0.0
        self._refusal = ""
        self.stands.setText(f"<b>{ASKED[request]}</b>")
        self._show_buttons(None)
        self.asked.emit(request)

    def _ask_discard(self) -> None:
        self.question = QMessageBox(self)
        self.question.setIcon(QMessageBox.Icon.Question)
        self.question.setText("Discard this run?")
        self.question.setInformativeText(
            "Its models and curves are removed. What was read of the slides is kept."
        )
        sure = self.question.addButton(
            "Discard", QMessageBox.ButtonRole.DestructiveRole
        )
        self.question.addButton(QMessageBox.StandardButton.Cancel)
        sure.clicked.connect(lambda: self.ask(Request.DISCARD))
        self.question.open()

    def _on_go_on(self) -> None:
        self._request, self._refusal = None, ""
        self.stands.setText("<b>Starting…</b>")
        self._show_buttons(None)
        self.go_on_asked.emit()

    # Showing

    def show_none(self) -> None:
        self.last, self._request, self._refusal = None, None, ""
        self.stands.setText(
            "<b>Nothing runs.</b> Choose slides under Data, then press Start."
        )
        for widget in (
            self.stages,
            self.bar,
            self.says,
            self.alarm,
            self.which,
            self.rank,
            self.folded_notes,
        ):
            widget.hide()
        if self.curves is not None:
            self.curves.hide()
        self._show_buttons(None)

    def show_look(self, look: Look) -> None:
        is_new = self.last is None or self.last.path != look.path
        self.last = look
        is_heard = look.phase not in (Phase.RUNNING, Phase.STARTING, Phase.WAITING)
        if is_heard and _said_at(look) != self._asked_at:
            self._request = None
        phase_words = ASKED[self._request] if self._request else headline(look)
        self._set(self.stands, f"<b>{phase_words}</b>")
        self._set(self.stages, stages_words(look))
        self._set(self.says, self._refusal or explained(look))
        state = look.state
        shows_bar = look.phase is Phase.RUNNING and state is not None
        self.bar.setVisible(shows_bar)
        if shows_bar:
            self.bar.setRange(0, state.total or 0)
            self.bar.setValue(min(state.done, state.total))
        self._show_buttons(None if self._request else look.phase)
        self._list_trainings(look, is_new)
        self._show_curves()
        self.notes.setText("\n".join(map(in_window, look.notes[::-1])))
        self.folded_notes.setVisible(bool(look.notes))

    def _show_buttons(self, phase: Phase | None) -> None:
        at_work = phase is not None and phase in (
            Phase.RUNNING,
            Phase.STARTING,
            Phase.WAITING,
        )
        is_left = phase in LEFT and _said_at(self.last) > 0
        is_open = at_work or self._request is not None
        self.pause.setVisible(is_open)
        self.pause.setEnabled(at_work)
        for button in (self.stop, self.discard):
            button.setVisible(is_open or is_left)
        self.stop.setEnabled(is_left or phase is Phase.RUNNING)
        self.discard.setEnabled(is_left or (at_work and phase is not Phase.WAITING))
        self.pause.setText("Leave the queue" if phase is Phase.WAITING else "Pause")
        self.go_on.setVisible(phase in GOES_ON)
        self.go_on.setText("Run again" if phase is Phase.FINISHED else "Go on")

    def _list_trainings(self, look: Look, is_new: bool) -> None:
        names = [training_words(one) for one in look.trainings[::-1]]
        shown = [self.which.itemText(i) for i in range(1, self.which.count())]
        if names != shown or is_new:
            chosen = "" if is_new else self.which.currentText()
            self.which.clear()
            self.which.addItems([NEWEST, *names])
            self.which.setCurrentIndex(max(0, self.which.findText(chosen)))
        self.which.setVisible(len(names) > 1)

    def _chosen(self) -> Training | None:
        if self.last is None or not self.last.trainings:
            return None
        words = self.which.currentText()
        return next(
            (one for one in self.last.trainings if training_words(one) == words),
            self.last.training,
        )

    def _show_curves(self) -> None:
        training = self._chosen()
        if training is None:
            for widget in (self.alarm, self.rank, self.curves):
                if widget is not None:
                    widget.hide()
            return
        if self.curves is None:
            # pyqtgraph takes a while to load, and is needed only now.
            from napari_spt.training.curves import Curves

            self.curves = Curves()
            self.curve_place.addWidget(self.curves)
            self.curves.use_colours(*self._colours)
        self.curves.show()
        self.curves.show_training(training)
        self._set(self.alarm, alarm_words(training))
        self._set(self.rank, rank_words(training))

    def use_colours(self, ink: str, ground: str) -> None:
        self._colours = (ink, ground)
        if self.curves is not None:
            self.curves.use_colours(ink, ground)

    def refuse(self, why: str) -> None:
        """What was asked for could not be done."""
        self._request, self._refusal = None, in_window(why)
        self._set(self.says, self._refusal)

    @staticmethod
    def _set(label, words: str) -> None:
        if label.text() != words:
            label.setText(words)
        label.setVisible(bool(words) and words != "<b></b>")


def _said_at(look: Look | None) -> float:
    return look.state.when if look is not None and look.state is not None else 0.0
