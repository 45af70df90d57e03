"""The map itself: its points, how they are coloured and laid out, and the lasso."""

from collections.abc import Mapping
from pathlib import Path

from qtpy.QtCore import QPoint, Signal
from qtpy.QtWidgets import (
    QComboBox,
    QHBoxLayout,
    QPushButton,
    QSizePolicy,
    QVBoxLayout,
    QWidget,
)

from napari_spt.parts.settings import remember, remembered
from napari_spt.slide_map.colouring import Colouring, colouring, columns
from napari_spt.slide_map.hover_card import HoverCard
from napari_spt.slide_map.legend import Legend
from napari_spt.slide_map.plot import MapPlot
from napari_spt.slide_map.words import slide_lines
from spt_core.insight.slide_map import MapOfSlides
from spt_core.tokens import Labels

LIKE, DIRECTIONS = "Like beside like", "Main differences"
_LAYOUT_TIPS = (
    "Like beside like: neighbours mean something, large distances do not.\n"
    "Main differences: the two directions in which slides differ most."
)


class MapPanel(QWidget):
    """``opened`` and ``lassoed`` tell of rows of the map."""

    opened = Signal(int)
    lassoed = Signal(object)

    def __init__(self) -> None:
        super().__init__()
        self.map: MapOfSlides | None = None
        self.labels: Labels | None = None
        self.files: Mapping[str, Path] = {}
        self.features: Mapping[str, Path] = {}
        self.colour_by = _list("Colour slides by")
        self.layout_by = _list("Lay slides out by")
        self.layout_by.addItems([LIKE, DIRECTIONS])
        self.layout_by.setToolTip(_LAYOUT_TIPS)
        self.lasso, self.whole = QPushButton("Lasso"), QPushButton("Whole map")
        self.lasso.setCheckable(True)
        self.lasso.setToolTip("Draw around slides to list them (or drag with Shift)")
        self.whole.setToolTip("Show all slides again (0)")
        self.plot, self.legend = MapPlot(), Legend()
        self.card = HoverCard(self.plot)
        box = QVBoxLayout(self)
        box.setContentsMargins(0, 0, 0, 0)
        box.setSpacing(6)
        for widget in (self.colour_by, self.layout_by, self.plot, self.legend):
            box.addWidget(widget)
        row = QHBoxLayout()
        row.setSpacing(4)
        row.addWidget(self.lasso, stretch=1)
        row.addWidget(self.whole, stretch=1)
        box.addLayout(row)
        self.colour_by.activated.connect(self._on_colour)
        self.layout_by.activated.connect(lambda _: self.show_points())
        self.lasso.toggled.connect(lambda on: setattr(self.plot, "is_lasso", on))
        self.whole.clicked.connect(self.plot.show_whole)
        self.legend.only.connect(self.plot.show_only)
        self.plot.hovered.connect(self._on_hover)
        self.plot.clicked.connect(self.opened)
        self.plot.lassoed.connect(self._on_lasso)

    def show_map(self, found: MapOfSlides, labels: Labels | None) -> None:
        self.map, self.labels = found, labels
        wanted = self.colour_by.currentData() or remembered("map_colour")
        self.colour_by.clear()
        for name, words in columns(found, labels):
            self.colour_by.addItem(f"Colour: {words}", name)
        self.colour_by.setCurrentIndex(max(0, self.colour_by.findData(wanted)))
        self.show_points()

    def use_files(
        self, features: Mapping[str, Path], files: Mapping[str, Path]
    ) -> None:
        """Where slides and their features are, by name, for pictures of them."""
        self.features, self.files = features, files
        self.card.forget()

    def point_to(self, row: int) -> None:
        self.plot.current = row
        self.plot.update()

    def show_points(self) -> None:
        if self.map is None:
            return
        found = self._colouring(self.map)
        is_like = self.layout_by.currentText() == LIKE
        places = self.map.neighbours if is_like else None
        if places is None:
            places = self.map.directions
        self.plot.show_points(places, found)
        self.legend.show_colouring(found)

    def use_colours(self, ink: str, ground: str) -> None:
        self.plot.use_colours(ink, ground)
        self.card.setStyleSheet(
            f"HoverCard {{ background: {ground}; border: 1px solid {ink}; }}"
        )

    def _colouring(self, found: MapOfSlides) -> Colouring:
        return colouring(self.colour_by.currentData(), found, self.labels)

    def _on_colour(self, _index: int) -> None:
        remember("map_colour", self.colour_by.currentData())
        if self.map is None:
            return
        found = self._colouring(self.map)
        self.plot.only = None
        self.plot.show_colours(found)
        self.legend.show_colouring(found)

    def _on_hover(self, row: int) -> None:
        if self.map is None or row < 0 or self.plot.colouring is None:
            self.card.leave()
            return
        name, coloured = self.map.names[row], self.plot.colouring.said[row]
        lines = slide_lines(row, self.map, self.labels, [coloured])
        x, y = self.plot.screen(self.plot.xy[row])
        self.card.show_slide(
            name,
            "\n".join(lines),
            QPoint(round(x), round(y)),
            self.files.get(name),
            self.features.get(name),
        )

    def _on_lasso(self, rows) -> None:
        self.lasso.setChecked(False)
        self.lassoed.emit(rows)


def _list(name: str) -> QComboBox:
    found = QComboBox()
    found.setAccessibleName(name)
    found.setToolTip(name)
    found.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
    found.setSizeAdjustPolicy(
        QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon
    )
    found.setMinimumContentsLength(6)
    return found
