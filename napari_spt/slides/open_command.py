"""Opening slides from the menus, and the list of recent ones."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from napari.layers import Layer
from napari.qt.threading import create_worker
from napari.utils.notifications import show_error, show_info
from qtpy.QtWidgets import QFileDialog

from napari_spt import PLUGIN
from napari_spt.parts.settings import remember, remembered
from napari_spt.parts.viewing import active_window, scale_bar
from napari_spt.slides.default_reader import offer_default
from napari_spt.slides.reader import get_reader, slide_layer
from spt_core.errors import InputError
from spt_core.slides import SLIDE_ENDINGS, Slide, open_slide

if TYPE_CHECKING:
    from napari.viewer import Viewer

_MOST_RECENT = 8


def choose_and_open(viewer: "Viewer", *, offers: bool = True) -> QFileDialog:
    """Let the user choose slides, and open them; the window stays alive meanwhile.

    With ``offers`` the first slide brings the offer to be the default reader.
    """
    endings = [*SLIDE_ENDINGS, *(ending.upper() for ending in SLIDE_ENDINGS)]
    patterns = " ".join(f"*{ending}" for ending in endings)
    dialog = QFileDialog(active_window(), "Open slide", remembered("last_folder", ""))
    dialog.setNameFilters([f"Slides ({patterns})", "All files (*)"])
    dialog.setOption(QFileDialog.Option.HideNameFilterDetails)
    dialog.setFileMode(QFileDialog.FileMode.ExistingFiles)
    dialog.filesSelected.connect(
        lambda paths: open_slides(viewer, paths, offers=offers)
    )
    dialog.open()
    return dialog


def open_slides(
    viewer: "Viewer",
    paths: Sequence[str | Path],
    then: Callable[[Layer], None] | None = None,
    *,
    offers: bool = True,
) -> None:
    """Open slides as layers.

    The files are opened in a worker thread, because that may take seconds on a network
    drive; the layers are then added at once, over the handles that are already open.
    """

    def open_each() -> Iterator[Slide | InputError]:
        for path in paths:
            try:
                yield open_slide(path)
            except InputError as error:
                yield error

    def add(result: Slide | InputError) -> None:
        if isinstance(result, InputError):
            show_error(str(result))
            return
        _remember_slide(result.path)
        if get_reader(str(result.path)) is None:
            # Files that we leave to napari when they are dropped on the window are
            # asked for by name here.
            layer = viewer.add_layer(Layer.create(*slide_layer(result)))
        else:
            (layer,) = viewer.open(str(result.path), plugin=PLUGIN)
        _greet(viewer, result, offers=offers)
        if then is not None:
            then(layer)

    worker = create_worker(open_each)
    worker.yielded.connect(add)
    worker.start()


def recent_slides() -> list[str]:
    """Slides opened lately that still exist, newest first."""
    return [p for p in remembered("recent_slides", []) if Path(p).exists()]


def _remember_slide(path: Path) -> None:
    recent = dict.fromkeys([str(path), *recent_slides()])
    remember("recent_slides", list(recent)[:_MOST_RECENT])
    remember("last_folder", str(path.parent))


def _greet(viewer: "Viewer", slide: Slide, *, offers: bool) -> None:
    if slide.mpp_xy is None:
        show_info(
            f"{slide.path.name} does not say how large a pixel is: "
            "distances are in pixels."
        )
    else:
        scale_bar(viewer).visible = True
    if offers and not remembered("asked_default_reader"):
        offer_default()
