"""A strip of pictures of a slide's regions."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import numpy as np
from napari.qt.threading import GeneratorWorker, create_worker
from numpy.typing import NDArray
from qtpy.QtCore import QSize, Qt, Signal
from qtpy.QtGui import QIcon, QImage, QPixmap
from qtpy.QtWidgets import QSizePolicy, QToolButton, QWidget
from superqt.utils import QFlowLayout

from napari_spt.analysis.places import Place
from napari_spt.parts.notices import show_warning

MARKS = {"most": "", "random": "chance", "least": "least", "odd": "", "alike": ""}
SIDE, GAP = 58, 2


class RegionStrip(QWidget):
    """Pictures of places; a click, or a key, goes there.

    Qt appends new buttons to the order of the tab key: ``tab_after`` is what they come
    after instead.
    """

    chosen = Signal(object)

    def __init__(self) -> None:
        super().__init__()
        self.flow = QFlowLayout(self)
        self.flow.setContentsMargins(0, 0, 0, 0)
        self.flow.setHorizontalSpacing(GAP)
        self.flow.setVerticalSpacing(GAP)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        self.places: list[Place] = []
        self.buttons: list[QToolButton] = []
        self.current = -1
        self.tab_after: QWidget | None = None
        self._worker: GeneratorWorker | None = None

    def show_places(
        self, places: Sequence[Place], path: Path, l0_size_xy: tuple[int, int]
    ) -> None:
        """Show places of a slide; their pictures follow, read in a thread."""
        if list(places) == self.places:
            return
        self.stop()
        self._clear()
        self.places = list(places)
        for number, place in enumerate(self.places):
            self._add(number, place)
        for before, after in pairwise(filter(None, [self.tab_after, *self.buttons])):
            QWidget.setTabOrder(before, after)
        self._take_room()
        wanted = [_wanted(place, path, l0_size_xy) for place in self.places]
        worker = create_worker(pictures, wanted, SIDE)
        worker.yielded.connect(self._show_picture)
        self._worker = worker
        worker.start()

    def clear(self) -> None:
        self.stop()
        self._clear()

    def stop(self) -> None:
        """Read no further pictures."""
        if self._worker is not None:
            self._worker.yielded.disconnect(self._show_picture)
            self._worker.quit()
            self._worker = None

    def go(self, number: int) -> None:
        """Choose a region by its number, around the ends."""
        if not self.places:
            return
        number %= len(self.places)
        self.current = number
        for place, button in enumerate(self.buttons):
            button.setChecked(place == number)
        self.chosen.emit(self.places[number])

    def go_on(self, step: int) -> None:
        start = -1 if self.current < 0 and step > 0 else max(self.current, 0)
        self.go(start + step)

    def resizeEvent(self, event) -> None:
        super().resizeEvent(event)
        self._take_room()

    def _take_room(self) -> None:
        """As high as its rows; a scroll area asks nobody for that."""
        height = self.flow.heightForWidth(self.width())
        if self.height() != height:
            self.setFixedHeight(height)

    def _clear(self) -> None:
        while self.flow.count():
            widget = self.flow.takeAt(0).widget()
            widget.hide()
            widget.deleteLater()
        self.places, self.buttons, self.current = [], [], -1

    def _add(self, number: int, place: Place) -> None:
        button = QToolButton()
        button.setCheckable(True)
        button.setObjectName("spt_region")
        button.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextUnderIcon)
        button.setIconSize(QSize(SIDE, SIDE))
        button.setIcon(QIcon(_blank()))
        mark = MARKS[place.kind]
        words = f"{place.caption}\n{mark}" if mark else place.caption
        button.setText(words)
        described = ", ".join(part for part in (place.caption, mark) if part)
        button.setAccessibleName(f"Region {number + 1}: {described}")
        button.setToolTip("Show this place on the slide")
        button.clicked.connect(lambda _=False, number=number: self.go(number))
        self.buttons.append(button)
        self.flow.addWidget(button)
        button.show()

    def _show_picture(self, found: tuple[int, NDArray[np.uint8]] | Exception) -> None:
        if isinstance(found, Exception):
            show_warning(f"The regions' pictures cannot be read: {found}")
            return
        number, rgb = found
        if number < len(self.buttons):
            self.buttons[number].setIcon(QIcon(pixmap(rgb)))


Wanted = tuple[Path, tuple[int, int], tuple[float, float]]


def _wanted(place: Place, path: Path, l0_size_xy: tuple[float, float]) -> Wanted:
    """Of which file, from where and how large its picture is."""
    other = place.of
    if other is None or other.lattice is None:
        return path, place.l0_xy, l0_size_xy
    return other.asked.slide, place.l0_xy, other.lattice.l0_step_xy


def pictures(
    wanted: Sequence[Wanted], side: int
) -> Iterator[tuple[int, NDArray[np.uint8]] | Exception]:
    """The pixels of places, one after the other; or why there are none.

    A place is a file, a level-0 (x, y) and the level-0 size of the picture.
    """
    from spt_core.insight.picture import read_patch
    from spt_core.slides import open_slide

    try:
        with ExitStack() as opened:
            slides = {}
            for number, (path, l0_xy, l0_size_xy) in enumerate(wanted):
                if path not in slides:
                    slides[path] = open_slide(path)
                    opened.callback(slides[path].close)
                picture = read_patch(
                    slides[path], np.asarray(l0_xy), l0_size_xy, 2 * side
                )
                yield number, np.asarray(picture)
    except Exception as error:  # noqa: BLE001
        yield error


def pixmap(rgb: NDArray[np.uint8]) -> QPixmap:
    height, width = rgb.shape[:2]
    data = np.ascontiguousarray(rgb)
    image = QImage(data.data, width, height, 3 * width, QImage.Format.Format_RGB888)
    return QPixmap.fromImage(image.copy())


def _blank() -> QPixmap:
    pixmap = QPixmap(SIDE, SIDE)
    pixmap.fill(Qt.GlobalColor.transparent)
    return pixmap
