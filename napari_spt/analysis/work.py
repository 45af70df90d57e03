"""What a dock has asked of the engine, and what it does with the answers."""

from functools import partial
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import numpy as np
from napari.layers import Layer
from napari.utils.notifications import show_error, show_info, show_warning
from qtpy.QtCore import QTimer

from napari_spt.analysis import layers as _layers
from napari_spt.analysis.advanced import features_folder, pictures_folder
from napari_spt.analysis.alike import Alike
from napari_spt.analysis.display import Shown
from napari_spt.analysis.layers import SlideMaps
from napari_spt.analysis.places import top_places
from napari_spt.analysis.regions import Place
from napari_spt.analysis.state import CANCELLED, FAILED, Analysis
from napari_spt.analysis.status import tell_plainly
from napari_spt.analysis.words import pace_words
from napari_spt.parts.activity import ActivityBar
from napari_spt.parts.background import run_in_background
from napari_spt.parts.engine import Message
from napari_spt.parts.post import post
from napari_spt.parts.viewing import camera, canvas_size
from napari_spt.slides.slide_source import (
    SlideSource,
    key_of,
    picture_pixels,
    slide_source,
)

if TYPE_CHECKING:
    from napari_spt.analysis.dock import AnalysisDock

# What the first maps need. napari itself loads pandas at its first labels layer.
NEEDED = ("pandas", "spt_core.insight.maps", "spt_core.insight.regions")


