"""The "Train" dock: data, goal, views, run, result; a face of ``spt study``."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from napari_spt.parts.background import run_in_background
from napari_spt.parts.dock_frame import frame_of
from napari_spt.parts.notices import show_info
from napari_spt.parts.settings import remember, remembered
from napari_spt.parts.side_dock import SideDock
from napari_spt.parts.tabs import Tabs
from napari_spt.parts.tool_style import ground_of, ink_of, tool_style
from napari_spt.parts.viewing import kept_with
from napari_spt.training.data_panel import DataPanel
from napari_spt.training.draft import StudyDraft
from napari_spt.training.goal_panel import GoalPanel
from napari_spt.training.growth_panel import GrowthPanel
from napari_spt.training.reading import Look, Phase, growing_run
from napari_spt.training.result_panel import ResultPanel
from napari_spt.training.run_panel import RunPanel
from napari_spt.training.sampling import SampleMaker
from napari_spt.training.start_bar import StartBar
from napari_spt.training.study_list import StudyList
from napari_spt.training.study_slides import study_labels
from napari_spt.training.views_page import ViewsPage
from napari_spt.training.watching import (
    Watcher,
    ask_study,
    begin_study,
    go_on,
    known_studies,
)
from spt_core.errors import InputError
from spt_core.studies.study_folder import Request, StudyFolder
from spt_core.studies.study_settings import StudySettings

if TYPE_CHECKING:
    from napari.viewer import Viewer

CHOSEN = "training_study"
DATA, GOAL, VIEWS, RUN, RESULT = "Data", "Goal", "Views", "Run", "Result"
ENDED = (Phase.FINISHED, Phase.STOPPED)


class TrainDock(SideDock):
    """Pages over one draft and one watched study; what they want is done here."""

    def __init__(self, napari_viewer: "Viewer") -> None:
        super().__init__()
        self.viewer = napari_viewer
        self._phase: Phase | None = None
        self._stage = ""
        self._close_other()
        self.queue = known_studies()
        self.draft = StudyDraft()
        self.watcher = Watcher(self.queue)
        self.study: Path | None = None
        self._make()
        self._lay_out()
        self._connect()
        self.draft.take_remembered()
        self._find_study()
        self._use_theme()
        self.show_start()

    def _make(self) -> None:
        self.list = StudyList()
        self.data = DataPanel(self.draft)
        self.goal = GoalPanel(self.draft)
        self.views = ViewsPage(self.viewer, self.draft)
        self.run = RunPanel()
        self.growth = GrowthPanel()
        self.run.growth_place.addWidget(self.growth)
        self.result = ResultPanel(self.viewer)
        self.sampling = SampleMaker(self)
        self.tabs = Tabs("training_tab")
        self.foot = StartBar()
        self.start, self.copy = self.foot.start, self.foot.copy

    def _lay_out(self) -> None:
        self.box.addWidget(self.list)
        self.box.addWidget(self.tabs)
        self.box.addStretch(1)
        for name, page in (
            (DATA, self.data),
            (GOAL, self.goal),
            (VIEWS, self.views),
            (RUN, self.run),
            (RESULT, self.result),
        ):
            self.tabs.add(name, page)
        self.lay_below(self.foot)
        self.settle(self.foot.notice)

    def _connect(self) -> None:
        self.data.checked.connect(self.show_start)
        self.data.sample_asked.connect(self._make_sample)
        self.sampling.said.connect(self.data.sample.setText)
        self.sampling.done.connect(self._take_sample)
        self.draft.changed.connect(self.show_start)
        for forms in (self.goal.advanced, self.views.advanced):
            forms.opened.connect(partial(self.wheel.keep, forms))
        self.start.clicked.connect(self.begin)
        self.copy.clicked.connect(self.copy_command)
        self.list.chosen.connect(self.open_study)
        self.list.new_asked.connect(self.new_study)
        self.list.forgotten.connect(self._forget)
        self.run.asked.connect(self._ask)
        self.run.go_on_asked.connect(self._go_on)
        self.result.encoder_taken.connect(self._take_encoder)
        self.watcher.looked.connect(self._on_look)
        self.viewer.events.theme.connect(self._use_theme)

    def _close_other(self) -> None:
        """A window has one such dock."""
        holder = kept_with(self.viewer, "train_dock", lambda _viewer: [])
        for other in holder:
            if not other.is_closed:
                other.leave()
        holder[:] = [self]

    # The sample

    def _make_sample(self) -> None:
        self.data.sample.setEnabled(False)
        self.sampling.make()

    def _take_sample(self, folder: str, why: str) -> None:
        self.data.sample.setEnabled(True)
        self.data.sample.setText("Try the sample")
        if why:
            self.data.status.setText(why)
            self.data.status.show()
            return
        self.draft.effort = "quick"
        self.data.slides.chosen.emit(folder)

    # A study

    def _find_study(self) -> None:
        """One that was being done when the dock was closed, else the last chosen."""
        waiting = self.queue.waiting()
        path = waiting[0].path if waiting else remembered(CHOSEN, "")
        if path and (Path(path) / "study.yaml").exists():
            self.open_study(str(path))
            self.tabs.show_page(RUN)
        else:
            self.run.show_none()
        self.list.show_studies(self.queue.studies(), self.study)

    def open_study(self, path: str) -> None:
        """Show a study that is there, and what it was asked."""
        folder = StudyFolder(Path(path))
        try:
            settings = StudySettings.read(folder.settings)
        except (InputError, OSError) as error:
            show_info(str(error))
            return
        self.queue.know(folder.path)
        self._watch(folder.path)
        self.list.show_studies(self.queue.studies(), self.study)
        self.draft.take(settings)

    def new_study(self) -> None:
        """Put another together from the same slides."""
        self.watcher.stop()
        self.study, self._phase = None, None
        remember(CHOSEN, "")
        self.run.show_none()
        self.list.show_studies(self.queue.studies(), None)
        self.draft.clear()
        self.tabs.show_page(DATA)

    def _take_encoder(self, path: str) -> None:
        """Another study, whose slides are read with an encoder of one's own."""
        self.new_study()
        self.draft.set(goal="", init="", encode={**self.draft.encode, "encoder": path})

    def _forget(self, path: str) -> None:
        if path:
            self.queue.forget(Path(path))
            self.new_study()

    def _watch(self, path: Path) -> None:
        self.study, self._phase = path, None
        remember(CHOSEN, str(path))
        self.run.show_none()
        self.growth.hide()
        self.watcher.watch(path)

    def begin(self) -> None:
        """Start the study, or put it in the queue."""
        try:
            settings = self.draft.prepared_settings()
            if StudyFolder(Path(settings.out)).is_held():
                raise InputError("This study is at work: pause it before changing it.")
            self.data.checker.stop()
            folder = begin_study(settings, self.queue)
        except (InputError, OSError) as error:
            self.foot.refuse(str(error))
            return
        self.draft.out = str(folder.path)
        self.draft.keep()
        self._watch(folder.path)
        self.run.stands.setText("<b>Starting…</b>")
        self.list.show_studies(self.queue.studies(), self.study)
        self.tabs.choose(RUN)
        self.start.setEnabled(False)

    def _go_on(self) -> None:
        if self.study is not None:
            folder = StudyFolder(self.study)
            self._in_background(lambda: go_on(folder, self.queue))

    def _ask(self, request: Request) -> None:
        if self.study is not None:
            folder = StudyFolder(self.study)
            self._in_background(lambda: ask_study(folder, request, self.queue))

    def _in_background(self, work) -> None:
        run_in_background(
            work,
            lambda _: None,
            lambda error: self.run.refuse(str(error)),
            owner=self,
        )

    def _on_look(self, look: Look | None) -> None:
        if look is None or self.is_closed or look.path != self.study:
            return
        self.run.show_look(look)
        self.list.show_studies(look.studies, self.study, look.phase)
        self._show_growth(look)
        stage = look.state.stage if look.state else ""
        if stage != self._stage:  # slides that were read since have places
            self._stage = stage
            self.views.read_again()
        before, self._phase = self._phase, look.phase
        if before is look.phase:
            return
        self.show_start()
        if look.phase in ENDED:
            self.result.show(look.path)
            if before is not None and look.has_model:  # it ended just now
                self.tabs.show_page(RESULT)
        elif before is None and look.has_model:
            self.result.show(look.path)

    def _show_growth(self, look: Look) -> None:
        """The map of slides and the attention of the training that goes on."""
        run = growing_run(look)
        if run is None:
            self.growth.hide()
            return
        if run != self.growth.run:
            self.growth.show(run)
            self._label_growth(look.path)
        elif look.phase is Phase.RUNNING:
            self.growth.refresh()
        self.growth.setVisible(bool(self.growth.snapshots))

    def _label_growth(self, study: Path) -> None:
        def take(labels: dict[str, str]) -> None:
            if study == self.study:
                self.growth.use_labels(labels)

        run_in_background(
            lambda: study_labels(study), take, lambda _error: None, owner=self
        )

    def copy_command(self) -> None:
        from spt_core.commands.written import study_command

        try:
            # Labels that were given here are where the command looks for them.
            settings = self.draft.prepared_settings()
            words = study_command(settings)
        except (InputError, OSError) as error:
            self.foot.refuse(str(error))
            return
        self.draft.out = settings.out  # it may be there by now, and is still ours
        self.foot.copied(words)

    # What can be done now

    def show_start(self) -> None:
        """Whether it can start, and why not."""
        at_work = self._phase is not None and self._phase.is_at_work
        problem = "" if at_work else self.draft.problem()
        if not problem and not at_work and self.data.findings.stops:
            problem = "What stops the run is listed under Data."
        ready = not problem and not at_work and self.data.is_looked_at
        self.foot.show_start(ready=ready, at_work=at_work, is_new=self.study is None)
        self.copy.setEnabled(self.draft.has_data)
        self.foot.refuse(problem)

    # The window around it

    def on_text_size(self, _width: int) -> None:
        self._use_theme()

    def _use_theme(self, _event: object = None) -> None:
        theme = self.viewer.theme
        style = tool_style(theme)
        for widget in (
            self.tabs.row,
            self.goal.advanced.folded.button,
            self.views.advanced.folded.button,
            self.growth,
            self.result,
            self.run.folded_notes.button,
            self.list.forget_button,
        ):
            if widget.styleSheet() != style:
                widget.setStyleSheet(style)
        self.run.use_colours(ink_of(theme), ground_of(theme))
        self.growth.use_colours(ink_of(theme), ground_of(theme))
        self.colour_rings(theme)

    # Coming and going

    def leave(self) -> None:
        """Make room for another dock of the same window."""
        self.shut_down()
        frame = frame_of(self)
        if frame is not None:
            frame.close()

    def leave_window(self) -> None:
        """A study that runs goes on."""
        self.watcher.stop()
        self.data.stop()
        self.views.close_page()
        self.sampling.stop()
        self.draft.close()
        self.viewer.events.theme.disconnect(self._use_theme)
