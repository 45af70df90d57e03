"""The controls of the "Slide analysis" dock, in one column; no behaviour."""

from typing import TYPE_CHECKING

from qtpy.QtCore import Qt
from qtpy.QtWidgets import (
    QCheckBox,
    QComboBox,
    QFrame,
    QHBoxLayout,
    QProgressBar,
    QPushButton,
    QScrollArea,
    QVBoxLayout,
    QWidget,
)

from napari_spt.analysis.advanced import Advanced
from napari_spt.analysis.model_choice import ModelChoice
from napari_spt.analysis.pixel_size import PixelSizeQuestion
from napari_spt.analysis.questions import Questions
from napari_spt.analysis.reading import ReadingPanel
from napari_spt.analysis.regions import RegionStrip
from napari_spt.analysis.view_controls import ViewControls
from napari_spt.parts.widgets import Column, Folded, Section, text

if TYPE_CHECKING:
    from napari.viewer import Viewer

    from napari_spt.analysis.display import Shown

NOT_FOR_DIAGNOSIS = "For research, not for diagnosis."
WELCOME = (
    "Open a slide, press one button, and see where a model looks and what it says."
)


class AnalysisForm(QWidget):
    """One column, from the slide at the top to the report at the bottom."""

    shown: "Shown | None"

    def __init__(self, viewer: "Viewer") -> None:
        super().__init__()
        self.viewer = viewer
        self._make_controls()
        self._lay_out()

    def _make_controls(self) -> None:
        self.open_button = QPushButton("Open slide…")
        self.sample_button = QPushButton("Try the sample")
        self.sample_button.setToolTip("A synthetic slide, painted for trying this out")
        self.welcome = text(WELCOME)
        self.slide = QComboBox()
        self.slide.setAccessibleName("Slide")
        self.slide.setToolTip("The slide to analyse")
        self.slide.setSizeAdjustPolicy(
            QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon
        )
        self.slide_facts = text("", "About the slide")
        self.pixel_size = PixelSizeQuestion()
        self.pixel_size.hide()
        self.model = ModelChoice()
        self.analyse = QPushButton("Analyse")
        self.analyse.setObjectName("spt_primary")
        self.analyse.setToolTip("Look at the slide with this model")
        self.cancel = QPushButton("Cancel")
        self.cancel.setToolTip("Stop; what was found so far stays")
        self.cancel.hide()
        self.bar = QProgressBar()
        self.bar.setAccessibleName("Progress")
        self.bar.setTextVisible(False)
        self.progress = text("", "Progress in words")
        self.trouble = text("", "What went wrong")
        self.map_tissue = QPushButton("Map the tissue without a model")
        self.map_tissue.setToolTip(
            "Kinds of tissue, places like no others, and look-alikes need no model"
        )
        self.reading = ReadingPanel()
        self.tissue_words = text("", "What the slide is made of")
        self.controls = ViewControls()
        self.strip = RegionStrip()
        self.strip.tab_after = [self.map_tissue]
        self.strip_words = text()
        self.questions = Questions(self.viewer, lambda: self.shown, user=id(self))
        self.export = QPushButton("Export report…")
        self.export.setToolTip("Write what was found, to read it elsewhere")
        self.names_slide = QCheckBox("Include the slide's name")
        self.names_slide.setToolTip("Otherwise the report calls it by a pseudonym")
        self.advanced = Advanced()

    def _lay_out(self) -> None:
        column = Column()
        self.column = QVBoxLayout(column)
        self.column.setContentsMargins(10, 8, 10, 10)
        self.column.setSpacing(6)
        self.empty = QWidget()
        box = QVBoxLayout(self.empty)
        box.setContentsMargins(0, 12, 0, 0)
        box.setSpacing(10)
        for widget in (self.welcome, self.open_button, self.sample_button):
            box.addWidget(widget)
        buttons = QWidget()
        row = QHBoxLayout(buttons)
        row.setContentsMargins(0, 6, 0, 0)
        row.addWidget(self.analyse, stretch=3)
        row.addWidget(self.cancel, stretch=1)
        self.choice = Section("Slide", self.slide, self.slide_facts, self.pixel_size)
        self.model_section = Section("Model", self.model)
        self.running = QWidget()
        box = QVBoxLayout(self.running)
        box.setContentsMargins(0, 0, 0, 0)
        box.addWidget(self.bar)
        box.addWidget(self.progress)
        self.answer_section = Section(
            "What the model says", self.reading, self.tissue_words
        )
        self.strip_section = Section("Regions", self.strip_words, self.strip)
        self.controls_section = Section("On the slide", self.controls)
        self.questions_section = Section("Questions", self.questions)
        self.export_section = Section("Take it with you", self.export, self.names_slide)
        self.advanced_part = Folded("Advanced", self.advanced)
        self.footer = text(NOT_FOR_DIAGNOSIS)
        for widget in (
            self.empty,
            self.choice,
            self.model_section,
            buttons,
            self.running,
            self.trouble,
            self.map_tissue,
            self.answer_section,
            self.strip_section,
            self.controls_section,
            self.questions_section,
            self.export_section,
            self.advanced_part,
            self.footer,
        ):
            self.column.addWidget(widget)
        self.column.addStretch(1)
        scroll = QScrollArea()
        scroll.setWidgetResizable(True)
        scroll.setFrameShape(QFrame.Shape.NoFrame)
        scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        scroll.setWidget(column)
        self.scroll = scroll
        column.narrowest.connect(self._keep_wide)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.addWidget(scroll)
        self._keep_wide(280)

    def _keep_wide(self, width: int) -> None:
        """Never so narrow that something is cut off, however large the text."""
        width = max(280, width) + self.scroll.verticalScrollBar().sizeHint().width()
        if width != self.scroll.minimumWidth():
            self.scroll.setMinimumWidth(width)
