"""How the maps lie over the slide: live controls."""

from dataclasses import dataclass

from qtpy.QtCore import Qt, Signal
from qtpy.QtWidgets import (
    QCheckBox,
    QDoubleSpinBox,
    QGridLayout,
    QHBoxLayout,
    QLabel,
    QSlider,
    QVBoxLayout,
    QWidget,
)

from napari_spt.parts.settings import remember, remembered
from spt_core.insight.colours import LIMITS

TIMES, PERCENTILE = "times average", "percentile"
# What counts as weak: less than an even share.
WEAK = {TIMES: 1.0, PERCENTILE: 50.0}
MEAN = -1


@dataclass(frozen=True)
class ViewSettings:
    """How attention is drawn; ``head`` -1 is the mean of all."""

    head: int = MEAN
    unit: str = TIMES
    low: float = 0.0
    high: float = 4.0
    hides_weak: bool = False
    smoothing: float = 0.0
    opacity: float = 0.7
    shows_attention: bool = True
    shows_classes: bool = True

    @property
    def limits(self) -> tuple[float, float]:
        return (self.low, self.high) if self.unit == TIMES else LIMITS[PERCENTILE]


class ViewControls(QWidget):
    """What is shown, how strongly, over which range."""

    changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        kept = remembered("view", {})
        self.attention = QCheckBox("Where it looked")
        self.attention.setChecked(True)
        self.classes = QCheckBox("Class map")
        self.classes.setChecked(True)
        self.opacity = _slider("Opacity", 0, 100, int(kept.get("opacity", 70)))
        self.smoothing = _slider("Smoothing", 0, 30, int(kept.get("smoothing", 0)))
        self.low = _number("Range from, times average", 0.0, 20.0, 0.0)
        self.high = _number("Range to, times average", 0.5, 50.0, 4.0)
        self.weak = QCheckBox("Hide weak attention")
        self.weak.setToolTip("Show only what was looked at more than average")
        self.weak.setChecked(bool(kept.get("hides_weak", False)))
        # Of the Advanced part, which sets them.
        self.head, self.unit = MEAN, TIMES
        box = QVBoxLayout(self)
        box.setContentsMargins(0, 0, 0, 0)
        row = QHBoxLayout()
        row.addWidget(self.attention)
        row.addWidget(self.classes)
        row.addStretch()
        box.addLayout(row)
        grid = QGridLayout()
        grid.setColumnStretch(1, 1)
        for line, (name, control) in enumerate(
            (("Opacity", self.opacity), ("Smoothing", self.smoothing))
        ):
            label = QLabel(name)
            label.setBuddy(control)
            grid.addWidget(label, line, 0)
            grid.addWidget(control, line, 1)
        box.addLayout(grid)
        row = QHBoxLayout()
        row.addWidget(self.low, stretch=1)
        row.addWidget(QLabel("to"))
        row.addWidget(self.high, stretch=1)
        grid.addWidget(QLabel("Range"), 2, 0)
        grid.addLayout(row, 2, 1)
        box.addWidget(self.weak)
        for signal in (
            self.attention.toggled,
            self.classes.toggled,
            self.weak.toggled,
            self.opacity.valueChanged,
            self.smoothing.valueChanged,
            self.low.valueChanged,
            self.high.valueChanged,
        ):
            signal.connect(self._change)

    @property
    def settings(self) -> ViewSettings:
        low = self.low.value()
        return ViewSettings(
            head=self.head,
            unit=self.unit,
            low=low,
            high=max(self.high.value(), low + 0.1),
            hides_weak=self.weak.isChecked(),
            smoothing=self.smoothing.value() / 10,
            opacity=self.opacity.value() / 100,
            shows_attention=self.attention.isChecked(),
            shows_classes=self.classes.isChecked(),
        )

    def keep(self) -> None:
        remember(
            "view",
            {
                "opacity": self.opacity.value(),
                "smoothing": self.smoothing.value(),
                "hides_weak": self.weak.isChecked(),
            },
        )

    def set_way(self, head: int, unit: str) -> None:
        """Which attention, in which unit: the Advanced part's choice."""
        self.head, self.unit = head, unit
        for control in (self.low, self.high):
            control.setEnabled(unit == TIMES)
        self._change()

    def _change(self) -> None:
        self.changed.emit()


def _slider(name: str, low: int, high: int, value: int) -> QSlider:
    slider = QSlider(Qt.Orientation.Horizontal)
    slider.setRange(low, high)
    slider.setValue(value)
    slider.setAccessibleName(name)
    return slider


def _number(name: str, low: float, high: float, value: float) -> QDoubleSpinBox:
    box = QDoubleSpinBox()
    box.setRange(low, high)
    box.setDecimals(1)
    box.setSingleStep(0.5)
    box.setSuffix(" ×")
    box.setToolTip("In times the average: 1 × is looked at like any other place")
    box.setMinimumWidth(4 * box.fontMetrics().height())
    box.setValue(value)
    box.setAccessibleName(name)
    return box
