"""Being napari's default reader for slides: offered once, changed at any time."""

from napari.settings import get_settings
from qtpy.QtWidgets import QMessageBox

from napari_spt import PLUGIN
from napari_spt.parts.settings import remember
from napari_spt.parts.viewing import active_window

# Formats that hold slides and nothing else. Not TIFF, DICOM, CZI or Zarr: napari and
# other plugins read many of those that are not slides.
DEFAULT_ENDINGS = (".svs", ".ndpi", ".vms", ".vmu", ".scn", ".mrxs", ".svslide", ".bif")


def is_default() -> bool:
    readers = get_settings().plugins.extension2reader
    return all(readers.get(f"*{ending}") == PLUGIN for ending in DEFAULT_ENDINGS)


def set_default(is_on: bool) -> None:
    """Make this plugin napari's reader for slide endings, or stop being it."""
    plugins = get_settings().plugins
    ours = {f"*{ending}": PLUGIN for ending in DEFAULT_ENDINGS}
    kept = {
        pattern: reader
        for pattern, reader in plugins.extension2reader.items()
        if not (pattern in ours and (is_on or reader == PLUGIN))
    }
    plugins.extension2reader = {**kept, **ours} if is_on else kept


def offer_default() -> QMessageBox | None:
    """Ask, once ever, whether napari should open slides with this plugin."""
    if is_default():
        return None
    question = QMessageBox(
        QMessageBox.Icon.Question,
        "Open slides with napari-spt?",
        "Should napari open slides with napari-spt from now on?",
        QMessageBox.StandardButton.Yes | QMessageBox.StandardButton.No,
        active_window(),
    )
    question.setInformativeText(
        "Dropping a slide on the window then opens it at once, without reading all of "
        f"it into memory. This applies to {', '.join(DEFAULT_ENDINGS)}. You can change "
        "it at any time in the “Open slide…” dock of the Plugins menu."
    )

    def answered(button: int) -> None:
        remember("asked_default_reader", True)
        if button == QMessageBox.StandardButton.Yes:
            set_default(True)

    question.finished.connect(answered)
    question.open()
    return question
