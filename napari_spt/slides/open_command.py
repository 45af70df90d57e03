"""Opening slides from the menus, and the offer to be the default for them."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from napari.layers import Layer
from napari.qt.threading import create_worker
from napari.settings import get_settings
from napari.utils.notifications import show_error, show_info
from qtpy.QtWidgets import (
    QApplication,
    QFileDialog,
    QMainWindow,
    QMessageBox,
    QWidget,
)

from napari_spt.parts.settings import remember, remembered
from napari_spt.parts.viewing import scale_bar
from napari_spt.slides.reader import get_reader, slide_layer
from spt_core.errors import InputError
from spt_core.slides import SLIDE_ENDINGS, Slide, open_slide

if TYPE_CHECKING:
    from napari.viewer import Viewer

PLUGIN = "napari-spt"
# Formats that hold slides and nothing else. Not TIFF, DICOM, CZI or Zarr: napari and
# other plugins read many of those that are not slides.
DEFAULT_ENDINGS = (".svs", ".ndpi", ".vms", ".vmu", ".scn", ".mrxs", ".svslide", ".bif")
_RECENT = 8


def choose_and_open(viewer: "Viewer", *, offers: bool = True) -> QFileDialog:
    """Let the user choose slides, and open them; the window stays alive meanwhile.

    With ``offers`` the first slide brings the offer to be the default reader.
    """
    endings = [*SLIDE_ENDINGS, *(ending.upper() for ending in SLIDE_ENDINGS)]
    patterns = " ".join(f"*{ending}" for ending in endings)
    dialog = QFileDialog(_window(), "Open slide", remembered("last_folder", ""))
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
    then: Callable[["Layer"], None] | None = None,
    *,
    offers: bool = True,
) -> None:
    """Open slides as layers.

    The files are opened in a worker thread, because that may take seconds on a network
    drive; the layers are then added at once, over the handles that are already open.
    """

    def open_each():  # type: ignore[no-untyped-def]
        for path in paths:
            try:
                yield open_slide(path)
            except InputError as error:
                yield error

    def add(result: Slide | InputError) -> None:
        if isinstance(result, InputError):
            show_error(str(result))
            return
        recent = [str(result.path), *recent_slides()]
        remember("recent_slides", list(dict.fromkeys(recent))[:_RECENT])
        remember("last_folder", str(result.path.parent))
        if get_reader(str(result.path)) is None:
            # What is left to napari when it is dropped on the window is asked for here.
            layer = viewer.add_layer(Layer.create(*slide_layer(result)))
        else:
            (layer,) = viewer.open(str(result.path), plugin=PLUGIN)
        _greet(viewer, result, offers=offers)
        if then is not None:
            then(layer)

    worker = create_worker(open_each)
    worker.yielded.connect(add)
    worker.start()


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


def _window() -> QWidget | None:
    """The window that a dialog belongs to."""
    windows = [w for w in QApplication.topLevelWidgets() if isinstance(w, QMainWindow)]
    return QApplication.activeWindow() or (windows[-1] if windows else None)


def open_analysis(viewer: "Viewer") -> None:
    """Show the dock that analyses slides, from the layers' menu."""
    from napari_spt.slides.slide_source import slide_source

    viewer.window.add_plugin_dock_widget(PLUGIN, "Slide analysis")
    layer = viewer.layers.selection.active
    if layer is not None and slide_source(layer) is None:
        show_error(
            f"“{layer.name}” is not a slide: it is no colour picture. Open a slide "
            "with “Open slide…”, or choose its layer."
        )


def recent_slides() -> list[str]:
    """Slides opened lately that are still there, newest first."""
    return [p for p in remembered("recent_slides", []) if Path(p).exists()]


def is_default() -> bool:
    readers = get_settings().plugins.extension2reader
    return all(readers.get(f"*{ending}") == PLUGIN for ending in DEFAULT_ENDINGS)


def set_default(is_on: bool) -> None:
    """Make us napari's reader for slide endings, or stop being it."""
    plugins = get_settings().plugins
    ours = {f"*{ending}": PLUGIN for ending in DEFAULT_ENDINGS}
    kept = {
        pattern: reader
        for pattern, reader in plugins.extension2reader.items()
        if not (pattern in ours and (is_on or reader == PLUGIN))
    }
    plugins.extension2reader = {**kept, **ours} if is_on else kept


def offer_default() -> QMessageBox | None:
    """Ask, once ever, whether napari should open slides with us from now on."""
    if is_default():
        return None
    question = QMessageBox(
        QMessageBox.Icon.Question,
        "Open slides with napari-spt?",
        "Should napari open slides with napari-spt from now on?",
        QMessageBox.StandardButton.Yes | QMessageBox.StandardButton.No,
        _window(),
    )
    question.setInformativeText(
        "Dropping a slide on the window then opens it at once, without reading all of "
        f"it into memory. This is for {', '.join(DEFAULT_ENDINGS)}. The “Open slide…” "
        "dock in the Plugins menu changes it at any time."
    )

    def answered(button: int) -> None:
        remember("asked_default_reader", True)
        if button == QMessageBox.StandardButton.Yes:
            set_default(True)

    question.finished.connect(answered)
    question.open()
    return question
