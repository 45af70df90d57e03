"""Kinds of tissue as a table: example, colour, name, area; and how they are drawn."""

from functools import partial

from napari.qt.threading import GeneratorWorker, create_worker
from qtpy.QtCore import QSize, Qt, Signal
from qtpy.QtGui import QColor, QIcon, QPixmap
from qtpy.QtWidgets import (
    QColorDialog,
    QGridLayout,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QMenu,
    QSizePolicy,
    QSlider,
    QToolButton,
    QWidget,
)

from napari_spt.analysis.panel import Panel
from napari_spt.analysis.places import Place
from napari_spt.analysis.region_strip import pictures, pixmap
from napari_spt.analysis.slide_analysis import Analysis, Change
from napari_spt.analysis.state import AnalysisState
from napari_spt.analysis.words import area_words
from napari_spt.parts.widgets import text
from spt_core.insight.colours import KIND_COLOURS
from spt_core.insight.tissue_map import TissueMap

SIDE = 40
SAYS = "A name or a colour given here is kept: the same kind has it on the next slide."


class KindRow:
    """The controls of one kind."""

    def __init__(self, panel: "TissuePanel", number: int, title: str) -> None:
        self.number = number
        self.example = QToolButton()
        self.example.setObjectName("spt_region")
        self.example.setIconSize(QSize(SIDE, SIDE))
        self.example.setToolTip("A typical example: show it on the slide")
        self.colour = QToolButton()
        self.colour.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        self.colour.setToolTip("Choose another colour")
        self.name = QLineEdit()
        self.name.setPlaceholderText(title)
        self.name.setMinimumWidth(5 * self.name.fontMetrics().height())
        self.name.setToolTip("What to call this kind of tissue")
        self.area = QLabel()
        self.area.setAlignment(
            Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
        )
        self.more = QToolButton()
        self.more.setText("⋯")
        self.more.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        self.more.setToolTip("Take it for another kind")
        self.example.clicked.connect(lambda: panel.show_example(number))
        self.name.editingFinished.connect(self._on_name)
        self._renamed = panel.renamed
        self._said = ""

    @property
    def widgets(self) -> tuple[QWidget, ...]:
        return self.example, self.colour, self.name, self.area, self.more

    def show(self, title: str, name: str, rgb: tuple[int, int, int], area: str) -> None:
        self._said = name
        if self.name.text() != name and not self.name.hasFocus():
            self.name.setText(name)
        self.colour.setIcon(_swatch(rgb))
        self.area.setText(area)
        for widget, words in (
            (self.example, f"A typical example of {title}"),
            (self.colour, f"Colour of {title}"),
            (self.name, f"Name of {title}"),
            (self.more, f"Take {title} for another kind"),
        ):
            widget.setAccessibleName(words)

    def _on_name(self) -> None:
        if self.name.text().strip() != self._said:
            self._said = self.name.text().strip()
            self._renamed.emit(self.number, self._said)


