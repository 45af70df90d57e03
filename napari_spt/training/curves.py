"""Live curves of a training: how wrong it still is, and who its neighbours are."""

from math import ceil, floor, log10

import pyqtgraph as pg
from qtpy.QtCore import Qt
from qtpy.QtGui import QFontMetrics
from qtpy.QtWidgets import QVBoxLayout, QWidget

from napari_spt.parts.tool_style import text_font
from napari_spt.parts.widgets import text
from napari_spt.training.reading import Points, Training

TALL, SHORT = 170, 130
MOST_POINTS, FEW_POINTS = 1500, 20
# Told apart by colour-blind eyes, on both themes.
LOSS, HELD_OUT, OF_CLASS, OF_SITE = "#4c9be8", "#e8933a", "#3fae7a", "#c06ab8"


class CalmLogAxis(pg.AxisItem):
    """Of a logarithmic axis, as many numbers as can be read."""

    def logTickValues(self, low, high, size, _std_ticks):
        decades = range(floor(low), ceil(high) + 1)
        for steps in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 5, 7)):
            found = [n + log10(step) for n in decades for step in steps]
            found = [one for one in found if low <= one <= high]
            if len(found) >= 3:
                return [(None, found)]
        least, most = 10**low, 10**high
        if most - least <= 1e-6 * most:
            return [(None, found)]
        # A small part of a decade: as on a plain axis.
        step = 10 ** floor(log10((most - least) / 2))
        step *= max(n for n in (1, 2, 5) if n == 1 or n * step <= (most - least) / 3)
        numbers = range(ceil(least / step), floor(most / step) + 1)
        return [(None, [log10(number * step) for number in numbers])]

    def logTickStrings(self, values, _scale, _spacing):
        return [f"{10**value:.4g}" for value in values]


class CalmPlot(pg.PlotWidget):
    """A plot that neither the wheel nor the mouse moves."""

    def __init__(self, name: str, **axes: pg.AxisItem) -> None:
        super().__init__(axisItems=axes)
        self.setAccessibleName(name)
        self.setMouseEnabled(x=False, y=False)
        self.setMenuEnabled(False)
        self.hideButtons()
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.getPlotItem().getAxis("bottom").enableAutoSIPrefix(False)
        self.getPlotItem().getAxis("left").enableAutoSIPrefix(False)

    def wheelEvent(self, event) -> None:
        event.ignore()  # the dock is scrolled

    def use_colours(self, ink: str, ground: str, font) -> None:
        self.setBackground(ground)
        for side in ("bottom", "left"):
            axis = self.getPlotItem().getAxis(side)
            axis.setPen(ink)
            axis.setTextPen(ink)
            axis.setTickFont(font)
        # By itself it keeps the height that other text had, and cuts the numbers off.
        line = QFontMetrics(font).height()
        self.getPlotItem().getAxis("bottom").setHeight(line + 6)
        self.getPlotItem().setContentsMargins(0, line / 2, 0, 0)


class Curves(QWidget):
    """Loss and what was held out, the best point marked; neighbours below."""

    def __init__(self) -> None:
        super().__init__()
        self.loss_words = text("", "How wrong it still is", is_html=True)
        self.loss = CalmPlot(
            "How wrong it still is, over the steps", left=CalmLogAxis("left")
        )
        self.loss.setFixedHeight(TALL)
        self.loss.setLogMode(x=False, y=True)
        self.loss_line = self._line(self.loss, LOSS)
        self.held_out_line = self._line(self.loss, HELD_OUT)
        self.best = pg.ScatterPlotItem(size=11, symbol="star", pen=None, brush=HELD_OUT)
        self.loss.addItem(self.best)
        self.near_words = text("", "Neighbours of the same class", is_html=True)
        self.near = CalmPlot("Neighbours of the same class, over the steps")
        self.near.setFixedHeight(SHORT)
        self.near.setYRange(0, 1)
        self.class_line = self._line(self.near, OF_CLASS)
        self.site_line = self._line(self.near, OF_SITE)
        box = QVBoxLayout(self)
        box.setContentsMargins(0, 0, 0, 0)
        box.setSpacing(2)
        for widget in (self.loss_words, self.loss, self.near_words, self.near):
            box.addWidget(widget)

    @staticmethod
    def _line(plot: CalmPlot, colour: str) -> pg.PlotDataItem:
        line = pg.PlotDataItem(
            pen=pg.mkPen(colour, width=2), symbolPen=None, symbolBrush=colour
        )
        plot.addItem(line)
        return line

    def show_training(self, training: Training) -> None:
        _draw(self.loss_line, training.loss)
        _draw(self.held_out_line, training.held_out)
        best = training.best
        points = [] if best is None or best[1] <= 0 else [best]
        self.best.setData(
            x=[x for x, _ in points],
            # A scatter knows nothing of the logarithm of its plot.
            y=[log10(y) for _, y in points],
            brush=HELD_OUT if training.held_out else LOSS,
        )
        self.loss_words.setText(_loss_words(training))
        has_near = bool(training.of_class or training.of_site)
        self.near.setVisible(has_near)
        self.near_words.setVisible(has_near)
        if has_near:
            _draw(self.class_line, training.of_class)
            _draw(self.site_line, training.of_site)
            self.near_words.setText(_near_words(training))

    def use_colours(self, ink: str, ground: str) -> None:
        for plot in (self.loss, self.near):
            plot.use_colours(ink, ground, text_font(self.font()))


def _draw(line: pg.PlotDataItem, points: Points) -> None:
    step = max(1, -(-len(points) // MOST_POINTS))
    shown = points[::step]
    if shown and shown[-1] != points[-1]:
        shown = [*shown, points[-1]]
    line.setData([x for x, _ in shown], [y for _, y in shown])
    # A first point has no line yet.
    line.setSymbol("o" if len(shown) <= FEW_POINTS else None)
    line.setSymbolSize(5)


def _loss_words(training: Training) -> str:
    if not training.loss:
        return "<b>How wrong it still is</b> after each step (lower is better)"
    parts = [f"<span style='color:{LOSS}'>■</span> slides it learns from"]
    if training.held_out:
        parts.append(f"<span style='color:{HELD_OUT}'>■</span> slides held out")
    best = training.best
    star = f"; ★ best, step {best[0]:.0f}" if best else ""
    told = f"{', '.join(parts)}{star}"
    return f"<b>How wrong it still is</b> after each step (lower is better): {told}"


def _near_words(training: Training) -> str:
    words, found = "<b>Nearest slides of other patients are of the same</b> ", []
    if training.of_class:
        last = training.of_class[-1][1]
        found.append(
            f"<span style='color:{OF_CLASS}'>■</span> class: {last * 100:.0f} %"
        )
    if training.of_site:
        site = training.of_site[-1][1]
        found.append(f"<span style='color:{OF_SITE}'>■</span> site: {site * 100:.0f} %")
    words += ", ".join(found)
    if len(found) == 2 and site > last:
        words += ". The site is told better than the class: doubt the result."
    return f"{words}<br>To watch learning by; no score."
