"""Opening slides from the menus and docks, without the window waiting for them."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from napari.layers import Layer
from napari.qt.threading import create_worker
from qtpy.QtCore import QObject, Signal
from qtpy.QtWidgets import QFileDialog

from napari_spt import PLUGIN
from napari_spt.parts.notices import show_info
from napari_spt.parts.settings import remembered
from napari_spt.parts.viewing import active_window
from napari_spt.slides.default_reader import offer_default
from napari_spt.slides.reader import get_reader, slide_layers_of
from napari_spt.slides.recent import remember_slide
from napari_spt.slides.slide_source import is_file_slide
from napari_spt.slides.slide_table import table_of
from spt_core import proving
from spt_core.errors import InputError
from spt_core.slides import SLIDE_ENDINGS, Slide, open_slide

if TYPE_CHECKING:
    from napari.viewer import Viewer


def choose_and_open(
    viewer: "Viewer",
    *,
    offers: bool = True,
    begun: "Callable[[Opening], None] | None" = None,
) -> QFileDialog:
    """Let the user choose slides, and open them; the window stays alive meanwhile.

    With ``offers`` the first slide brings the offer to be the default reader;
    ``begun`` gets the opening of what was chosen, to show it and to cancel it.
    """
    endings = [*SLIDE_ENDINGS, *(ending.upper() for ending in SLIDE_ENDINGS)]
    patterns = " ".join(f"*{ending}" for ending in endings)
    dialog = QFileDialog(active_window(), "Open slide", remembered("last_folder", ""))
    dialog.setNameFilters([f"Slides ({patterns})", "All files (*)"])
    dialog.setOption(QFileDialog.Option.HideNameFilterDetails)
    dialog.setFileMode(QFileDialog.FileMode.ExistingFiles)

    def chosen(paths: Sequence[str]) -> None:
        opening = open_slides(viewer, paths, offers=offers)
        if begun is not None:
            begun(opening)

    dialog.filesSelected.connect(chosen)
    dialog.open()
    return dialog


def open_slides(
    viewer: "Viewer", paths: Sequence[str | Path], *, offers: bool = True
) -> "Opening":
    """Open slides as layers; one that is open already is shown."""
    opening = Opening(viewer, [Path(path) for path in paths], offers=offers)
    opening.start()
    return opening


class Opening(QObject):
    """Slides that are being opened.

    The files are opened in a worker thread, because that may take seconds on a network
    drive; the layers are then added at once, over the handles that are already open.
    ``ended`` comes exactly once.
    """

    ended = Signal()

    def __init__(self, viewer: "Viewer", paths: list[Path], *, offers: bool) -> None:
        super().__init__()
        self.paths = paths
        self.is_ended = False
        self._viewer = viewer
        self._offers = offers
        self._worker = create_worker(self._open_each)
        # Kept by the worker, which napari keeps: nobody else has to.
        self._worker.yielded.connect(lambda found: self._add(*found))
        self._worker.finished.connect(self._end)

    def start(self) -> None:
        self._worker.start()

    def cancel(self) -> None:
        """Open no more; a file that is being opened is let go when it is."""
        self._worker.quit()
        self._end()

    def _end(self) -> None:
        if not self.is_ended:
            self.is_ended = True
            self.ended.emit()

    def _open_each(self) -> Iterator[tuple[Path, Slide | InputError]]:
        for path in self.paths:
            try:
                proving.switch_on()
                found: Slide | InputError = open_slide(path, title=path.name)
            except InputError as error:
                found = error
            yield path, found

    def _add(self, path: Path, found: Slide | InputError) -> None:
        if self.is_ended:
            return
        viewer, table = self._viewer, table_of(self._viewer)
        if isinstance(found, InputError):
            table.troubles.tell(path, str(found))
            return
        for slide in table.slides:
            if is_file_slide(slide) and _path_of(slide) == found.path:
                remember_slide(found.path)
                table.bring(slide)
                return
        if get_reader(str(found.path)) is None:
            # Files that we leave to napari when they are dropped on the window are
            # asked for by name here.
            remember_slide(found.path)
            for layer_data in slide_layers_of(found):
                viewer.add_layer(Layer.create(*layer_data))
        else:
            viewer.open(str(found.path), plugin=PLUGIN)
        if found.mpp_xy is None and not len(table.troubles.changed):
            # No dock is there to say it, or to ask.
            show_info(f"{path.name} does not say how large a pixel is.")
        if self._offers and not remembered("asked_default_reader"):
            offer_default()


def _path_of(slide: Layer) -> Path:
    return Path(slide.metadata["spt"]["path"])
