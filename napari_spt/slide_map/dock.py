"""The "Map of slides" dock: which slides are alike, and which are like no other."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from qtpy.QtWidgets import QHBoxLayout, QPushButton, QVBoxLayout, QWidget

from napari_spt.analysis.words import failure_words, progress_words
from napari_spt.parts.background import run_in_background
from napari_spt.parts.post import post
from napari_spt.parts.side_dock import SideDock
from napari_spt.parts.tool_style import ground_of, ink_of, tool_style
from napari_spt.parts.viewing import kept_with
from napari_spt.parts.widgets import Folded, text
from napari_spt.parts.window_calls import make_window_calls_safe
from napari_spt.slide_map.lists_panel import ListsPanel
from napari_spt.slide_map.map_panel import MapPanel
from napari_spt.slide_map.slide_files import likely_folders, slide_files
from napari_spt.slide_map.source_panel import SourcePanel, Sources
from napari_spt.slide_map.words import EMPTY, learned_words, site_words
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
from spt_core.tokens import Labels, read_labels
from spt_core.tokens.finding import features_in, name_of

if TYPE_CHECKING:
    from napari.viewer import Viewer


def maps_of(viewer: "Viewer") -> "list[SlideMapDock]":
    """The maps of slides that are open in a window."""
    return kept_with(viewer, "slide_maps", lambda _viewer: [])


class SlideMapDock(SideDock):
    """Sources, the map with its legend, and lists of its slides."""

    narrowest, narrowest_lines, tall = 326, 15, 760

    def __init__(self, napari_viewer: "Viewer") -> None:
        super().__init__()
        make_window_calls_safe()
        self.viewer = napari_viewer
        self.table = table_of(napari_viewer)
        self.map: MapOfSlides | None = None
        self.labels: Labels | None = None
        self.files: dict[str, Path] = {}
        self._asked: int | None = None
        self._rows: dict[str, int] = {}
        self._make()
        self._lay_out()
        self._connect()
        maps_of(napari_viewer).append(self)
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
        self.view, self.lists = MapPanel(), ListsPanel()

    def _lay_out(self) -> None:
        inner = QWidget()
        rows = QVBoxLayout(inner)
        rows.setContentsMargins(0, 0, 0, 0)
        rows.addWidget(self.sources)
        row = QHBoxLayout()
        row.addWidget(self.draw)
        row.addWidget(self.cancel)
        rows.addLayout(row)
        self.folded = Folded("Slides and model", inner)
        self.folded.open(True)
        self.found = QWidget()
        lower = QVBoxLayout(self.found)
        lower.setContentsMargins(0, 0, 0, 0)
        lower.setSpacing(6)
        for widget in (self.view, self.warning, self.lists):
            lower.addWidget(widget)
        for widget in (self.empty, self.folded, self.says, self.trouble, self.found):
            self.box.addWidget(widget)
        self.box.addStretch(1)
        self.settle(self.empty)

    def _connect(self) -> None:
        sources = self.sources
        sources.features_chosen.connect(self._on_features)
        sources.model_chosen.connect(self._on_model)
        sources.labels_chosen.connect(self._on_labels)
        sources.slides_chosen.connect(self._find_files)
        self.draw.clicked.connect(self.draw_map)
        self.cancel.clicked.connect(self._cancel)
        self.view.opened.connect(self.open)
        self.view.lassoed.connect(lambda rows: self.lists.choose(rows.tolist()))
        self.lists.opened.connect(self.open)
        self.lists.pointed.connect(self.view.point_to)
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

    def _on_labels(self) -> None:
        self._read_labels()
        if self.sources.sources.model is not None:
            self._on_model()  # it may have to know where slides are from

    def _forget(self) -> None:
        post().forget(self._asked)
        self._asked, self.map, self.labels, self.files = None, None, None, {}
        self.view.card.forget()
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

        def find() -> tuple[dict[str, Path], dict[str, Path]]:
            tokens = {name_of(path): path for path in features_in(features)}
            return tokens, slide_files(folders)

        def take(found: tuple[dict[str, Path], dict[str, Path]]) -> None:
            if features == self.sources.sources.features:
                tokens, self.files = found
                self.view.use_files(tokens, self.files)
                self._on_front()

        run_in_background(find, take, lambda _error: None, owner=self)

    # Drawing it

    def draw_map(self) -> None:
        found = self.sources.sources
        if found.features is None:
            self.sources.ask_features()
            return
        post().forget(self._asked)
        self.trouble.setText("")
        request = MapSlides(
            found.features,
            found.features.name,
            found.model,
            maps_folder(),
            labels=found.labels if self.labels else None,
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
        self.view.show_map(self.map, self.labels)
        self.lists.show_map(self.map, self.labels)
        said = (site_words(self.map), learned_words(self.map))
        self.warning.setText(" ".join(filter(None, said)))
        self.warning.setVisible(bool(self.warning.text()))

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

    def open(self, row: int) -> None:
        """Open a slide of the map, as the analysis dock does."""
        if self.map is None:
            return
        self.view.plot.mark(open_slide=row)
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
        self.view.plot.mark(open_slide=row)
        self.lists.show_nearest(row)

    # The window around it

    def on_text_size(self, width: int) -> None:
        self.view.plot.setFixedHeight(max(300, width - 30))
        self._use_theme()

    def _use_theme(self, _event: object = None) -> None:
        theme = self.viewer.theme
        style = tool_style(theme)
        for widget in (self.folded.button, self.view.legend, self.lists.tabs.row):
            if widget.styleSheet() != style:
                widget.setStyleSheet(style)
        self.view.use_colours(ink_of(theme), ground_of(theme))
        self.colour_rings(theme)

    def leave_window(self) -> None:
        """Leave napari as it was, whatever was running."""
        maps_of(self.viewer).remove(self)
        self.view.card.leave()
        self.table.front_changed.disconnect(self._on_front)
        self.viewer.events.theme.disconnect(self._use_theme)
        post().leave(id(self))


def _destroyed(user: int, _widget: object = None) -> None:
    post().leave(user)
