"""Which slide: what to do without one, a list of those that are open, and its size."""

from typing import TYPE_CHECKING

from qtpy.compat import isalive
from qtpy.QtCore import QSignalBlocker, Signal
from qtpy.QtWidgets import QComboBox, QPushButton, QVBoxLayout, QWidget

from napari_spt import PLUGIN
from napari_spt.analysis.panel import Panel
from napari_spt.analysis.pixel_size import PixelSizeQuestion
from napari_spt.analysis.state import AnalysisState
from napari_spt.analysis.words import slide_words
from napari_spt.parts.widgets import Section, text
from napari_spt.slides.slide_source import key_of

if TYPE_CHECKING:
    from napari.viewer import Viewer

WELCOME = (
    "Open a slide, press one button, and see where a model looks and what it says."
)


class SlidePanel(Panel):
    """The chosen slide; ``picked`` gives the layer that the user takes instead."""

    picked = Signal(object)

    def __init__(self, state: AnalysisState, viewer: "Viewer") -> None:
        super().__init__(state)
        self._viewer = viewer
        self.open_button = QPushButton("Open slide…")
        self.sample_button = QPushButton("Try the sample")
        self.sample_button.setToolTip("A synthetic slide, painted for trying this out")
        self.welcome = text(WELCOME)
        self.empty = QWidget()
        box = QVBoxLayout(self.empty)
        box.setContentsMargins(0, 12, 0, 0)
        box.setSpacing(10)
        for widget in (self.welcome, self.open_button, self.sample_button):
            box.addWidget(widget)
        self.list = QComboBox()
        self.list.setAccessibleName("Slide")
        self.list.setToolTip("The slide to analyse")
        self.list.setSizeAdjustPolicy(
            QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon
        )
        self.facts = text("", "About the slide")
        self.pixel_size = PixelSizeQuestion()
        self.choice = Section("Slide", self.list, self.facts, self.pixel_size)
        self.box.addWidget(self.empty)
        self.box.addWidget(self.choice)
        self.open_button.clicked.connect(self.choose_file)
        self.sample_button.clicked.connect(self.open_sample)
        self.list.activated.connect(self._pick)
        self.pixel_size.answered.connect(state.state_mpp)
        state.slides_changed.connect(self._fill_list)
        state.options_changed.connect(self.refresh)
        self.refresh()

    def refresh(self) -> None:
        state = self.state
        layer, source = state.layer, state.source
        self.empty.setVisible(source is None)
        self.choice.setVisible(source is not None)
        if layer is None or source is None:
            return
        with QSignalBlocker(self.list):
            self.list.setCurrentIndex(self.list.findData(layer.unique_id))
        self.facts.setText(slide_words(source))
        if state.asks_pixel_size:
            key = key_of(layer)
            self.pixel_size.ask(key, source.l0_size_xy, state.stated_mpp.get(key))
        self.pixel_size.setVisible(state.asks_pixel_size)

    def _fill_list(self) -> None:
        with QSignalBlocker(self.list):
            self.list.clear()
            for layer in self.state.layers:
                self.list.addItem(layer.name, layer.unique_id)
        self.list.setVisible(self.list.count() > 1)
        self.refresh()

    def _pick(self, index: int) -> None:
        wanted = self.list.itemData(index)
        for layer in self.state.layers:
            if layer.unique_id == wanted:
                self.picked.emit(layer)

    def choose_file(self) -> None:
        from napari_spt.slides.open_command import choose_and_open

        self.dialog = choose_and_open(self._viewer, offers=False)

    def open_sample(self) -> None:
        self.sample_button.setEnabled(False)
        self.welcome.setText("Painting a sample slide: the first time takes a while…")
        try:
            self._viewer.open_sample(PLUGIN, "glandular")
        finally:
            # The window may have been closed meanwhile.
            if isalive(self):
                self.sample_button.setEnabled(True)
                self.welcome.setText(WELCOME)
