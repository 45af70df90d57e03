"""What the model says of the slide: a sentence, what to doubt, and bars."""

from collections.abc import Sequence

from qtpy.QtCore import QRectF, QSize, Qt
from qtpy.QtGui import QColor, QPainter
from qtpy.QtWidgets import QGridLayout, QLabel, QSizePolicy, QVBoxLayout, QWidget

from napari_spt.analysis.state import Reading

UNLIKE = "Unlike the slides this model learned from"
UNDECIDED = "Undecided"


def seen_words(reading: Reading) -> str:
    """How much of the tissue the answer is from."""
    if reading.seen >= 1:
        return f"Seen all {reading.patches:,} patches with enough tissue."
    share = min(99, max(1, round(100 * reading.seen)))
    return f"Seen {share} % of the tissue so far."


def headline(reading: Reading) -> tuple[str, str]:
    """The answer, and what to think of it, both in words."""
    top = reading.top
    name = reading.classes[top] if top is not None and reading.classes else ""
    doubts = "It may not be able to judge this slide: doubt the rest."
    if reading.verdict == "unlike":
        if not name and reading.sentences:
            # The model declines to name a class; its own words say why.
            words = reading.sentences[0].removeprefix(f"{UNLIKE}.").strip()
            return UNLIKE, words.partition(" Seen so far")[0]
        lead = f" It would say “{name}”." if name else ""
        return UNLIKE, doubts + lead
    if reading.verdict == "undecided":
        return UNDECIDED, f"The most likely is “{name}”, by too little to say so."
    if reading.verdict == "empty":
        return "No tissue", "There is nothing here to look at."
    if not name and reading.classes and reading.sentences:
        # It has classes and names none of them: its own words say why.
        return "No class named", reading.sentences[0].partition(" Seen so far")[0]
    if not name:
        return "No classes", "This model shows where it looks, and names nothing."
    if reading.verdict == "seen in training":
        return name, "The model learned from this very slide: that proves nothing."
    return name, ""


class Bar(QWidget):
    """One share from 0 to 1; a second one, below, to compare."""

    def __init__(self, rgb: Sequence[int]) -> None:
        super().__init__()
        self.colour = QColor(*(int(part) for part in rgb))
        self.share = 0.0
        self.other: float | None = None
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def sizeHint(self) -> QSize:
        height = self.fontMetrics().height()
        return QSize(6 * height, round(0.9 * height))

    def minimumSizeHint(self) -> QSize:
        height = self.fontMetrics().height()
        return QSize(3 * height, round(0.9 * height))

    def paintEvent(self, _event) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        area = QRectF(self.rect())
        shares = [self.share] if self.other is None else [self.share, self.other]
        height = area.height() / len(shares)
        for row, share in enumerate(shares):
            strip = QRectF(0, row * height, area.width(), height - len(shares) + 1)
            painter.setBrush(QColor(128, 128, 128, 60))
            painter.drawRoundedRect(strip, 3, 3)
            strip.setWidth(max(3.0, share * area.width()))
            colour = QColor(self.colour)
            if row:
                colour.setAlpha(140)
            painter.setBrush(colour)
            painter.drawRoundedRect(strip, 3, 3)
        painter.end()


class ReadingPanel(QWidget):
    """The answer of the model, from the most to the least likely class."""

    def __init__(self) -> None:
        super().__init__()
        self.answer = _wrapped("Answer")
        self.doubt = _wrapped("What to think of the answer")
        self.seen = _wrapped("How much was seen")
        self.kind = _wrapped("What the numbers are")
        self.remarks = _wrapped("Remarks")
        self.grid = QGridLayout()
        self.grid.setVerticalSpacing(4)
        self.grid.setHorizontalSpacing(8)
        self.grid.setColumnStretch(1, 1)
        box = QVBoxLayout(self)
        box.setContentsMargins(0, 0, 0, 0)
        box.setSpacing(4)
        box.addWidget(self.answer)
        box.addWidget(self.doubt)
        box.addLayout(self.grid)
        box.addWidget(self.seen)
        box.addWidget(self.kind)
        box.addWidget(self.remarks)
        self.bars: dict[str, Bar] = {}
        self.values: dict[str, QLabel] = {}
        self._classes: tuple[str, ...] = ()

    def show_reading(self, reading: Reading) -> None:
        from spt_core.insight.colours import class_colour

        named = () if reading.probabilities is None else reading.classes
        if named != self._classes:
            self._lay_out(named, [class_colour(i) for i in range(len(named))])
        answer, doubt = headline(reading)
        self.answer.setText(f'<span style="font-size:x-large">{answer}</span>')
        self.doubt.setText(doubt)
        self.doubt.setVisible(bool(doubt))
        self.seen.setText(seen_words(reading))
        for name, share in _shares(reading).items():
            self.bars[name].share = share
            self.bars[name].other = None
            self.bars[name].setAccessibleName(f"{name}: {share:.0%}")
            self.bars[name].update()
            self.values[name].setText(f"{100 * share:.0f} %")
        kind = ""
        if reading.probabilities is not None and not reading.facts.get("calibrated"):
            kind = "These are scores: how often they come true is not known."
        self.kind.setText(kind)
        self.kind.setVisible(bool(kind))
        remarks = "\n".join(reading.sentences[1:])
        self.remarks.setText(remarks)
        self.remarks.setVisible(bool(remarks))

    def compare(self, shares: Sequence[float] | None) -> None:
        """Show other shares beside the slide's own, or none."""
        for number, name in enumerate(self._classes):
            bar = self.bars[name]
            bar.other = None if shares is None else float(shares[number])
            text = f"{100 * bar.share:.0f} %"
            if bar.other is not None:
                text += f" → {100 * bar.other:.0f} %"
            self.values[name].setText(text)
            bar.setAccessibleName(f"{name}: {text}")
            bar.update()

    def _lay_out(self, classes: tuple[str, ...], colours: Sequence) -> None:
        while self.grid.count():
            widget = self.grid.takeAt(0).widget()
            widget.hide()
            widget.deleteLater()
        self._classes = classes
        self.bars, self.values = {}, {}
        for row, name in enumerate(classes):
            label = QLabel(name)
            label.setWordWrap(True)
            self.bars[name] = Bar(colours[row])
            self.values[name] = QLabel()
            self.values[name].setAlignment(
                Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
            )
            self.grid.addWidget(label, row, 0)
            self.grid.addWidget(self.bars[name], row, 1)
            self.grid.addWidget(self.values[name], row, 2)


def _shares(reading: Reading) -> dict[str, float]:
    if reading.probabilities is None:
        return {}
    pairs = zip(reading.classes, reading.probabilities.tolist(), strict=True)
    return dict(pairs)


def _wrapped(name: str) -> QLabel:
    label = QLabel()
    label.setWordWrap(True)
    label.setAccessibleName(name)
    label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
    return label
