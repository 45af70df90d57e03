"""The question for a slide's pixel size, asked in place."""

from qtpy.QtCore import QSignalBlocker, Signal
from qtpy.QtWidgets import (
    QDoubleSpinBox,
    QFrame,
    QGridLayout,
    QLabel,
    QPushButton,
    QVBoxLayout,
)

from napari_spt.parts.widgets import plain_label
from spt_core.slides.properties import doubt_note

USUAL = {"10×": 1.0, "20×": 0.5, "40×": 0.25}


class PixelSizeQuestion(QFrame):
    """Asks how large a pixel is, and says what follows from the answer.

    ``answered`` gives the slide's key and the answer; None takes it back.
    """

    answered = Signal(str, object)

    def __init__(self) -> None:
        super().__init__()
        self.words = plain_label()
        self.words.setWordWrap(True)
        self.value = QDoubleSpinBox()
        self.value.setDecimals(3)
        # Nothing is taken for granted: what was true of another slide is no answer.
        self.value.setRange(0.0, 20.0)
        self.value.setSpecialValueText("choose")
        self.value.setSingleStep(0.05)
        self.value.setSuffix(" µm per pixel")
        self.value.setAccessibleName("Pixel size in micrometres")
        self.buttons = {}
        row = QGridLayout()
        row.setColumnStretch(0, 1)
        row.addWidget(self.value, 0, 0)
        for place, (name, um) in enumerate(USUAL.items(), start=1):
            button = QPushButton(name)
            button.setAccessibleName(f"Scanned at {name}")
            button.clicked.connect(lambda _=False, um=um: self.value.setValue(um))
            self.buttons[name] = button
            row.addWidget(button, 0, place)
        self.ruler = QLabel()
        self.ruler.setWordWrap(True)
        self.ruler.setAccessibleName("What this pixel size means")
        box = QVBoxLayout(self)
        box.setContentsMargins(0, 0, 0, 0)
        box.addWidget(self.words)
        box.addLayout(row)
        box.addWidget(self.ruler)
        self._key = ""
        self._size: tuple[int, int] = (0, 0)
        self.value.valueChanged.connect(self._on_value)

    @property
    def um(self) -> float | None:
        """The answer; None as long as there is none."""
        return self.value.value() or None

    def ask(
        self,
        key: str,
        l0_size_xy: tuple[int, int],
        answer: float | None,
        *,
        doubted_xy: tuple[float, float] | None = None,
    ) -> None:
        """Ask about the slide known by ``key``; ``answer`` is what was said before.

        ``doubted_xy`` is what its file says and is not believed.
        """
        self._key, self._size = key, l0_size_xy
        why = "This slide does not say how large a pixel is."
        if doubted_xy is not None:
            why = doubt_note(doubted_xy)
        self.words.setText(f"{why} At which magnification was it scanned?")
        if self.um != answer:
            with QSignalBlocker(self.value):
                self.value.setValue(answer or 0.0)
        self._explain()

    def _on_value(self) -> None:
        self._explain()
        self.answered.emit(self._key, self.um)

    def _explain(self) -> None:
        self.ruler.setVisible(self.um is not None)
        if self.um is None:
            return
        width, height = (n * self.um / 1000 for n in self._size)
        self.ruler.setText(
            f"Ruler: the picture would be {width:.1f} × {height:.1f} mm, and a red "
            f"blood cell (7 µm) {7 / self.um:.0f} pixels wide. A glass slide is "
            "26 mm high."
        )
