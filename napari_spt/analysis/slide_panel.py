"""Which slide: what to do without one, a list of those that are open, and its size."""

from typing import TYPE_CHECKING

from napari.layers import Layer
from qtpy.compat import isalive
from qtpy.QtCore import QSignalBlocker, Signal
from qtpy.QtWidgets import QComboBox, QFileDialog, QHBoxLayout, QPushButton, QWidget

from napari_spt import PLUGIN
from napari_spt.analysis.panel import Panel
from napari_spt.analysis.pixel_size import PixelSizeQuestion
from napari_spt.analysis.state import AnalysisState
from napari_spt.analysis.words import slide_words
from napari_spt.parts.widgets import Section, text
from napari_spt.slides.open_buttons import OpenButtons
from napari_spt.slides.pixel_units import known_mpp_xy
from napari_spt.slides.slide_source import (
    USUAL_MPP,
    is_file_slide,
    key_of,
    slide_source,
)
from napari_spt.slides.slide_table import table_of

if TYPE_CHECKING:
    from napari.viewer import Viewer

WELCOME = (
    "Open a slide, press one button, and see where a model looks and what it says."
)


class SlidePanel(Panel):
    """The chosen slide; ``picked`` gives the layer that the user takes instead.

    ``spread`` asks to lay all slides side by side, or to show one at a time again.
    """

    picked = Signal(object)
    spread = Signal(bool)

    def __init__(self, state: AnalysisState, viewer: "Viewer") -> None:
        super().__init__(state)
        self._viewer = viewer
        self._table = table_of(viewer)
        self.opening = OpenButtons(viewer, offers=False)
        self.open_button = self.opening.open_button
        self.sample_button = QPushButton("Try the sample")
        self.sample_button.setToolTip("A synthetic slide, painted for trying this out")
        self.stop_sample = QPushButton("Cancel")
        self.stop_sample.setToolTip("Do not paint the sample")
        self.stop_sample.hide()
        self.welcome = text(WELCOME)
        self.welcome.setContentsMargins(0, 12, 0, 4)
        self.list = QComboBox()
        self.list.setAccessibleName("Slide")
        self.list.setToolTip(
            "The slide to look at and to analyse. The keys . and , show the next one "
            "and the one before."
        )
        self.list.setSizeAdjustPolicy(
            QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon
        )
        self.facts = text("", "About the slide")
        self.pixel_size = PixelSizeQuestion()
        self.side_by_side = QPushButton("Side by side")
        self.side_by_side.setCheckable(True)
        self.side_by_side.setToolTip(
            "All slides beside one another, as large as they are; again for one at a "
            "time"
        )
        self.several = QWidget()
        row = QHBoxLayout(self.several)
        row.setContentsMargins(0, 0, 0, 0)
        row.addWidget(self.list, stretch=1)
        row.addWidget(self.side_by_side)
        self.choice = Section("Slide", self.several, self.facts, self.pixel_size)
        for widget in (
            self.welcome,
            self.opening,
            self.sample_button,
            self.stop_sample,
            self.choice,
        ):
            self.box.addWidget(widget)
        self.sample_button.clicked.connect(self.open_sample)
        self.stop_sample.clicked.connect(self._stop_sample)
        self.side_by_side.clicked.connect(self.spread)
        self._table.layout_changed.connect(self._show_layout)
        self.list.activated.connect(self._pick)
        self.pixel_size.answered.connect(state.state_mpp)
        state.slides_changed.connect(self._fill_list)
        state.options_changed.connect(self.refresh)
        self._show_layout()

    def refresh(self) -> None:
        state = self.state
        layer, source = state.layer, state.source
        for widget in (self.welcome, self.sample_button):
            widget.setVisible(source is None)
        self.choice.setVisible(source is not None)
        if layer is None or source is None:
            return
        with QSignalBlocker(self.list):
            self.list.setCurrentIndex(self.list.findData(layer.unique_id))
        taken = USUAL_MPP if self._is_guessed(layer) else None
        self.facts.setText(slide_words(source, drawn_mpp=taken))
        if state.asks_pixel_size:
            key = key_of(layer)
            self.pixel_size.ask(
                key,
                source.l0_size_xy,
                state.stated_mpp.get(key),
                doubted_xy=source.doubted_mpp_xy,
            )
        self.pixel_size.setVisible(state.asks_pixel_size)

    def _fill_list(self) -> None:
        with QSignalBlocker(self.list):
            self.list.clear()
            for layer in self.state.layers:
                source = slide_source(layer)
                name = layer.name if source is None else source.name
                self.list.addItem(name, layer.unique_id)
        self.several.setVisible(self.list.count() > 1)
        self.refresh()

    def _show_layout(self) -> None:
        self.side_by_side.setChecked(self._table.is_side_by_side)
        self.refresh()

    def _is_guessed(self, layer: Layer) -> bool:
        """Whether a slide lies beside others at a size that nobody has stated."""
        return (
            self._table.shows_all
            and is_file_slide(layer)
            and known_mpp_xy(layer) is None
            and str(layer.units[-1]) == "micrometer"
        )

    def stop(self) -> None:
        """The dock is closed: nothing is opened any more."""
        self.opening.stop()
        self._table.layout_changed.disconnect(self._show_layout)

    def _pick(self, index: int) -> None:
        wanted = self.list.itemData(index)
        for layer in self.state.layers:
            if layer.unique_id == wanted:
                self.picked.emit(layer)

    @property
    def dialog(self) -> QFileDialog:
        return self.opening.dialog

    def _stop_sample(self) -> None:
        from napari_spt.slides.samples import stop_painting

        stop_painting()

    def open_sample(self) -> None:
        # Here: what paints takes a moment to load.
        from napari_spt.slides.samples import NOT_PAINTED

        self.sample_button.setEnabled(False)
        self.stop_sample.show()
        self.welcome.setText("Painting a sample slide: the first time takes a while…")
        try:
            for layer in self._viewer.open_sample(PLUGIN, "glandular"):
                if NOT_PAINTED in layer.metadata.get("spt", {}):
                    self._viewer.layers.remove(layer)
        finally:
            # The window may have been closed meanwhile.
            if isalive(self):
                self.sample_button.setEnabled(True)
                self.stop_sample.hide()
                self.welcome.setText(WELCOME)
