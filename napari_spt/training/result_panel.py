"""What a study found: words first, then the table, the mistakes, and what to doubt."""

from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from qtpy.QtCore import QUrl, Signal
from qtpy.QtGui import QDesktopServices
from qtpy.QtWidgets import (
    QDialog,
    QGridLayout,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from napari_spt.analysis.model_panel import CardDialog
from napari_spt.parts.background import run_in_background
from napari_spt.parts.notices import show_error
from napari_spt.parts.tool_style import table_style
from napari_spt.parts.widgets import Section, text
from napari_spt.slide_map.slide_list import SlideList
from napari_spt.training.calibration_plot import CalibrationPlot
from napari_spt.training.handing_over import analyse_slide, map_slides, use_model
from napari_spt.training.matrix import Matrix
from napari_spt.training.model_terms import TermsDialog, encoder_words, terms_words
from napari_spt.training.result_words import (
    calibration_words,
    in_window,
    sentences,
    site_words,
)
from napari_spt.training.score_table import ScoreTable
from napari_spt.training.study_slides import StudySlides, study_slides, study_sources
from spt_core.errors import InputError
from spt_core.insight.model_words import read_model_words
from spt_core.patches.encoder_card import read_encoder_card
from spt_core.studies.study_report import StudyReport, read_study_report

if TYPE_CHECKING:
    from napari.viewer import Viewer

EMPTY = (
    "The result of a study is shown here when it is finished: whether learning was "
    "better than averaging patches, and on which slides it was wrong."
)
LIST_HELP = (
    "A click opens the slide and shows where the finished model looks. The answer here "
    "is of a model that had not learned from this patient; the finished one has."
)


class ResultPanel(QWidget):
    """The report of one study, to look at and to go on from."""

    # An encoder of patches, to be used in a new study.
    encoder_taken = Signal(str)

    def __init__(self, viewer: "Viewer") -> None:
        super().__init__()
        self.viewer = viewer
        self.report: StudyReport | None = None
        self.slides = StudySlides({}, {})
        self._cell: tuple[int, int] | None = None
        self._make()
        self._lay_out()
        self._connect()
        self._show()

    def _make(self) -> None:
        self.empty = text(EMPTY)
        self.headline = text("", "Result", is_html=True)
        self.words = text("", "The result in words")
        self.use_model = QPushButton("Use this model")
        self.use_model.setToolTip("Open the slide analysis with this model")
        self.use_encoder = QPushButton("Use it in a new study")
        self.use_encoder.setToolTip("Read slides with what was learned here")
        self.about = QPushButton("About the model")
        self.about.setToolTip("What it was trained for, on what")
        self.terms = QPushButton("Licence terms")
        self.terms.setToolTip("What may be done with the model")
        self.open_report = QPushButton("Open the report")
        self.open_report.setToolTip("All tables and figures, in the browser")
        self.see_map = QPushButton("Map of its slides")
        self.see_map.setToolTip("Which slides this model finds alike")
        self.table = ScoreTable()
        self.matrix = Matrix()
        self.matrix_says = text("Rows: the label. Columns: the answer.")
        self.cell_says, self.cell = text(""), SlideList("Slides of the chosen cell")
        self.calibration = CalibrationPlot()
        self.calibration_says = text("", "Whether the numbers can be believed")
        self.site_says = text("", "What the model knows of the site")
        self.rest = text("", "How it came about")

    def _lay_out(self) -> None:
        buttons = QWidget()
        grid = QGridLayout(buttons)
        grid.setContentsMargins(0, 0, 0, 0)
        grid.addWidget(self.use_model, 0, 0, 1, 2)
        grid.addWidget(self.use_encoder, 1, 0, 1, 2)
        grid.addWidget(self.see_map, 2, 0)
        grid.addWidget(self.open_report, 2, 1)
        grid.addWidget(self.about, 3, 0)
        grid.addWidget(self.terms, 3, 1)
        self.buttons = buttons
        self.scores = Section("Beside simpler methods", self.table)
        self.mistakes = Section(
            "Where it was wrong",
            self.matrix_says,
            self.matrix,
            self.cell_says,
            self.cell,
        )
        self.sure = Section(
            "How far to believe it", self.calibration, self.calibration_says
        )
        self.site = Section("What it knows of the site", self.site_says)
        self.how = Section("How it came about", self.rest)
        box = QVBoxLayout(self)
        box.setContentsMargins(0, 0, 0, 0)
        box.setSpacing(6)
        for widget in (
            self.empty,
            self.headline,
            self.words,
            self.buttons,
            self.scores,
            self.site,
            self.mistakes,
            self.sure,
            self.how,
        ):
            box.addWidget(widget)

    def _connect(self) -> None:
        self.use_model.clicked.connect(self._use_model)
        self.use_encoder.clicked.connect(self._use_encoder)
        self.see_map.clicked.connect(self._see_map)
        self.open_report.clicked.connect(self._open_report)
        self.about.clicked.connect(self.show_card)
        self.terms.clicked.connect(self.show_terms)
        self.matrix.chosen.connect(self._choose_cell)
        self.cell.opened.connect(self._open_slide)

    # What is shown

    def show(self, study_folder: Path | None = None) -> None:
        """Show a study's result; without a folder, as every widget is shown."""
        if study_folder is None:
            super().show()
            return
        try:
            self.report = read_study_report(study_folder)
        except InputError as error:
            self.report = None
            self._show()
            self.empty.setText(str(error))
            return
        self.slides, self._cell = StudySlides({}, {}), None
        self._show()
        folder = Path(study_folder)

        def take(found: StudySlides) -> None:
            if self.report is not None and self.report.folder == folder:
                self.slides = found
                if self._cell is not None:
                    self._choose_cell(*self._cell)

        run_in_background(
            lambda: study_slides(folder), take, lambda _error: None, owner=self
        )

    def _show(self) -> None:
        report = self.report
        self.empty.setText(EMPTY)
        self.empty.setVisible(report is None)
        for one in (self.headline, self.words, self.buttons, self.how):
            one.setVisible(report is not None)
        measured = report is not None and bool(report.answers)
        for one in (self.scores, self.mistakes):
            one.setVisible(measured)
        has_bins = measured and report is not None and report.reliability is not None
        self.sure.setVisible(has_bins)
        self.site.setVisible(measured and report.site_knn is not None)
        self.cell.hide()
        if report is None:
            self.cell_says.setText("")
            return
        self.headline.setText(
            '<span style="font-size:large"><b>'
            f"{escape(in_window(report.says[0]))}</b></span>"
        )
        first, rest = sentences(report)
        self.words.setText("\n".join(first))
        self.words.setVisible(bool(first))
        self.rest.setText("\n\n".join(rest))
        self.how.setVisible(bool(rest))
        self.open_report.setEnabled(report.html is not None)
        has_model = report.model is not None
        for one in (self.about, self.see_map):
            one.setVisible(has_model)
        self.use_model.setVisible(has_model)
        self.use_encoder.setVisible(report.encoder is not None)
        self.terms.setEnabled(has_model or report.encoder is not None)
        self.cell_says.setText("Click a number to list its slides.")
        if measured:
            self._show_scores(report)

    def _show_scores(self, report: StudyReport) -> None:
        self.table.show_rows(report.rows)
        self._take_room()
        self.matrix.show_counts(report.confusion(), report.classes)
        if report.reliability is not None:
            self.calibration.show_bins(report.reliability)
            self.calibration_says.setText(calibration_words(report))
        self.site_says.setText(site_words(report))

    def resizeEvent(self, event) -> None:
        super().resizeEvent(event)
        self._take_room()

    def _take_room(self) -> None:
        style = table_style()
        for table in (self.table, self.matrix):
            if table.styleSheet() != style:
                table.setStyleSheet(style)
                self.matrix.take_room()
        self.table.take_room()

    def _choose_cell(self, row: int, column: int) -> None:
        if self.report is None:
            return
        self._cell = (row, column)
        label, said = self.report.classes[row], self.report.classes[column]
        found = self.report.slides_of(label, said)
        self._listed = found
        self.cell.setVisible(bool(found))
        many = "1 slide" if len(found) == 1 else f"{len(found)} slides"
        help_words = f" {LIST_HELP}" if found else ""
        self.cell_says.setText(
            f"{many} labelled {label} and answered {said}.{help_words}"
        )
        own, other = self.report.classes.index(label), self.report.classes.index(said)
        words = []
        for one in found:
            share = f"{label} {one.shares[own]:.0%}"
            if said != label:
                share = f"{said} {one.shares[other]:.0%}, {share}"
            words.append(f"{self.slides.name(one.slide)} · {share}")
        self.cell.show_slides(range(len(found)), words)

    # Going on from it

    def _open_slide(self, number: int) -> None:
        if self.report is None:
            return
        slide = self._listed[number].slide
        path = self.slides.file(slide)
        if path is None:
            show_error(
                f"There is no slide file of {self.slides.name(slide)} where this study "
                "looks for slides. Open it with “Open slide…”."
            )
            return
        self.opening = analyse_slide(
            self.viewer, path, self.report.model, self.slides.site(slide)
        )

    def _use_model(self) -> None:
        if self.report is not None and self.report.model is not None:
            use_model(self.viewer, self.report.model)

    def _use_encoder(self) -> None:
        if self.report is not None and self.report.encoder is not None:
            self.encoder_taken.emit(str(self.report.encoder))

    def _see_map(self) -> None:
        if self.report is not None:
            try:
                map_slides(self.viewer, study_sources(self.report.folder))
            except (InputError, OSError) as error:
                show_error(str(error))

    def _open_report(self) -> None:
        if self.report is not None and self.report.html is not None:
            QDesktopServices.openUrl(QUrl.fromLocalFile(str(self.report.html)))

    def show_card(self) -> QDialog | None:
        if self.report is None or self.report.model is None:
            return None
        try:
            words = read_model_words(self.report.model)
        except InputError as error:
            show_error(str(error))
            return None
        self.card = CardDialog(words, self)
        self.card.open()
        return self.card

    def show_terms(self) -> QDialog | None:
        """The terms of the model: those of what it sees through travel with it."""
        report = self.report
        try:
            if report is not None and report.model is not None:
                words = terms_words(read_model_words(report.model).card)
            elif report is not None and report.encoder is not None:
                words = encoder_words(read_encoder_card(report.encoder))
            else:
                return None
        except (InputError, OSError) as error:
            show_error(str(error))
            return None
        self.licence = TermsDialog(words, self)
        self.licence.open()
        return self.licence
