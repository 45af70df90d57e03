"""The "Slide analysis" dock: a slide, a model, one button, and what comes of it."""

from functools import partial
from typing import TYPE_CHECKING
from weakref import ref

from napari.layers import Layer
from napari.utils.theme import get_theme
from qtpy.QtCore import QEvent, QSignalBlocker, QTimer
from qtpy.QtWidgets import QComboBox

from napari_spt.analysis import keys as _keys
from napari_spt.analysis.display import Display, Shown
from napari_spt.analysis.form import WELCOME, AnalysisForm
from napari_spt.analysis.state import CANCELLED, Analysis
from napari_spt.analysis.words import slide_words, trouble_words
from napari_spt.analysis.work import Work
from napari_spt.parts.post import post
from napari_spt.parts.viewing import Flight, camera, canvas_size, scale_bar
from napari_spt.parts.window_calls import make_window_calls_safe
from napari_spt.slides.slide_source import key_of, slide_layers, slide_source

if TYPE_CHECKING:
    from napari.viewer import Viewer


class AnalysisDock(AnalysisForm):
    """Puts slide, model, maps, answer, regions and questions together."""

    def __init__(self, napari_viewer: "Viewer") -> None:
        super().__init__(napari_viewer)
        make_window_calls_safe()
        self.display = Display(napari_viewer, self)
        self.flight = Flight(napari_viewer, self)
        self.is_closed = False
        self._was_docked = False
        self._has_scale = False
        self._hidden: list[Layer] = []
        self.work = Work(self)
        self._connect()
        _keys.register(self)
        post().enter(id(self))
        # A window that is closed takes its docks with it without a word to them.
        self.destroyed.connect(partial(_destroyed, id(self), ref(self)))
        self._follow_layers()
        self._style()

    def _connect(self) -> None:
        self.open_button.clicked.connect(self.choose_slide)
        self.sample_button.clicked.connect(self.open_sample)
        self.slide.activated.connect(lambda _: self._choose_slide())
        self.model.changed.connect(self.follow)
        self.analyse.clicked.connect(lambda: self.work.begin())
        self.cancel.clicked.connect(lambda: self.work.cancel())
        self.map_tissue.clicked.connect(self._map_tissue)
        self.controls.changed.connect(self.redraw)
        self.advanced.view_changed.connect(self._choose_view)
        self.advanced_part.button.toggled.connect(self._open_advanced)
        self.strip.chosen.connect(self.fly_to)
        self.questions.like_asked.connect(self.work.alike.show_likeness)
        self.questions.likeness_ended.connect(self.work.alike.end_likeness)
        self.questions.compared.connect(self.reading.compare)
        # Settings are kept soon after a change: a window that is closed asks nobody.
        self._keeping = QTimer(self)
        self._keeping.setSingleShot(True)
        self._keeping.setInterval(1000)
        self._keeping.timeout.connect(self.keep_settings)
        # The map first, then the regions' pictures.
        self._choosing = QTimer(self)
        self._choosing.setSingleShot(True)
        self._choosing.setInterval(200)
        self._choosing.timeout.connect(self._choose_regions)
        advanced = self.advanced
        for signal in (
            self.controls.changed,
            advanced.encoder.currentIndexChanged,
            advanced.device.currentIndexChanged,
            advanced.stain.currentIndexChanged,
            advanced.batch.valueChanged,
            advanced.room.valueChanged,
        ):
            signal.connect(lambda *_: self._keeping.start())
        advanced.cache_changed.connect(self.follow)
        advanced.pixel_size.valueChanged.connect(lambda _: self.follow())
        self.pixel_size.changed.connect(self.follow)
        self.export.clicked.connect(self.choose_report)
        layers = self.viewer.layers
        layers.events.inserted.connect(self._follow_layers)
        layers.events.removed.connect(self._on_removed)
        layers.selection.events.active.connect(self._follow_active)
        self.viewer.events.theme.connect(self._style)
        eye = camera(self.viewer)
        eye.events.zoom.connect(self._follow_zoom)
        # Not at every step of a drag, but when it has come to rest.
        self._looking = QTimer(self)
        self._looking.setSingleShot(True)
        self._looking.setInterval(700)
        self._looking.timeout.connect(self.work.look_here)
        eye.events.center.connect(self._follow_view)

    # Which slide

    @property
    def layer(self) -> Layer | None:
        """The slide's layer that is chosen."""
        name = self.slide.currentData()
        return next((la for la in self.viewer.layers if la.unique_id == name), None)

    @property
    def shown(self) -> Shown | None:
        """The analysis of the chosen slide, if there is one."""
        layer = self.layer
        return None if layer is None else self.work.analyses.get(key_of(layer))

    def _follow_layers(self, _event: object = None) -> None:
        layers = slide_layers(self.viewer)
        before = self.slide.currentData()
        with QSignalBlocker(self.slide):
            self.slide.clear()
            for layer in layers:
                self.slide.addItem(layer.name, layer.unique_id)
            at = self.slide.findData(before)
            self.slide.setCurrentIndex(at if at >= 0 else self.slide.count() - 1)
        self._follow_active()

    def _follow_active(self, _event: object = None) -> None:
        active = self.viewer.layers.selection.active
        if active is not None:
            at = self.slide.findData(active.unique_id)
            if at >= 0:
                self.slide.setCurrentIndex(at)
        self._turn_to_slide()

    def _choose_slide(self) -> None:
        """A slide of the list becomes the active layer too: whoever adds layers, and
        napari itself, goes back to that one."""
        layer = self.layer
        if layer is not None:
            self.viewer.layers.selection.active = layer
        self._turn_to_slide()

    def _turn_to_slide(self) -> None:
        """Show what is known of the chosen slide."""
        layer = self.layer
        if layer is not getattr(self, "_last_layer", None):
            self._last_layer = layer
            self.questions.end()
            self.strip.clear()
            self.work.show_all()
            self._show_scale()
        self.follow()

    def _show_scale(self) -> None:
        """Turn napari's scale bar on for the first slide; then it is the user's."""
        source = slide_source(self.layer)
        if source is not None and source.mpp_xy is not None and not self._has_scale:
            self._has_scale = True
            scale_bar(self.viewer).visible = True

    def _on_removed(self, event: object) -> None:
        self.work.forget(event.value)
        self._follow_layers()
        self.display.follow_layers()

    # What is offered

    def follow(self) -> None:
        """Bring every control up to date."""
        layer, shown = self.layer, self.shown
        source = slide_source(layer)
        analysis = None if shown is None else shown.analysis
        is_open = analysis is not None and analysis.is_open
        self.empty.setVisible(source is None)
        for widget in (self.choice, self.model_section, self.analyse):
            widget.setVisible(source is not None)
        self.slide.setVisible(self.slide.count() > 1)
        if source is not None:
            self.slide_facts.setText(slide_words(source))
            self.advanced.follow_slide(source.mpp_xy is not None)
            asks = source.mpp_xy is None and self.advanced.slide_mpp is None
            if asks:
                self.pixel_size.ask(key_of(layer), source.l0_size_xy)
            self.pixel_size.setVisible(asks)
        is_answered = not self.pixel_size.isVisibleTo(self) or bool(self.pixel_size.um)
        is_busy = is_open or self.work.is_preparing
        self.analyse.setEnabled(not is_busy and is_answered)
        self.analyse.setText(self._offer(analysis))
        self.cancel.setVisible(is_open)
        is_sorting = shown is not None and not shown.is_sorted
        self.running.setVisible(is_busy or is_sorting)
        if is_sorting and not is_busy:
            self.bar.setRange(0, 0)
            self.progress.setText("Looking for what is alike…")
        reading = None if analysis is None else analysis.reading
        has_attention = reading is not None and len(reading.attention) > 0
        has_kinds = shown is not None and bool(shown.kinds)
        self.reading.setVisible(has_attention)
        self.tissue_words.setVisible(has_kinds)
        self.answer_section.setVisible(has_attention or has_kinds)
        heading = "What the slide is made of"
        if has_attention:
            heading = "What the model says"
            if analysis.model != self.model.path:
                heading = f"What “{analysis.model_name}” said"
        self.answer_section.heading.setText(f"<b>{heading}</b>")
        self.strip_section.setVisible(bool(self.strip.places))
        self.controls_section.setVisible(has_attention)
        self.controls.classes.setVisible(
            shown is not None and shown.maps.find("classes") is not None
        )
        done = analysis is not None and analysis.features is not None
        self.questions_section.setVisible((has_attention or has_kinds) and done)
        self.questions.follow()
        for button in (self.questions.without, self.questions.check):
            button.setVisible(has_attention)
        self.export_section.setVisible(has_attention)
        trouble = "" if analysis is None else trouble_words(analysis)
        self.trouble.setText(trouble)
        self.trouble.setVisible(bool(trouble))
        self.map_tissue.setVisible(
            analysis is not None and analysis.kind in ("model", "magnification")
        )
        if has_attention:
            self.advanced.show_heads(len(reading.attention))
        self.advanced.show_devices(post().about)

    def _offer(self, analysis: Analysis | None) -> str:
        """What the button says."""
        if analysis is None or analysis.is_open:
            return "Analyse"
        if analysis.model == self.model.path:
            return "Go on" if analysis.state == CANCELLED else "Analyse again"
        return (
            "Map the tissue" if self.model.path is None else "Analyse with this model"
        )

    def redraw(self) -> None:
        """Draw the maps anew, as the controls say."""
        if self.shown is None:
            self.display.hide_legend()
        else:
            self.display.follow_controls(self.shown, self.controls.settings)

    def _follow_zoom(self, _event: object = None) -> None:
        if self.shown is not None:
            self.display.follow_zoom(self.shown, self.controls.settings)

    def _follow_view(self, _event: object = None) -> None:
        self._looking.start()

    def _choose_view(self) -> None:
        head = self.advanced.head.currentData()
        self.controls.set_way(-1 if head is None else head, _data(self.advanced.unit))
        self._choosing.start()

    def _choose_regions(self) -> None:
        """Where another head looked most."""
        shown = self.shown
        if shown is not None and not shown.analysis.is_open and not shown.kinds:
            self.work.show_places(shown)

    def _open_advanced(self, is_open: bool) -> None:
        if is_open:
            self.advanced.show_cache()
            self.advanced.show_devices(post().about)

    # What is done

    def choose_slide(self) -> None:
        from napari_spt.slides.open_command import choose_and_open

        self.dialog = choose_and_open(self.viewer, offers=False)

    def open_sample(self) -> None:
        self.sample_button.setEnabled(False)
        self.welcome.setText("Painting a sample slide: the first time takes a while…")
        try:
            self.viewer.open_sample("napari-spt", "glandular")
        finally:
            # The window may have been closed meanwhile.
            if not self.is_closed:
                self.sample_button.setEnabled(True)
                self.welcome.setText(WELCOME)

    def _map_tissue(self) -> None:
        self.model.choose_none()
        self.work.begin()

    def fly_to(self, number: int) -> None:
        """Show one region, with what lies around it."""
        shown = self.shown
        if shown is None or shown.lattice is None:
            return
        lattice, place = shown.lattice, self.strip.places[number]
        (x, y), (w, h) = place.l0_xy, lattice.l0_step_xy
        shown.maps.show_box((x, y, x + w, y + h), lattice)
        top = lattice.world(shown.layer, (x, y))
        bottom = lattice.world(shown.layer, (x + w, y + h))
        size = max(abs(bottom[0] - top[0]), abs(bottom[1] - top[1]))
        middle = ((top[0] + bottom[0]) / 2, (top[1] + bottom[1]) / 2)
        self.flight.to(middle, min(canvas_size(self)) / (3 * size))

    def hide_overlays(self) -> None:
        """Show the slide alone."""
        if self.shown is None:
            return
        seen = [la for la in self.display.overlays(self.shown) if la.visible]
        # What is hidden already is to come back too.
        self._hidden += seen
        self.display.hide_legend()
        for layer in seen:
            layer.visible = False

    def show_again(self) -> None:
        """Show what was hidden."""
        hidden, self._hidden = self._hidden, []
        for layer in hidden:
            layer.visible = True
        self.redraw()

    def choose_report(self) -> None:
        from napari_spt.analysis.report_dialog import ask_for_report

        self.save = ask_for_report(self, self.work.write_report)

    # Coming and going

    def _style(self, _event: object = None) -> None:
        theme = get_theme(self.viewer.theme)
        colour = theme.current.as_hex()
        ink = "#1e1e1e" if getattr(theme, "type", "") == "light" else "white"
        self.analyse.setStyleSheet(
            f"QPushButton#spt_primary:enabled {{ background-color: {colour};"
            f" color: {ink}; font-weight: bold; padding: 8px; }}"
            "QPushButton#spt_primary { padding: 8px; }"
        )

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

    def keep_settings(self) -> None:
        self.controls.keep()
        self.advanced.keep()

    def shut_down(self) -> None:
        """Leave napari as it was, whatever was running."""
        if self.is_closed:
            return
        self.is_closed = True
        self.flight.animation.stop()
        self.questions.end()
        self.strip.stop()
        self.work.close()
        self._keeping.stop()
        self._choosing.stop()
        self.keep_settings()
        layers = self.viewer.layers
        layers.events.inserted.disconnect(self._follow_layers)
        layers.events.removed.disconnect(self._on_removed)
        layers.selection.events.active.disconnect(self._follow_active)
        self.viewer.events.theme.disconnect(self._style)
        self._looking.stop()
        eye = camera(self.viewer)
        eye.events.zoom.disconnect(self._follow_zoom)
        eye.events.center.disconnect(self._follow_view)
        _keys.unregister(self)
        self.display.close()
        post().leave(id(self))


def _destroyed(user: int, dock: "ref[AnalysisDock]", _widget: object = None) -> None:
    left = dock()
    if left is not None:
        left.is_closed = True
    post().leave(user)


def _data(box: QComboBox) -> str:
    return str(box.currentData())
