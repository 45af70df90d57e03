"""The "Map of slides" dock: which slides are alike, and which are like no other."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from qtpy.QtCore import QEvent, QPoint, QSize, Qt
from qtpy.QtWidgets import (
    QComboBox,
    QFrame,
    QHBoxLayout,
    QPushButton,
    QScrollArea,
    QSizePolicy,
    QVBoxLayout,
    QWidget,
)

from napari_spt.analysis.words import failure_words, progress_words
from napari_spt.parts.background import run_in_background
from napari_spt.parts.focus_ring import FocusRing
from napari_spt.parts.post import post
from napari_spt.parts.settings import remember, remembered
from napari_spt.parts.tool_style import ground_of, ink_of, tool_style
from napari_spt.parts.wheel import CalmWheel
from napari_spt.parts.widgets import Column, Folded, text
from napari_spt.parts.window_calls import make_window_calls_safe
from napari_spt.slide_map.colouring import colouring, columns
from napari_spt.slide_map.hover_card import HoverCard
from napari_spt.slide_map.legend import Legend
from napari_spt.slide_map.lists_panel import ListsPanel
from napari_spt.slide_map.plot import MapPlot
from napari_spt.slide_map.slide_files import likely_folders, slide_files
from napari_spt.slide_map.source_panel import SourcePanel, Sources
from napari_spt.slide_map.words import EMPTY, learned_words, slide_lines
from napari_spt.slides.open_command import open_slides
from napari_spt.slides.slide_source import slide_source
from napari_spt.slides.slide_table import table_of
from spt_core.engine.cache import maps_folder
from spt_core.engine.protocol import (
    Failed,
    MapSlides,
    Reply,
    SlidesEmbedded,
    SlidesMapped,
    Working,
)
from spt_core.errors import InputError
from spt_core.insight.slide_map import MapOfSlides
from spt_core.slides import slide_name
from spt_core.tokens import Labels, layout, read_labels

if TYPE_CHECKING:
    from napari.viewer import Viewer

NARROWEST, NARROWEST_LINES = 326, 15
TALL = 760
LIKE, DIRECTIONS = "Like beside like", "Main differences"
_LAYOUT_TIPS = (
    "Like beside like (t-SNE): neighbours mean something, large distances do not.\n"
    "Main differences (PCA): the two directions in which slides differ most."
)


class SlideMapDock(QWidget):
    """Sources, the map with its legend, and lists of its slides."""

    def __init__(self, napari_viewer: "Viewer") -> None:
        super().__init__()
        make_window_calls_safe()
        self.viewer = napari_viewer
        self.table = table_of(napari_viewer)
        self.map: MapOfSlides | None = None
        self.labels: Labels | None = None
        self.files: dict[str, Path] = {}
        self.is_closed = False
        self._was_docked = False
        self._asked: int | None = None
        self._rows: dict[str, int] = {}
        self._make()
        self._lay_out()
        self._connect()
        post().enter(id(self))
        # A window that is closed takes its docks with it without a word to them.
        self.destroyed.connect(partial(_destroyed, id(self)))
        self._use_theme()
        self._show_state()

    def _make(self) -> None:
        self.empty = text(EMPTY)
        self.sources = SourcePanel()
        self.draw = QPushButton("Draw the map")
        self.draw.setToolTip("Say which slides of the folder are alike")
        self.cancel = QPushButton("Cancel")
        self.says = text("", "What is being done")
        self.trouble = text("", "What went wrong")
        self.warning = text("", "What to know of the answers")
        self.colour_by = _list("Colour slides by")
        self.layout_by = _list("Lay slides out by")
        self.layout_by.addItems([LIKE, DIRECTIONS])
        self.layout_by.setToolTip(_LAYOUT_TIPS)
        self.lasso, self.whole = QPushButton("Lasso"), QPushButton("Whole map")
        self.lasso.setCheckable(True)
        self.lasso.setToolTip("Draw around slides to list them (or drag with Shift)")
        self.whole.setToolTip("Show all slides again (0)")
        self.plot, self.legend, self.lists = MapPlot(), Legend(), ListsPanel()
        self.card = HoverCard(self.plot)

    def _lay_out(self) -> None:
        column = Column()
        box = QVBoxLayout(column)
        box.setContentsMargins(10, 8, 10, 10)
        box.setSpacing(6)
        inner = QWidget()
        rows = QVBoxLayout(inner)
        rows.setContentsMargins(0, 0, 0, 0)
        rows.addWidget(self.sources)
        rows.addLayout(_side_by_side(self.draw, self.cancel))
        self.folded = Folded("Slides and model", inner)
        self.folded.open(True)
        self.found = QWidget()
        lower = QVBoxLayout(self.found)
        lower.setContentsMargins(0, 0, 0, 0)
        lower.setSpacing(6)
        lower.addWidget(self.colour_by)
        lower.addWidget(self.layout_by)
        lower.addWidget(self.plot)
        lower.addWidget(self.legend)
        lower.addLayout(_side_by_side(self.lasso, self.whole))
        lower.addWidget(self.warning)
        lower.addWidget(self.lists)
        for widget in (self.empty, self.folded, self.says, self.trouble, self.found):
            box.addWidget(widget)
        box.addStretch(1)
        self.scroll = QScrollArea()
        self.scroll.setWidgetResizable(True)
        self.scroll.setFrameShape(QFrame.Shape.NoFrame)
        self.scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.scroll.setWidget(column)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.addWidget(self.scroll)
        self.ring = FocusRing(column)
        self.wheel = CalmWheel(self.scroll)
        self.wheel.keep(column)
        column.laid_out.connect(self._on_laid_out)
        self._keep_wide()

    def _connect(self) -> None:
        sources = self.sources
        sources.features_chosen.connect(self._on_features)
        sources.model_chosen.connect(self._on_model)
        sources.labels_chosen.connect(self._read_labels)
        sources.slides_chosen.connect(self._find_files)
        self.draw.clicked.connect(self.draw_map)
        self.cancel.clicked.connect(self._cancel)
        self.colour_by.activated.connect(self._on_colour)
        self.layout_by.activated.connect(lambda _: self._show_points())
        self.lasso.toggled.connect(lambda on: setattr(self.plot, "is_lasso", on))
        self.whole.clicked.connect(self.plot.show_whole)
        self.legend.only.connect(self.plot.show_only)
        self.plot.hovered.connect(self._on_hover)
        self.plot.clicked.connect(self.open)
        self.plot.lassoed.connect(self._on_lasso)
        self.lists.opened.connect(self.open)
        self.lists.pointed.connect(self._point)
        self.table.front_changed.connect(self._on_front)
        self.viewer.events.theme.connect(self._use_theme)

    # What the map is made of

    def use(self, sources: Sources, *, draw: bool = True) -> None:
        """Take all sources at once, such as those of a study, and draw their map."""
        self.sources.use(sources)
        self._forget()
        self._read_labels()
        self._find_files()
        if draw:
            self.draw_map()

    def _on_features(self) -> None:
        self._forget()
        self._read_labels()
        self._find_files()

    def _on_model(self) -> None:
        if self.map is not None or self._asked is not None:
            self.draw_map()

    def _forget(self) -> None:
        post().forget(self._asked)
        self._asked, self.map, self.labels, self.files = None, None, None, {}
        self.card.forget()
        self.trouble.setText("")
        self._show_state()

    def _read_labels(self) -> None:
        path = self.sources.sources.labels
        self.labels = None
        self.trouble.setText("")
        if path is not None:
            try:
                self.labels = read_labels(path)
            except (InputError, OSError) as error:
                self.trouble.setText(f"The labels are not used. {error}")
        self._show_state()
        self._fill_columns()

    def _find_files(self) -> None:
        found = self.sources.sources
        if found.features is None:
            return
        folders = [found.slides] if found.slides else likely_folders(found.features)
        features = found.features

        def take(files: dict[str, Path]) -> None:
            if features == self.sources.sources.features:
                self.files = files
                self.card.forget()
                self._on_front()

        run_in_background(
            lambda: slide_files(folders), take, lambda _error: None, owner=self
        )

    # Drawing it

    def draw_map(self) -> None:
        found = self.sources.sources
        if found.features is None:
            self.sources.ask_features()
            return
        post().forget(self._asked)
        self.trouble.setText("")
        request = MapSlides(
            found.features, found.features.name, found.model, maps_folder()
        )
        self._asked = post().ask(request, self._on_reply, user=id(self))
        self.says.setText("Beginning…")
        self._show_state()

    def _cancel(self) -> None:
        post().forget(self._asked)
        self._asked = None
        self._show_state()

    def _on_reply(self, reply: Reply) -> None:
        match reply:
            case Working():
                self.says.setText(progress_words(reply))
                return
            case SlidesEmbedded():
                self._take(reply.slide_map)
                return
            case SlidesMapped():
                self._take(reply.slide_map)
            case Failed():
                features = self.sources.sources.features
                title = "The folder" if features is None else features.name
                self.trouble.setText(failure_words(reply, title))
        self._asked = None
        self._show_state()

    def _take(self, found: MapOfSlides) -> None:
        self.map = found
        self._rows = {name: row for row, name in enumerate(found.names)}
        self.folded.open(False)
        self._fill_columns()
        self._show_state()
        self._on_front()

    def _fill_columns(self) -> None:
        if self.map is None:
            return
        wanted = self.colour_by.currentData() or remembered("map_colour")
        self.colour_by.clear()
        for name, words in columns(self.map, self.labels):
            self.colour_by.addItem(f"Colour: {words}", name)
        self.colour_by.setCurrentIndex(max(0, self.colour_by.findData(wanted)))
        self.lists.show_map(self.map, self.labels)
        self.warning.setText(learned_words(self.map))
        self.warning.setVisible(bool(self.warning.text()))
        self._show_points()

    def _on_colour(self, _index: int) -> None:
        remember("map_colour", self.colour_by.currentData())
        self._show_colours()

    def _show_points(self) -> None:
        if self.map is None:
            return
        found = self._colouring()
        is_like = self.layout_by.currentText() == LIKE
        places = self.map.neighbours if is_like else None
        if places is None:
            places = self.map.directions
        self.plot.show_points(places, found)
        self.legend.show_colouring(found)

    def _show_colours(self) -> None:
        if self.map is None:
            return
        found = self._colouring()
        self.plot.only = None
        self.plot.show_colours(found)
        self.legend.show_colouring(found)

    def _colouring(self):
        return colouring(self.colour_by.currentData(), self.map, self.labels)

    def _show_state(self) -> None:
        is_busy, has_map = self._asked is not None, self.map is not None
        has_features = self.sources.sources.features is not None
        self.empty.setVisible(not has_features)
        self.draw.setVisible(not is_busy)
        self.draw.setText("Draw the map" if has_features else "Choose a folder…")
        self.cancel.setVisible(is_busy)
        self.says.setVisible(is_busy)
        self.trouble.setVisible(bool(self.trouble.text()))
        self.found.setVisible(has_map)

    # One slide

    def _on_hover(self, row: int) -> None:
        if self.map is None or row < 0 or self.plot.colouring is None:
            self.card.leave()
            return
        name, coloured = self.map.names[row], self.plot.colouring.said[row]
        lines = slide_lines(row, self.map, self.labels, [coloured])
        x, y = self.plot.screen(self.plot.xy[row])
        features = self.sources.sources.features or Path()
        self.card.show_slide(
            name,
            "\n".join(lines),
            QPoint(round(x), round(y)),
            self.files.get(name),
            features / f"{name}{layout.ENDING}",
        )

    def _point(self, row: int) -> None:
        self.plot.current = row
        self.plot.update()

    def _on_lasso(self, rows) -> None:
        self.lasso.setChecked(False)
        self.lists.choose(rows.tolist())

    def open(self, row: int) -> None:
        """Open a slide of the map, as the analysis dock does."""
        if self.map is None:
            return
        self.plot.mark(open_slide=row)
        self.lists.show_nearest(row)
        name = self.map.names[row]
        path = self.files.get(name)
        if path is None:
            self.trouble.setText(
                f"There is no slide file called {name} here. Choose the folder of "
                "slides above, and click again."
            )
            self.folded.open(True)
        else:
            self.trouble.setText("")
            open_slides(self.viewer, [path], offers=False)
        self._show_state()

    def _on_front(self) -> None:
        """Another slide lies in front: show where it is, and what is like it."""
        source = slide_source(self.table.front)
        if self.map is None or source is None or source.path is None:
            return
        row = self._rows.get(slide_name(source.path), -1)
        self.plot.mark(open_slide=row)
        self.lists.show_nearest(row)

    # The window around it

    def sizeHint(self) -> QSize:
        return QSize(self.scroll.minimumWidth(), TALL)

    def _on_laid_out(self) -> None:
        self._keep_wide()
        self.ring.follow()

    def _keep_wide(self) -> None:
        """As wide as its text is large."""
        lines = NARROWEST_LINES * self.empty.fontMetrics().height()
        bar = self.scroll.verticalScrollBar().sizeHint().width()
        width = max(NARROWEST, lines) + bar
        if width != self.scroll.minimumWidth():
            self.scroll.setMinimumWidth(width)
            self.plot.setFixedHeight(max(300, width - 30))
            self._use_theme()

    def _use_theme(self, _event: object = None) -> None:
        theme = self.viewer.theme
        ink, ground = ink_of(theme), ground_of(theme)
        style = tool_style(theme)
        for widget in (self.folded.button, self.legend, self.lists.tabs.row):
            if widget.styleSheet() != style:
                widget.setStyleSheet(style)
        self.plot.use_colours(ink, ground)
        self.card.setStyleSheet(
            f"HoverCard {{ background: {ground}; border: 1px solid {ink}; }}"
        )
        self.ring.use_colour(ink)

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

    def shut_down(self) -> None:
        """Leave napari as it was, whatever was running."""
        if self.is_closed:
            return
        self.is_closed = True
        self.card.leave()
        self.ring.close_ring()
        self.table.front_changed.disconnect(self._on_front)
        self.viewer.events.theme.disconnect(self._use_theme)
        post().leave(id(self))


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


def _side_by_side(*widgets: QWidget) -> QHBoxLayout:
    row = QHBoxLayout()
    row.setSpacing(4)
    for widget in widgets:
        row.addWidget(widget, stretch=1)
    return row


def _destroyed(user: int, _widget: object = None) -> None:
    post().leave(user)
