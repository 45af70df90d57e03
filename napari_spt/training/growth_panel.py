"""The map of slides growing apart while a model trains, and where it looks."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from qtpy.QtCore import Qt
from qtpy.QtGui import QColor, QImage, QPixmap
from qtpy.QtWidgets import (
    QHBoxLayout,
    QLabel,
    QPushButton,
    QSlider,
    QVBoxLayout,
    QWidget,
)

from napari_spt.parts.widgets import text
from napari_spt.slide_map.colouring import by_names
from napari_spt.slide_map.legend import Legend
from napari_spt.slide_map.plot import MapPlot
from spt_core.insight.colours import LIMITS, heat
from spt_core.insight.maps import TIMES_AVERAGE
from spt_core.learning.growth_file import (
    Snapshot,
    aligned,
    read_snapshot,
    snapshot_steps,
)

EMPTY = (
    "While a model learns, its slides are shown here: how they come to lie apart, and "
    "where it looks on one of them."
)
LEARNED_FROM = "It learns from all of them: that they lie apart is no proof."
FOR_THE_EYE = "It does not know the labels; they only give the colours."
# Which training it is of, by the name of its folder.
WHOSE = {
    "before": "<b>Learning without labels.</b> ",
    "model": "<b>Your model.</b> ",
}
SIDE = 260
BRIGHT = "bright green: four times the average"
GROUND = (40, 40, 48)


class GrowthPanel(QWidget):
    """Snapshots of a run; the newest is shown unless the slider was moved back.

    :meth:`refresh` is to be called now and then while the run goes on: it reads what
    is new, a few milliseconds for each snapshot.
    """

    def __init__(self) -> None:
        super().__init__()
        self.run: Path | None = None
        self.snapshots: list[Snapshot] = []
        # By pseudonym, for slides that are learned from without their labels.
        self.labels: Mapping[str, str] = {}
        self._is_newest = True
        self._ground = GROUND
        self.empty = text(EMPTY)
        self.says = text("", "Which step is shown", is_html=True)
        self.plot, self.legend = MapPlot(), Legend()
        self.plot.setAccessibleName("Slides as the model sees them at this step")
        self.plot.setFixedHeight(SIDE)
        self.looks = text("", "Whose attention it is")
        self.picture = QLabel()
        self.picture.setAccessibleName("Where the model looks on the slide")
        self.picture.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.slider = QSlider(Qt.Orientation.Horizontal)
        self.slider.setAccessibleName("Back in time")
        self.slider.setToolTip("Go back to how it was at an earlier step")
        self.newest = QPushButton("Newest")
        self.newest.setToolTip("Show the newest, and follow it")
        row = QHBoxLayout()
        row.addWidget(self.slider, stretch=1)
        row.addWidget(self.newest)
        self.found = QWidget()
        lower = QVBoxLayout(self.found)
        lower.setContentsMargins(0, 0, 0, 0)
        lower.setSpacing(6)
        lower.addWidget(self.says)
        lower.addLayout(row)
        for widget in (self.plot, self.legend, self.looks, self.picture):
            lower.addWidget(widget)
        box = QVBoxLayout(self)
        box.setContentsMargins(0, 0, 0, 0)
        box.addWidget(self.empty)
        box.addWidget(self.found)
        self.slider.valueChanged.connect(self._on_slider)
        self.newest.clicked.connect(self._follow_newest)
        self.legend.only.connect(self.plot.show_only)
        self._show()

    def show(self, run_folder: Path | None = None) -> None:
        """Show a run; without a folder, as every widget is shown."""
        if run_folder is None:
            super().show()
            return
        self.run, self.snapshots, self._is_newest = Path(run_folder), [], True
        self.labels = {}
        self.refresh()
        self._show()

    def use_labels(self, labels: Mapping[str, str]) -> None:
        """Labels for the eye, where the model learns without them."""
        self.labels = labels
        self._show()

    def use_colours(self, ink: str, ground: str) -> None:
        """Those of napari's theme."""
        self.plot.use_colours(ink, ground)
        self._ground = QColor(ground).getRgb()[:3]
        self._show()

    def refresh(self) -> None:
        """Read what is new of the run."""
        if self.run is None:
            return
        steps = snapshot_steps(self.run)
        kept = [one for one in self.snapshots if one.step in steps]
        known = {one.step for one in kept}
        new = [
            one
            for step in steps
            if step not in known and (one := read_snapshot(self.run, step)) is not None
        ]
        if not new and len(kept) == len(self.snapshots):
            return
        found = sorted([*kept, *new], key=lambda one: one.step)
        # From the newest back, so that the map turns as little as can be.
        for number in range(len(found) - 2, -1, -1):
            found[number] = aligned(found[number], found[number + 1])
        at = self.current.step if self.current is not None else -1
        self.snapshots = found
        place = len(found) - 1
        if not self._is_newest:
            place = next((n for n, one in enumerate(found) if one.step >= at), place)
        self.slider.blockSignals(True)
        self.slider.setRange(0, max(0, len(found) - 1))
        self.slider.setValue(place)
        self.slider.blockSignals(False)
        self._show()

    @property
    def current(self) -> Snapshot | None:
        if not self.snapshots:
            return None
        return self.snapshots[min(self.slider.value(), len(self.snapshots) - 1)]

    def _on_slider(self, place: int) -> None:
        self._is_newest = place >= len(self.snapshots) - 1
        self._show()

    def _follow_newest(self) -> None:
        self.slider.setValue(len(self.snapshots) - 1)
        self._is_newest = True

    def _show(self) -> None:
        found = self.current
        self.empty.setVisible(found is None)
        self.found.setVisible(found is not None)
        if found is None:
            return
        last = self.snapshots[-1].step
        self.newest.setEnabled(found.step != last)
        step = (
            "Before the first step" if found.step == 0 else f"After step {found.step:,}"
        )
        learned = "" if found.held_out.any() else f" {LEARNED_FROM}"
        if self.labels and self._is_unlabelled(found):
            learned = f" {FOR_THE_EYE}"
        whose = WHOSE.get(self.run.name, "") if self.run else ""
        self.says.setText(
            f"{whose}{step}, of {last:,} so far: each point is a slide.{learned}"
        )
        self._show_points(found)
        self.looks.setText(attention_words(found))
        self.picture.setPixmap(attention_picture(found, self._ground))

    def _show_points(self, found: Snapshot) -> None:
        values = [found.classes[one] if one >= 0 else None for one in found.y]
        order = list(found.classes)
        if self._is_unlabelled(found):
            values = [self.labels.get(slide) for slide in found.slides]
            order = sorted(set(filter(None, values)))
        colours = by_names("Label", values, order=order)
        only = self.plot.only
        self.plot.show_points(found.xy, colours)
        if only is not None:
            self.plot.show_only(only)
        entries = [(one.words, one.count) for one in colours.entries]
        if getattr(self, "_entries", None) != entries:
            self._entries = entries
            self.legend.show_colouring(colours)

    @staticmethod
    def _is_unlabelled(found: Snapshot) -> bool:
        return not (found.y >= 0).any()