class Work:
    """The analyses of one dock, one a slide."""

    def __init__(self, dock: "AnalysisDock") -> None:
        self.dock = dock
        self.viewer = dock.viewer
        self.analyses: dict[str, Shown] = {}
        self.is_preparing = False
        self.activity = ActivityBar()
        self._place: list[float] | None = None
        self.alike = Alike(self)

    # Asking

    def begin(self) -> None:
        """Analyse the chosen slide."""
        dock, layer = self.dock, self.dock.layer
        source = slide_source(layer)
        if layer is None or source is None:
            show_error("This layer is not a slide. Open one with “Open slide…”.")
            return
        Thread(target=_import_needed, name="napari-spt imports").start()
        um = dock.advanced.slide_mpp
        if um is None and source.mpp_xy is None:
            um = dock.pixel_size.um
        if source.path is None:
            self._write_picture(layer, source, um)
        else:
            self._ask(layer, source, source.path, um)

    def _write_picture(
        self, layer: Layer, source: SlideSource, um: float | None
    ) -> None:
        """A picture of the window alone is written down first, beside the window."""
        from napari_spt.slides.picture_slide import write_picture_slide

        pair = (um, um) if um is not None else source.mpp_xy
        if pair is None:
            return
        self.is_preparing = True
        self.dock.progress.setText("Preparing the picture…")
        self.dock.bar.setRange(0, 0)
        self.dock.follow()

        def written(path: Path) -> None:
            self.is_preparing = False
            if self.dock.is_closed:
                return
            if layer in self.viewer.layers:
                self._ask(layer, source, path, um)
            self.dock.follow()

        def failed(error: Exception) -> None:
            self.is_preparing = False
            show_error(f"The picture cannot be prepared: {error}")
            self.dock.follow()

        run_in_background(
            lambda: write_picture_slide(
                picture_pixels(layer), mpp_xy=pair, folder=pictures_folder()
            ),
            written,
            failed,
            owner=self.dock,
        )

    def _ask(
        self, layer: Layer, source: SlideSource, path: Path, um: float | None
    ) -> None:
        dock, key = self.dock, key_of(layer)
        known = self.analyses.get(key)
        if known is not None and known.analysis.is_open:
            return
        slide = SlideSource(
            source.name, path, source.mpp_xy, source.l0_size_xy, source.l0_bounds_xy
        )
        asked = dock.advanced.request
        analysis = Analysis(slide, dock.model.path, um, device=asked["device"])
        analysis.model_name = dock.model.list.currentText()
        shown = Shown(analysis, layer, SlideMaps(self.viewer, layer, key))
        if known is not None and known.analysis.asks_the_same(analysis):
            shown.take_over(known)  # until something newer comes
        else:
            # What is there may be of another model, or of a dock that was closed.
            shown.maps.remove(*_layers.NAMES)
            tell_plainly(layer)
        self.analyses[key] = shown
        dock.questions.end()
        dock.strip.clear()
        analysis.request = post().ask(
            "analyse",
            lambda message: self._take(shown, message),
            user=id(dock),
            slide=str(path),
            title=slide.name,
            model=None if analysis.model is None else str(analysis.model),
            slide_mpp=um,
            l0_from=self._view_centre(shown),
            features=str(features_folder()),
            class_map=analysis.model is not None,
            **asked,
        )
        dock.keep_settings()
        self._show_pace(shown)
        dock.follow()

    def cancel(self) -> None:
        shown = self.dock.shown
        if shown is not None and shown.analysis.request is not None:
            post().cancel(shown.analysis.request)
            self.dock.progress.setText("Stopping…")

    def look_here(self) -> None:
        """What is on the screen now is looked at next."""
        shown = self.dock.shown
        if shown is None or not shown.analysis.is_open:
            return
        place, request = self._view_centre(shown), shown.analysis.request
        if place != self._place and request is not None:
            self._place = place
            post().look_here(request, place)

    def forget(self, layer: Layer) -> None:
        """A layer is gone: end what was asked of it."""
        for key, shown in list(self.analyses.items()):
            if shown.layer is layer:
                post().forget(shown.analysis.request)
                del self.analyses[key]
                self.activity.close()
                if self.dock.display.is_drawn(shown):
                    self.dock.display.hide_legend()
                # Not now: whoever removes several layers at once counts on them.
                QTimer.singleShot(0, partial(shown.maps.remove, *_layers.NAMES))

    def close(self) -> None:
        for shown in self.analyses.values():
            post().forget(shown.analysis.request)
        self.activity.close()

    def _view_centre(self, shown: Shown) -> list[float] | None:
        """Level-0 (x, y) of what is on the screen, where that is a part only."""
        slide = shown.analysis.slide
        eye = camera(self.viewer)
        width, height = canvas_size(self.dock)
        scale = np.abs(np.asarray(shown.layer.scale[-2:], float))
        seen = (height / eye.zoom / scale[0]) * (width / eye.zoom / scale[1])
        if seen > 0.5 * slide.l0_size_xy[0] * slide.l0_size_xy[1]:
            return None
        data = np.asarray(shown.layer.world_to_data(tuple(eye.center[-2:])))[-2:]
        x = float(data[1]) + slide.l0_bounds_xy[0]
        y = float(data[0]) + slide.l0_bounds_xy[1]
        return [x, y]

    # Hearing

    def _take(self, shown: Shown, message: Message) -> None:
        analysis = shown.analysis
        analysis.take(message.event, message.facts, message.arrays)
        if self.dock.is_closed or shown is not self.analyses.get(shown.maps.key):
            return
        is_current = shown is self.dock.shown
        if message.event == "note":
            show_warning(analysis.notes[-1])
        elif message.event == "progress" and is_current:
            self._show_pace(shown)
        elif message.event in ("prediction", "class_map"):
            self._show_maps(shown)
        elif message.event == "done":
            self._finish(shown)
        elif message.event == FAILED:
            self._fail(shown)
        elif message.event == CANCELLED:
            self.activity.close()
            self.show_places(shown)
        if message.event != "progress":
            self.dock.follow()

    def show_all(self) -> None:
        """Show what is known of the slide that was turned to."""
        shown = self.dock.shown
        if shown is None:
            self.dock.display.hide_legend()
            return
        self._show_maps(shown)
        if shown.kinds:
            self.alike.show_kinds(shown)
        elif not shown.analysis.is_open:
            self.show_places(shown)
        if shown.analysis.is_open:
            self._show_pace(shown)

    def _show_maps(self, shown: Shown) -> None:
        dock = self.dock
        dock.display.draw(shown, dock.controls.settings)
        if shown is not dock.shown:
            dock.redraw()
            return
        reading = shown.analysis.reading
        if reading is not None and len(reading.attention):
            dock.reading.show_reading(reading)
            if not shown.analysis.is_open or reading.seen >= 1:
                self.show_places(shown)

    def show_places(self, shown: Shown) -> None:
        if shown is not self.dock.shown or shown.lattice is None:
            return
        self.fill_strip(shown, top_places(shown, self.dock.controls.settings))
        self.dock.strip_words.setText(
            "Where it looked most, in times the average, with others to compare: by "
            "chance, and looked at least. Click one, or press N."
        )

    def fill_strip(self, shown: Shown, places: list[Place]) -> None:
        path, step = shown.analysis.slide.path, shown.analysis.l0_step_xy
        if shown is not self.dock.shown:
            return
        if places and path is not None and step is not None:
            self.dock.strip.show_places(places, path, step)
            self.dock.follow()

    def _finish(self, shown: Shown) -> None:
        self.activity.close()
        self._show_maps(shown)
        self.show_places(shown)
        self.dock.advanced.make_room()
        self.alike.prepare(shown)

    def _fail(self, shown: Shown) -> None:
        self.activity.close()
        analysis = shown.analysis
        show_error(analysis.sentence)
        if analysis.kind == "no_tissue":
            self.dock.display.draw_tissue(shown)
        if analysis.kind == "no_pixel_size":
            self.dock.pixel_size.ask(shown.maps.key, analysis.slide.l0_size_xy)
        self.show_places(shown)

    # Reports

    def write_report(self, path: Path) -> None:
        from napari_spt.analysis.report import write_findings

        shown = self.dock.shown
        if shown is None:
            return
        names = self.dock.names_slide.isChecked()
        self.dock.export.setEnabled(False)
        analysis = shown.analysis

        def ended() -> None:
            if not self.dock.is_closed:
                self.dock.export.setEnabled(True)

        def written(path: Path) -> None:
            show_info(f"Written: {path}")
            ended()

        def failed(error: Exception) -> None:
            show_error(f"The report cannot be written: {error}")
            ended()

        run_in_background(
            lambda: write_findings(path, analysis, names_slide=names),
            written,
            failed,
            owner=self.dock,
        )

    # Progress

    def _show_pace(self, shown: Shown) -> None:
        dock, pace = self.dock, shown.analysis.pace
        total = 0 if pace is None else pace.total
        # A bar that is told a value draws the whole window at once, unless it is still.
        dock.bar.setUpdatesEnabled(False)
        dock.bar.setRange(0, total)
        dock.bar.setValue(0 if pace is None else pace.done)
        dock.bar.setUpdatesEnabled(True)
        dock.progress.setText(pace_words(pace))
        if pace is not None:
            self.activity.show(pace.done, total)


def _import_needed() -> None:
    """Beside the window, which would stand still for it later."""
    for name in NEEDED:
        import_module(name)
