"""How the maps lie over the slide: live controls."""

from qtpy.QtCore import Qt
from qtpy.QtWidgets import (
    QCheckBox,
    QDoubleSpinBox,
    QGridLayout,
    QHBoxLayout,
    QLabel,
    QSlider,
)

from napari_spt.analysis.map_settings import TIMES
from napari_spt.analysis.panel import Panel
from napari_spt.analysis.slide_analysis import Change
from napari_spt.analysis.state import AnalysisState


class ViewPanel(Panel):
    """What is shown, how strongly, over which range."""

    shows = frozenset({Change.BEGUN, Change.PREDICTION, Change.CLASS_MAP})

    def __init__(self, state: AnalysisState) -> None:
        super().__init__(state)
        view = state.view
        self.attention = QCheckBox("Where it looked")
        self.attention.setChecked(view.shows_attention)
        self.classes = QCheckBox("Class map")
        self.classes.setChecked(view.shows_classes)
        self.opacity = _slider("Opacity", 0, 100, round(100 * view.opacity))
        self.smoothing = _slider("Smoothing", 0, 30, round(10 * view.smoothing))
        self.low = _number("Range from, times average", 0.0, 20.0, view.low)
        self.high = _number("Range to, times average", 0.5, 50.0, view.high)
        self.weak = QCheckBox("Hide weak attention")
        self.weak.setToolTip("Show only what was looked at more than average")
        self.weak.setChecked(view.hides_weak)
        self._lay_out()
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
        state.view_changed.connect(self._on_view)
        self.refresh()

    def refresh(self) -> None:
        analysis = self.state.analysis
        self.setVisible(analysis is not None and analysis.has_attention)
        self.classes.setVisible(
            analysis is not None
            and analysis.class_map is not None
            and analysis.names_class
        )

    def _change(self) -> None:
        low = self.low.value()
        self.state.set_view(
            low=low,
            high=max(self.high.value(), low + 0.1),
            hides_weak=self.weak.isChecked(),
            smoothing=self.smoothing.value() / 10,
            opacity=self.opacity.value() / 100,
            shows_attention=self.attention.isChecked(),
            shows_classes=self.classes.isChecked(),
        )

    def _on_view(self) -> None:
        for control in (self.low, self.high):
            control.setEnabled(self.state.view.unit == TIMES)

    def _lay_out(self) -> None:
        row = QHBoxLayout()
        row.addWidget(self.attention)
        row.addWidget(self.classes)
        row.addStretch()
        self.box.addLayout(row)
        grid = QGridLayout()
        grid.setColumnStretch(1, 1)
        for line, (name, control) in enumerate(
            (("Opacity", self.opacity), ("Smoothing", self.smoothing))
        ):
            label = QLabel(name)
            label.setBuddy(control)
            grid.addWidget(label, line, 0)
            grid.addWidget(control, line, 1)
        self.box.addLayout(grid)
        row = QHBoxLayout()
        row.addWidget(self.low, stretch=1)
        row.addWidget(QLabel("to"))
        row.addWidget(self.high, stretch=1)
        grid.addWidget(QLabel("Range"), 2, 0)
        grid.addLayout(row, 2, 1)
        self.box.addWidget(self.weak)


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