def attention_words(found: Snapshot) -> str:
    """On which slide the model is shown to look."""
    if found.held_out[found.attended]:
        return f"Where it looks on a slide that it does not learn from ({BRIGHT}):"
    return f"Where it looks on one of its slides ({BRIGHT}):"


def attention_picture(
    found: Snapshot, ground: tuple[int, int, int] = GROUND
) -> QPixmap:
    """Attention from none to four times the average, one square per patch."""
    p = found.p - found.p.min(axis=0)
    # Of large slides some patches only: each is as large as the gap between them.
    step = max(1, round((np.prod(p.max(axis=0) + 1) / len(p)) ** 0.5 / 2))
    p = p // step
    rows, cols = p.max(axis=0) + 1
    low, high = LIMITS[TIMES_AVERAGE]
    rgba = heat((found.attention - low) / (high - low))
    picture = np.empty((rows, cols, 3), np.float32)
    picture[:] = np.array(ground) / 255
    alpha = rgba[:, 3:]
    picture[p[:, 0], p[:, 1]] = rgba[:, :3] * alpha + 0.6 * (1 - alpha)
    pixels = np.ascontiguousarray((picture * 255).round().astype(np.uint8))
    form = QImage.Format.Format_RGB888
    image = QImage(pixels.tobytes(), cols, rows, 3 * cols, form).copy()
    return QPixmap.fromImage(image).scaled(
        SIDE,
        SIDE,
        Qt.AspectRatioMode.KeepAspectRatio,
        Qt.TransformationMode.FastTransformation,
    )
