"""See the views: the parts of the open slide that training would compare."""

from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from napari.layers import Layer
from qtpy.QtCore import Signal
from qtpy.QtWidgets import QCheckBox, QHBoxLayout, QPushButton, QVBoxLayout, QWidget

from napari_spt.analysis.lattice import Lattice
from napari_spt.analysis.layers import VIEWS, MapLayers, napari_labels
from napari_spt.parts.background import run_in_background
from napari_spt.parts.widgets import text
from napari_spt.slides.slide_source import key_of, slide_source
from napari_spt.slides.slide_table import table_of
from napari_spt.training.slide_places import (
    SlidePlaces,
    cohort_places,
    find_places,
)
from spt_core.errors import InputError
from spt_core.insight.colours import CLASS_COLOURS
from spt_core.learning.preview import PreviewedViews, preview, suggested_crop
from spt_core.learning.views import ViewSettings

if TYPE_CHECKING:
    from napari.viewer import Viewer

EMPTY = (
    "Open a slide to see the parts of it that training compares: patches of two views, "
    "each in its own colour."
)
HELP = (
    "Training learns that both views are of one slide. They should show different "
    "patches, enough of them, and not always the whole slide."
)
OPACITY = 0.65
SEVERAL = (255, 255, 255)


class ViewsPanel(QWidget):
    """The views of the slide in front, drawn anew whenever settings move.

    Parameters
    ----------
    settings_source
        Gives the settings as they are now; :meth:`refresh` asks for them. The seed is
        :attr:`seed`.
    """

    # Areas (low, high) that suit the tissue were accepted.
    crop_accepted = Signal(float, float)

    def __init__(
        self, viewer: "Viewer", settings_source: Callable[[], ViewSettings]
    ) -> None:
        super().__init__()
        self.viewer, self.settings_source = viewer, settings_source
        self.table = table_of(viewer)
        self.seed = self.epoch = 0
        self.features: Path | None = None
        self.views: PreviewedViews | None = None
        self.suggestion: tuple[float, float] | None = None
        self.is_closed = False
        self._places: dict[str, SlidePlaces] = {}
        self._failed: dict[str, str] = {}
        self._reading: set[str] = set()
        self._drawn: tuple[Layer, str] | None = None
        self._cohort: tuple[Path, list] | None = None
        self.shown = QCheckBox("See the views on the slide")
        self.shown.setToolTip("Colour the patches that training would compare")
        self.says = text(EMPTY, "What the views hold", is_html=True)
        self.help = text(HELP)
        self.again = QPushButton("Another draw")
        self.again.setToolTip("Views are drawn by chance: see another pair")
        self.suggests = text("", "Suggested size of crops")
        self.accept = QPushButton("Use this size")
        self.accept.setToolTip("Take the suggested size of crops over")
        row = QHBoxLayout()
        row.addWidget(self.again)
        row.addWidget(self.accept)
        box = QVBoxLayout(self)
        box.setContentsMargins(0, 0, 0, 0)
        box.setSpacing(6)
        for widget in (self.shown, self.says, self.help, self.suggests):
            box.addWidget(widget)
        box.addLayout(row)
        self.shown.toggled.connect(self.refresh)
        self.again.clicked.connect(self.draw_again)
        self.accept.clicked.connect(self._accept)
        self.table.front_changed.connect(self.refresh)
        self._show_suggestion()
        self.refresh()

    # What is looked at

    def use_features(self, features: Path | None) -> None:
        """Take places from a folder of features, and suggest crops for its tissue."""
        if features == self.features:
            return
        self.features = features
        self._places.clear()
        self._failed.clear()
        self._cohort, self.suggestion = None, None
        self._show_suggestion()
        if features is not None:
            run_in_background(
                lambda: cohort_places(features),
                lambda found: self._take_cohort(features, found),
                lambda _error: None,
                owner=self,
            )
        self.refresh()

    def refresh(self, _event: object = None) -> None:
        """Draw the views by the settings as they are now."""
        if self.is_closed:
            return
        self._show_accept()
        slide = self.table.front
        source = slide_source(slide)
        self.again.setEnabled(False)
        if slide is None or source is None or source.path is None:
            self._show_nothing(EMPTY)
            return
        if not self.shown.isChecked():
            self._show_nothing("")
            return
        key = key_of(slide)
        if key in self._failed:
            self._show_nothing(self._failed[key])
        elif key in self._places:
            self._draw(slide, key, self._places[key])
        else:
            self._show_nothing("Finding the tissue…")
            self._read(slide, key)

    def draw_again(self) -> None:
        self.epoch += 1
        self.refresh()

    def close_panel(self) -> None:
        """Leave the slide as it was."""
        if not self.is_closed:
            self.is_closed = True
            self.table.front_changed.disconnect(self.refresh)
            self._remove()

    def _read(self, slide: Layer, key: str) -> None:
        if key in self._reading:
            return
        self._reading.add(key)
        source, features = slide_source(slide), self.features

        def take(found: SlidePlaces) -> None:
            self._reading.discard(key)
            if features == self.features:
                if len(found.p):
                    self._places[key] = found
                else:
                    self._failed[key] = "No tissue was found on this slide."
            self.refresh()

        def fail(error: Exception) -> None:
            self._reading.discard(key)
            known = isinstance(error, InputError | OSError)
            why = str(error) if known else "The slide cannot be read."
            self._failed[key] = why
            self.refresh()

        mpp = None
        if source.mpp_xy is not None:
            mpp = float(np.sqrt(source.mpp_xy[0] * source.mpp_xy[1]))
        run_in_background(
            lambda: find_places(source, features, mpp), take, fail, owner=self
        )

    # Drawing

    def _draw(self, slide: Layer, key: str, places: SlidePlaces) -> None:
        try:
            settings = self.settings_source()
        except (InputError, ValueError) as error:
            self.says.setText(escape(str(error)))
            return
        self.views = preview(
            places.p,
            settings,
            seed=self.seed,
            epoch=self.epoch,
            slide=places.number or 0,
        )
        source = slide_source(slide)
        lattice = Lattice(places.l0_step_xy, source.l0_size_xy, source.l0_bounds_xy)
        width, height = (
            -(-size // step)
            for size, step in zip(source.l0_size_xy, places.l0_step_xy, strict=True)
        )
        drawn = np.full((height, width), np.nan, np.float32)
        # Of the views' patches alone: a slide may have a thousand times as many.
        for number, view in enumerate(self.views.rows):
            rows, cols = places.cells[view].T
            inside = (rows < height) & (cols < width)
            rows, cols = rows[inside], cols[inside]
            is_first = np.isnan(drawn[rows, cols])
            drawn[rows, cols] = np.where(is_first, number, len(self.views.rows))
        names = [f"view {n + 1}" for n in range(len(self.views.rows))]
        colours = [CLASS_COLOURS[n % len(CLASS_COLOURS)] for n in range(len(names))]
        if self._drawn != (slide, key):
            self._remove()
        layers = MapLayers(self.viewer, slide, key)
        layer = layers.find(VIEWS)
        names.append("in several views")
        is_same = layer is not None and layer.metadata["spt"]["names"] == names
        if is_same and layer.data.shape == drawn.shape:
            # In place: new data, names and colours cost napari far more.
            layer.data[...] = napari_labels(drawn, len(names))
            layer.refresh(thumbnail=False, highlight=False, extent=False)
        else:
            layers.show_labels(
                VIEWS, drawn, lattice, names, [*colours, SEVERAL], opacity=OPACITY
            )
        self._drawn = (slide, key)
        self.again.setEnabled(True)
        self.says.setText(views_words(self.views, len(places.p), self.epoch))

    def _show_nothing(self, words: str) -> None:
        self._remove()
        self.views = None
        self.says.setText(escape(words))
        self.says.setVisible(bool(words))

    def _remove(self) -> None:
        if self._drawn is not None:
            slide, key = self._drawn
            self._drawn = None
            MapLayers(self.viewer, slide, key).remove(VIEWS)
        self.says.show()

    # Crops for this tissue

    def _take_cohort(self, features: Path, places: list) -> None:
        if features != self.features:
            return

        def take(found: tuple[float, float] | None) -> None:
            if features == self.features:
                self.suggestion = found
                self._show_suggestion(len(places))

        run_in_background(
            lambda: suggested_crop(places, self.settings_source()),
            take,
            lambda _error: None,
            owner=self,
        )

    def _show_suggestion(self, slides: int = 0) -> None:
        found = self.suggestion
        self.accept.setVisible(found is not None)
        self.suggests.setVisible(found is not None)
        if found is not None:
            self.suggests.setText(
                f"For the tissue of these slides (a look at {slides}), crops with room "
                f"for {found[0]:.0f} to {found[1]:.0f} patches suit: enough is left in "
                "the smaller view, and no view is most of a slide."
            )
        self._show_accept()

    def _show_accept(self) -> None:
        try:
            is_taken = self.settings_source().crop_area == self.suggestion
        except (InputError, ValueError):
            is_taken = False
        self.accept.setEnabled(not is_taken)
        self.accept.setText("This size is taken" if is_taken else "Use this size")

    def _accept(self) -> None:
        if self.suggestion is not None:
            self.crop_accepted.emit(*self.suggestion)


def views_words(views: PreviewedViews, patches: int, draw: int) -> str:
    """How many patches each view has, and how much two of them have in common."""
    counts = [
        f"<span style='color:rgb{CLASS_COLOURS[n % len(CLASS_COLOURS)]}'>■</span> "
        f"view {n + 1} has {len(rows):,}"
        for n, rows in enumerate(views.rows)
    ]
    said = f"Draw {draw + 1}: of {patches:,} patches {', '.join(counts)}."
    if len(views.rows) < 2:
        return said
    shared = "none is in both" if not views.shared else f"{views.shared:,} are in both"
    return (
        f"{said} Of these, {shared}; {views.same_place:.0%} of the place is the same."
    )
