"""Regions: places the model looked at, and some to compare them with."""

from qtpy.QtCore import QTimer, Signal

from napari_spt.analysis.panel import Panel
from napari_spt.analysis.places import Place, odd_places, top_places
from napari_spt.analysis.region_strip import RegionStrip
from napari_spt.analysis.slide_analysis import Analysis, Change
from napari_spt.analysis.state import AnalysisState
from napari_spt.parts.widgets import text

MOST = "Where it looked most (× average), and others to compare. N shows the next."
ODD = "Places like no others, the strangest first. N shows the next."
# The map first, then the regions' pictures.
DELAY_MS = 200


class RegionsPanel(Panel):
    """Pictures of regions; ``chosen`` gives the place that the user wants to see."""

    shows = frozenset(
        {Change.BEGUN, Change.PREDICTION, Change.TISSUE_MAP, Change.ENDED}
    )
    chosen = Signal(object)

    def __init__(self, state: AnalysisState) -> None:
        super().__init__(state)
        self.words = text()
        self.strip = RegionStrip()
        self.box.addWidget(self.words)
        self.box.addWidget(self.strip)
        self.strip.chosen.connect(self.chosen)
        self._head = state.view.head
        self._delay = QTimer(self)
        self._delay.setSingleShot(True)
        self._delay.setInterval(DELAY_MS)
        self._delay.timeout.connect(self.refresh)
        state.view_changed.connect(self._on_view)
        self.hide()

    def refresh(self) -> None:
        analysis = self.state.analysis
        if analysis is None or analysis.lattice is None:
            self.strip.clear()
        elif analysis.tissue_map is not None and not analysis.is_open:
            self.words.setText(ODD)
            self._show(analysis, odd_places(analysis.tissue_map))
        elif analysis.prediction is not None and self._is_worth_showing(analysis):
            self.words.setText(MOST)
            self._show(analysis, top_places(analysis.prediction, self.state.view))
        else:
            self.strip.clear()
        self.setVisible(bool(self.strip.places))

    def close_pictures(self) -> None:
        """Read no further pictures."""
        self._delay.stop()
        self.strip.stop()

    def _is_worth_showing(self, analysis: Analysis) -> bool:
        """Whether the regions do not change with every batch of patches."""
        prediction = analysis.prediction
        return not analysis.is_open or (prediction is not None and prediction.is_whole)

    def _show(self, analysis: Analysis, places: list[Place]) -> None:
        lattice = analysis.lattice
        if lattice is not None:
            self.strip.show_places(places, analysis.asked.slide, lattice.l0_step_xy)

    def _on_view(self) -> None:
        """Another head looked most elsewhere."""
        if self.state.view.head != self._head:
            self._head = self.state.view.head
            self._delay.start()
