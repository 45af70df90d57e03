"""What is said of the slide under the mouse, with a picture of it."""

from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import numpy as np
from qtpy.QtCore import QPoint, Qt, QTimer
from qtpy.QtGui import QImage, QPixmap
from qtpy.QtWidgets import QFrame, QLabel, QVBoxLayout, QWidget

from napari_spt.parts.background import run_in_background
from napari_spt.parts.widgets import plain_label
from napari_spt.slide_map.slide_files import picture_of

KEPT = 300
# A mouse that rests for so long wants to see the slide.
REST_MS = 60


class HoverCard(QFrame):
    """A frame beside the point; pictures are read in a thread and kept."""

    def __init__(self, within: QWidget) -> None:
        super().__init__(within)
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setAutoFillBackground(True)
        self.setFrameShape(QFrame.Shape.StyledPanel)
        self.picture, self.words = QLabel(), plain_label()
        self.picture.setAlignment(Qt.AlignmentFlag.AlignHCenter)
        box = QVBoxLayout(self)
        box.setContentsMargins(6, 6, 6, 6)
        box.setSpacing(4)
        box.addWidget(self.picture)
        box.addWidget(self.words)
        self._kept: OrderedDict[str, QPixmap] = OrderedDict()
        self._wanted: tuple[str, Path | None, Path] | None = None
        self._is_reading = False
        self._rest = QTimer(self)
        self._rest.setSingleShot(True)
        self._rest.setInterval(REST_MS)
        self._rest.timeout.connect(self._read)
        self.read: Callable[[Path | None, Path | None], np.ndarray] = picture_of
        self.hide()

    def forget(self) -> None:
        """Other slides, or another folder of them."""
        self._kept.clear()
        self.leave()

    def leave(self) -> None:
        self._wanted = None
        self._rest.stop()
        self.hide()

    def show_slide(
        self,
        name: str,
        words: str,
        at: QPoint,
        slide: Path | None,
        features: Path | None,
    ) -> None:
        """Show a slide beside a place of the widget that this lies in."""
        self.words.setText(words)
        self._at = at
        self._wanted = (name, slide, features)
        known = self._kept.get(name)
        self.picture.setVisible(known is not None)
        if known is not None:
            self.picture.setPixmap(known)
        else:
            self._rest.start()
        self._place()
        self.show()
        self.raise_()

    def _place(self) -> None:
        self.adjustSize()
        room = self.parentWidget().rect()
        gap, size = 14, self.size()
        x = self._at.x() + gap
        if x + size.width() > room.width():
            x = self._at.x() - gap - size.width()
        y = self._at.y() + gap
        if y + size.height() > room.height():
            y = self._at.y() - gap - size.height()
        self.move(
            max(0, min(x, room.width() - size.width())),
            max(0, min(y, room.height() - size.height())),
        )

    def _read(self) -> None:
        if self._wanted is None or self._is_reading:
            return
        name, slide, features = self._wanted
        self._is_reading = True
        run_in_background(
            lambda: self.read(slide, features),
            lambda pixels: self._take(name, pixels),
            lambda _error: self._take(name, None),
            owner=self,
        )

    def _take(self, name: str, pixels: np.ndarray | None) -> None:
        self._is_reading = False
        if pixels is not None:
            pixels = np.ascontiguousarray(pixels, np.uint8)
            height, width = pixels.shape[:2]
            form = QImage.Format.Format_RGB888
            image = QImage(pixels.tobytes(), width, height, 3 * width, form).copy()
            self._kept[name] = QPixmap.fromImage(image)
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        if self._wanted is None:
            return
        if self._wanted[0] != name:
            self._read()
        elif name in self._kept:
            self.picture.setPixmap(self._kept[name])
            self.picture.show()
            self._place()
