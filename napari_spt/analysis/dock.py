"""The "Slide analysis" dock: a slide, a model, one button, and what comes of it."""

from functools import partial
from typing import TYPE_CHECKING
from weakref import ref

from qtpy.QtCore import QEvent, QSize, Qt, QTimer
from qtpy.QtWidgets import QFrame, QScrollArea, QVBoxLayout, QWidget

from napari_spt.analysis import keys as _keys
from napari_spt.analysis import preferences
from napari_spt.analysis.advanced_panel import AdvancedPanel
from napari_spt.analysis.answer_panel import AnswerPanel
from napari_spt.analysis.desk import desk_of
from napari_spt.analysis.export_panel import ExportPanel
from napari_spt.analysis.kinds_editing import KindsEditor
from napari_spt.analysis.model_panel import ModelPanel
from napari_spt.analysis.navigation import Navigator
from napari_spt.analysis.places import Place
from napari_spt.analysis.questions_panel import QuestionsPanel
from napari_spt.analysis.regions_panel import RegionsPanel
from napari_spt.analysis.run_panel import RunPanel
from napari_spt.analysis.session import Session
from napari_spt.analysis.site_panel import SitePanel
from napari_spt.analysis.slide_panel import SlidePanel
from napari_spt.analysis.tissue_panel import TissuePanel
from napari_spt.analysis.view_panel import ViewPanel
from napari_spt.parts.dock_frame import DockTab, come_forward
from napari_spt.parts.focus_ring import FocusRing
from napari_spt.parts.post import post
from napari_spt.parts.tabs import Tabs
from napari_spt.parts.tool_style import ink_of, tool_style
from napari_spt.parts.viewing import camera
from napari_spt.parts.wheel import CalmWheel
from napari_spt.parts.widgets import Column, text
from napari_spt.parts.window_calls import make_window_calls_safe
from spt_core.notice import NOT_FOR_DIAGNOSIS

if TYPE_CHECKING:
    from napari.viewer import Viewer

# Settings are kept soon after a change: a window that is closed asks nobody.
KEEP_MS = 1000
# What is on the screen is looked at next when the camera has come to rest.
REST_MS = 700
# How wide the dock is: in pixels, and in heights of a line of its text.
NARROWEST, NARROWEST_LINES = 326, 15
TALL = 600


