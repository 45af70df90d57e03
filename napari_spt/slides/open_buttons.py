"""The buttons that open slides, and what is said while they do."""

from pathlib import Path
from typing import TYPE_CHECKING

from qtpy.QtCore import Qt
from qtpy.QtWidgets import QHBoxLayout, QMenu, QPushButton, QVBoxLayout, QWidget

from napari_spt.parts.widgets import plain_tip, text
from napari_spt.slides.open_command import Opening, choose_and_open, open_slides
from napari_spt.slides.opening_trouble import TroubleBox
from napari_spt.slides.recent import recent_slides
from napari_spt.slides.slide_table import table_of

if TYPE_CHECKING:
    from napari.viewer import Viewer

# Screen pixels that the name of a recent slide may take.
NAME_WIDTH = 380


class OpenButtons(QWidget):
    """ "Open slide…" and recent slides; below, how it goes and what went wrong."""

    def __init__(self, viewer: "Viewer", *, offers: bool) -> None:
        super().__init__()
        self._viewer = viewer
        self._offers = offers
        self._opening: Opening | None = None
        self.open_button = QPushButton("Open slide…")
        self.open_button.setToolTip("Choose a slide file; it opens without being read")
        self.recent_button = QPushButton("Recent")
        self.recent_button.setToolTip("Slides that were opened lately")
        self.menu = QMenu(self)
        self.menu.setToolTipsVisible(True)
        self.recent_button.setMenu(self.menu)
        self.waiting = text("", "Opening")
        self.cancel_button = QPushButton("Cancel")
        self.cancel_button.setToolTip("Do not open it")
        self.wait = QWidget()
        row = QHBoxLayout(self.wait)
        row.setContentsMargins(0, 0, 0, 0)
        row.addWidget(self.waiting, stretch=1)
        row.addWidget(self.cancel_button)
        self.wait.hide()
        self.trouble = TroubleBox(table_of(viewer).troubles)
        row = QHBoxLayout()
        row.addWidget(self.open_button, stretch=2)
        row.addWidget(self.recent_button, stretch=1)
        box = QVBoxLayout(self)
        box.setContentsMargins(0, 0, 0, 0)
        box.setSpacing(6)
        box.addLayout(row)
        box.addWidget(self.wait)
        box.addWidget(self.trouble)
        self.open_button.clicked.connect(self.choose)
        self.cancel_button.clicked.connect(self.cancel)
        self.menu.aboutToShow.connect(self.fill)
        self.fill()

    def choose(self) -> None:
        self.dialog = choose_and_open(
            self._viewer, offers=self._offers, begun=self.follow
        )

    def open(self, path: str) -> None:
        self.follow(open_slides(self._viewer, [path], offers=self._offers))

    def fill(self) -> None:
        """List recent slides as they are now."""
        self.menu.clear()
        for path in recent_slides():
            name = self.fontMetrics().elidedText(
                Path(path).name, Qt.TextElideMode.ElideMiddle, NAME_WIDTH
            )
            action = self.menu.addAction(name.replace("&", "&&"))
            action.setToolTip(plain_tip(path))
            action.triggered.connect(lambda _=False, path=path: self.open(path))
        if self.menu.isEmpty():
            self.menu.addAction("None yet").setEnabled(False)

    def follow(self, opening: Opening) -> None:
        """Say what is being opened, for as long as it takes."""
        self._opening = opening
        names = ", ".join(path.name for path in opening.paths)
        self.waiting.setText(f"Opening {names}…")
        self.wait.setVisible(not opening.is_ended)
        opening.ended.connect(self._on_ended)

    def cancel(self) -> None:
        if self._opening is not None:
            self._opening.cancel()

    def stop(self) -> None:
        """The dock is closed: nobody waits any more."""
        self.cancel()
        self.trouble.close_box()

    def _on_ended(self) -> None:
        self._opening = None
        self.wait.hide()