class TissuePanel(Panel):
    """What a slide is made of; its signals say what a person wants changed."""

    shows = frozenset({Change.BEGUN, Change.TISSUE_MAP, Change.ENDED})
    chosen = Signal(object)
    renamed = Signal(int, str)
    recoloured = Signal(int, object)
    merged = Signal(int, int)

    def __init__(self, state: AnalysisState) -> None:
        super().__init__(state)
        self.rows: list[KindRow] = []
        self.grid = QGridLayout()
        self.grid.setHorizontalSpacing(4)
        self.grid.setVerticalSpacing(2)
        self.grid.setColumnStretch(2, 1)
        self.box.addLayout(self.grid)
        self.opacity = QSlider(Qt.Orientation.Horizontal)
        self.opacity.setRange(0, 100)
        self.opacity.setValue(round(100 * state.view.kinds_opacity))
        self.opacity.setAccessibleName("Opacity of the kinds of tissue")
        label = QLabel("Opacity")
        label.setBuddy(self.opacity)
        row = QHBoxLayout()
        row.addWidget(label)
        row.addWidget(self.opacity, stretch=1)
        self.box.addLayout(row)
        self.box.addWidget(text(SAYS))
        self.opacity.valueChanged.connect(
            lambda value: state.set_view(kinds_opacity=value / 100)
        )
        self._worker: GeneratorWorker | None = None
        self.hide()

    def refresh(self) -> None:
        analysis = self.state.analysis
        found = None if analysis is None else analysis.tissue_map
        if analysis is None or found is None or not len(found.kinds):
            self.stop()
            self._clear()
            self.hide()
            return
        order = sorted(range(len(found.kinds)), key=lambda row: -found.counts[row])
        numbers = [int(found.kinds.numbers[row]) for row in order]
        if numbers != [row.number for row in self.rows] or self._of is not analysis:
            self._lay_out(analysis, found, numbers)
        areas = found.areas_mm2(analysis.mpp_xy)
        titles = found.kinds.titles
        for line, row in zip(self.rows, order, strict=True):
            red, green, blue = (int(part) for part in found.kinds.rgb[row])
            area = None if areas is None else float(areas[row])
            line.show(
                titles[row],
                found.kinds.names[row],
                (red, green, blue),
                area_words(float(found.shares[row]), area),
            )
            self._fill_menus(line, found)
        self.show()

    def show_example(self, number: int) -> None:
        """Ask for the typical example of a kind to be shown."""
        found = None if self.state.analysis is None else self.state.analysis.tissue_map
        row = None if found is None else found.kinds.row(number)
        if found is not None and row is not None:
            x, y = found.xy[found.typical[row]]
            place = Place((int(x), int(y)), "odd", found.kinds.titles[row])
            self.chosen.emit(place)

    def stop(self) -> None:
        """Read no further pictures."""
        if self._worker is not None:
            self._worker.yielded.disconnect(self._show_picture)
            self._worker.quit()
            self._worker = None

    _of: Analysis | None = None

    def _lay_out(
        self, analysis: Analysis, found: TissueMap, numbers: list[int]
    ) -> None:
        self.stop()
        self._clear()
        self._of = analysis
        titles = dict(
            zip(found.kinds.numbers.tolist(), found.kinds.titles, strict=True)
        )
        for line, number in enumerate(numbers):
            row = KindRow(self, number, f"tissue kind {number + 1}")
            row.name.setPlaceholderText(titles[number])
            self.rows.append(row)
            for column, widget in enumerate(row.widgets):
                self.grid.addWidget(widget, line, column)
                widget.show()
            row.area.setSizePolicy(QSizePolicy.Policy.Minimum, QSizePolicy.Policy.Fixed)
        lattice = analysis.lattice
        if lattice is None:
            return
        rows = [found.kinds.row(number) for number in numbers]
        corners = [tuple(map(int, found.xy[found.typical[row]])) for row in rows]
        wanted = [
            (analysis.asked.slide, corner, lattice.l0_step_xy) for corner in corners
        ]
        worker = create_worker(pictures, wanted, SIDE)
        worker.yielded.connect(self._show_picture)
        self._worker = worker
        worker.start()

    def _show_picture(self, found) -> None:
        if isinstance(found, Exception):
            return  # the regions' strip tells of it
        number, rgb = found
        if number < len(self.rows):
            self.rows[number].example.setIcon(QIcon(pixmap(rgb)))

    def _clear(self) -> None:
        while self.grid.count():
            widget = self.grid.takeAt(0).widget()
            widget.hide()
            widget.deleteLater()
        self.rows = []
        self._of = None

    def _fill_menus(self, line: KindRow, found: TissueMap) -> None:
        colours = QMenu(line.colour)
        for rgb in KIND_COLOURS:
            action = colours.addAction(_swatch(rgb), "")
            action.triggered.connect(
                partial(self.recoloured.emit, line.number, tuple(rgb))
            )
        other = colours.addAction("Other…")
        other.triggered.connect(partial(self._ask_colour, line.number))
        _set_menu(line.colour, colours)
        kinds = QMenu(line.more)
        for number, title in zip(
            found.kinds.numbers.tolist(), found.kinds.titles, strict=True
        ):
            if number != line.number:
                action = kinds.addAction(f"Same as {title}")
                action.triggered.connect(
                    partial(self.merged.emit, line.number, int(number))
                )
        _set_menu(line.more, kinds)
        line.more.setEnabled(len(found.kinds) > 1)

    def _ask_colour(self, number: int) -> None:
        self.dialog = QColorDialog(self)
        self.dialog.colorSelected.connect(
            lambda one: self.recoloured.emit(
                number, (one.red(), one.green(), one.blue())
            )
        )
        self.dialog.open()


def _set_menu(button: QToolButton, menu: QMenu) -> None:
    before = button.menu()
    button.setMenu(menu)
    if before is not None:
        before.deleteLater()


def _swatch(rgb: tuple[int, int, int]) -> QIcon:
    image = QPixmap(16, 16)
    image.fill(QColor(*rgb))
    return QIcon(image)