class AnalysisDock(QWidget):
    """One column of panels over one state; whatever they want done is wired here."""

    def __init__(self, napari_viewer: "Viewer") -> None:
        super().__init__()
        make_window_calls_safe()
        self.viewer = napari_viewer
        self.is_closed = False
        self._was_docked = False
        self._tab = DockTab(self)
        self.desk = desk_of(napari_viewer)
        self.state = self.desk.state
        self.navigator = Navigator(napari_viewer, self)
        self.session = Session(
            self.state, owner=self, view_centre=self.navigator.view_centre
        )
        self.renderer = self.desk.renderer
        self.tracker = self.desk.tracker
        self._make_panels()
        self._lay_out()
        self._connect()
        self.desk.open(self)
        self.session.take_up()
        _keys.register(self)
        post().enter(id(self))
        # A window that is closed takes its docks with it without a word to them.
        self.destroyed.connect(partial(_destroyed, id(self), ref(self)))
        self._use_theme()

    def _make_panels(self) -> None:
        state, viewer = self.state, self.viewer
        self.slide = SlidePanel(state, viewer)
        self.model = ModelPanel(state)
        self.site = SitePanel(state)
        self.run = RunPanel(state)
        self.answer = AnswerPanel(state)
        self.kinds = TissuePanel(state)
        self.regions = RegionsPanel(state)
        self.view = ViewPanel(state)
        self.questions = QuestionsPanel(state, self.session, viewer)
        self.export = ExportPanel(state)
        self.advanced = AdvancedPanel(state)
        self.footer = text(NOT_FOR_DIAGNOSIS)
        self.tabs = Tabs("tab")

    def _lay_out(self) -> None:
        column = Column()
        box = QVBoxLayout(column)
        box.setContentsMargins(10, 8, 10, 10)
        box.setSpacing(6)
        for widget in (
            self.slide,
            self.model,
            self.site,
            self.run,
            self.answer,
            self.tabs,
            self.advanced,
        ):
            box.addWidget(widget)
        self.tabs.add("Kinds", self.kinds)
        self.tabs.add("Regions", self.regions)
        self.tabs.add("Questions", self.questions)
        self.tabs.add("On the slide", self.view)
        box.addStretch(1)
        # Always in reach, however far the rest is scrolled.
        self.foot = QWidget()
        foot = QVBoxLayout(self.foot)
        foot.setContentsMargins(10, 6, 10, 6)
        foot.setSpacing(4)
        foot.addWidget(self.export)
        foot.addWidget(self.footer)
        self.scroll = QScrollArea()
        self.scroll.setWidgetResizable(True)
        self.scroll.setFrameShape(QFrame.Shape.NoFrame)
        self.scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.scroll.setWidget(column)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.setSpacing(0)
        outer.addWidget(self.scroll)
        outer.addWidget(self.foot)
        self.tabs.put_after(self.run.map_tissue)
        self.regions.strip.tab_after = self.tabs.buttons["On the slide"]
        self.rings = [FocusRing(column), FocusRing(self.foot)]
        self.wheel = CalmWheel(self.scroll)
        self.wheel.keep(column)
        column.laid_out.connect(self._on_laid_out)
        self._keep_wide()

    def _connect(self) -> None:
        state, session = self.state, self.session
        self.slide.picked.connect(self.tracker.pick)
        self.slide.spread.connect(self.tracker.table.lay_side_by_side)
        self.run.asked.connect(session.begin)
        self.run.cancelled.connect(session.cancel)
        self.run.tissue_asked.connect(self._map_tissue)
        self.regions.chosen.connect(self._go_to)
        self.kinds.chosen.connect(self._go_to)
        self.questions.chosen.connect(self._go_to)
        self.editor = KindsEditor(state, owner=self)
        self.kinds.renamed.connect(self.editor.rename)
        self.kinds.recoloured.connect(self.editor.recolour)
        self.kinds.merged.connect(self.editor.merge)
        self.export.asked.connect(self._write_report)
        self.export.cancelled.connect(session.cancel_report)
        self.advanced.opened.connect(lambda: self.wheel.keep(self.advanced))
        self.advanced.opened.connect(session.measure_cache)
        self.advanced.clear_asked.connect(session.clear_cache)
        self._keeping = self._timer(KEEP_MS, self.keep_settings)
        state.slide_chosen.connect(self._use_font)
        state.view_changed.connect(self._keep_soon)
        state.options_changed.connect(self._keep_soon)
        self._resting = self._timer(REST_MS, session.look_here)
        self._resting.timeout.connect(self.renderer.move_legend)
        camera(self.viewer).events.center.connect(self._on_camera)
        self.viewer.events.theme.connect(self._use_theme)

    def _timer(self, milliseconds: int, slot) -> QTimer:
        timer = QTimer(self)
        timer.setSingleShot(True)
        timer.setInterval(milliseconds)
        timer.timeout.connect(slot)
        return timer

    # What is done

    def _map_tissue(self) -> None:
        self.model.choose_none()
        self.session.begin()

    def _go_to(self, place: Place) -> None:
        analysis = place.of or self.state.analysis
        if analysis is None or not self.state.is_known(analysis):
            return
        if analysis is not self.state.analysis:
            self.tracker.pick(analysis.layer)
        self.renderer.overlay(analysis).frame(place.l0_xy)
        self.navigator.fly_to(analysis, place)
        for strip in (self.regions.strip, self.questions.alike):
            if strip.isVisible() and strip.current >= 0:
                self.scroll.ensureWidgetVisible(strip.buttons[strip.current], 0, 20)

    def _write_report(self, path: object, names_slide: bool) -> None:
        self.session.write_report(
            path, with_name=names_slide, finished=self.export.finish
        )

    # The window around it

    def sizeHint(self) -> QSize:
        return QSize(self.scroll.minimumWidth(), TALL)

    def _keep_wide(self) -> None:
        """As wide as its text is large, and never wider for what it says."""
        lines = NARROWEST_LINES * self.footer.fontMetrics().height()
        bar = self.scroll.verticalScrollBar().sizeHint().width()
        width = max(NARROWEST, lines) + bar
        if width != self.scroll.minimumWidth():
            self.scroll.setMinimumWidth(width)
            self._use_font()

    def _on_laid_out(self) -> None:
        self._keep_wide()
        for ring in self.rings:
            ring.follow()

    def _use_theme(self, _event: object = None) -> None:
        self.run.use_theme(self.viewer.theme)
        self._use_font()

    def _use_font(self) -> None:
        """What napari's style leaves out: tool buttons, and what is chosen of them."""
        style = tool_style(self.viewer.theme)
        # Not for all of the dock, nor before there is a slide: it takes as long as
        # making the dock.
        widgets: list[QWidget] = [self.advanced.folded.button]
        if self.state.source is not None:
            widgets += [
                self.model.more,
                self.tabs.row,
                self.kinds,
                self.regions.strip,
                self.questions.alike,
                self.questions.folded.button,
            ]
        for widget in widgets:
            if style != widget.styleSheet():
                widget.setStyleSheet(style)
        for ring in self.rings:
            ring.use_colour(ink_of(self.viewer.theme))

    def _on_camera(self, _event: object = None) -> None:
        self._resting.start()

    def _keep_soon(self) -> None:
        self._keeping.start()

    def keep_settings(self) -> None:
        preferences.keep(self.state)

    # Coming and going

    def event(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.ParentChange:
            # napari takes the widget out of its dock when the dock is closed.
            if self.parent() is None and self._was_docked:
                self.shut_down()
            self._was_docked = self.parent() is not None
        return super().event(event)

    def closeEvent(self, event: QEvent) -> None:
        self.shut_down()
        super().closeEvent(event)

    def come_forward(self) -> None:
        come_forward(self)

    def leave(self) -> None:
        """Make room for another dock of the same window."""
        self.shut_down()
        above = self.parentWidget()
        if above is not None:
            above.close()

    def shut_down(self) -> None:
        """Leave napari as it was, whatever was running."""
        if self.is_closed:
            return
        self.is_closed = True
        self.navigator.close()
        self.questions.end()
        self.questions.alike.stop()
        self.regions.close_pictures()
        self.kinds.stop()
        for ring in self.rings:
            ring.close_ring()
        self.slide.stop()
        self.run.activity.close()
        self.session.close()
        for timer in (self._keeping, self._resting):
            timer.stop()
        self.keep_settings()
        camera(self.viewer).events.center.disconnect(self._on_camera)
        self.viewer.events.theme.disconnect(self._use_theme)
        _keys.unregister(self)
        self.desk.close(self)
        post().leave(id(self))


def _destroyed(user: int, dock: "ref[AnalysisDock]", _widget: object = None) -> None:
    left = dock()
    if left is not None:
        left.is_closed = True
    post().leave(user)
