"""The "Open slide…" dock: choose a slide, recent slides, what the slide is."""

from pathlib import Path
from typing import TYPE_CHECKING

from qtpy.QtCore import Qt, QTimer
from qtpy.QtWidgets import (
    QCheckBox,
    QFileDialog,
    QLabel,
    QListWidget,
    QListWidgetItem,
    QVBoxLayout,
    QWidget,
)

from napari_spt.parts.dock_frame import DockTab
from napari_spt.parts.widgets import plain_tip, text
from napari_spt.slides.default_reader import DEFAULT_ENDINGS, is_default, set_default
from napari_spt.slides.open_buttons import OpenButtons
from napari_spt.slides.recent import recent_slides
from spt_core.notice import NOT_FOR_DIAGNOSIS
from spt_core.slides.properties import doubt_note

if TYPE_CHECKING:
    from napari.viewer import Viewer


class SlidesDock(QWidget):
    """Opens slides, and says how large the active one is."""

    def __init__(self, napari_viewer: "Viewer") -> None:
        super().__init__()
        self.viewer = napari_viewer
        self._tab = DockTab(self)
        self.opening = OpenButtons(napari_viewer, offers=True)
        self.opening.recent_button.hide()  # they are listed below
        self.open_button = self.opening.open_button
        self.facts = text(name="About the active slide")
        self.recent = QListWidget()
        self.recent.setAccessibleName("Recent slides")
        self.recent.setToolTip("Double-click, or press Enter, to open a slide again")
        self.default = QCheckBox("Open slides with napari-spt by default")
        self.default.setToolTip(
            "When a file ending in " + ", ".join(DEFAULT_ENDINGS) + " is dropped on "
            "the window, napari opens it with this plugin without asking"
        )
        self.default.setChecked(is_default())
        about = QLabel(NOT_FOR_DIAGNOSIS)

        layout = QVBoxLayout(self)
        layout.addWidget(self.opening)
        layout.addWidget(self.facts)
        layout.addWidget(QLabel("Recent slides"))
        layout.addWidget(self.recent, stretch=1)
        layout.addWidget(self.default)
        layout.addWidget(about)

        self.recent.itemActivated.connect(self._open_recent)
        self.default.toggled.connect(set_default)
        napari_viewer.layers.selection.events.active.connect(self._show)
        self._show()
        # Whoever chooses "Open slide…" in the menu wants to choose a file now.
        if not self._slide_facts():
            QTimer.singleShot(0, self.choose)

    def choose(self) -> None:
        self.opening.choose()

    @property
    def dialog(self) -> QFileDialog:
        return self.opening.dialog

    def _open_recent(self, item: QListWidgetItem) -> None:
        self.opening.open(item.data(Qt.ItemDataRole.UserRole))

    def _slide_facts(self) -> dict | None:
        layer = self.viewer.layers.selection.active
        facts = {} if layer is None else layer.metadata.get("spt", {})
        # Maps over a slide have facts of ours too, and are not slides.
        return facts if "path" in facts else None

    def _show(self) -> None:
        self.facts.setText(describe(self._slide_facts()))
        self.recent.clear()
        for path in recent_slides():
            item = QListWidgetItem(Path(path).name)
            item.setToolTip(plain_tip(path))
            item.setData(Qt.ItemDataRole.UserRole, path)
            self.recent.addItem(item)
        self.default.setChecked(is_default())

    def closeEvent(self, event) -> None:
        self.viewer.layers.selection.events.active.disconnect(self._show)
        self.opening.stop()
        super().closeEvent(event)


def describe(facts: dict | None) -> str:
    """Say in words how large a slide is."""
    if not facts:
        return "Choose a slide file, or drop one on the window."
    _, _, width, height = facts["bounds"]
    size = f"{width:,} × {height:,} pixels"
    if facts["mpp_xy"] is None:
        doubted = facts.get("doubted_mpp_xy")
        if doubted:
            return f"{size}. {doubt_note((doubted[0], doubted[1]))}"
        return size + ". The file does not say how large a pixel is."
    um_x, um_y = facts["mpp_xy"]
    return (
        f"{size}, {width * um_x / 1000:.1f} × {height * um_y / 1000:.1f} mm "
        f"({(um_x * um_y) ** 0.5:.3g} µm per pixel)"
    )
