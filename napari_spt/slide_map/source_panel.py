"""What the map is made of: features, a model or none, labels, and the slides."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from qtpy.QtCore import Signal
from qtpy.QtWidgets import (
    QComboBox,
    QFileDialog,
    QGridLayout,
    QPushButton,
    QSizePolicy,
    QWidget,
)

from napari_spt.analysis.model_names import labels as model_labels
from napari_spt.analysis.model_names import named_model
from napari_spt.analysis.model_panel import BUNDLED_WORDS, recent_models
from napari_spt.parts.notices import show_error
from napari_spt.parts.settings import remember, remembered
from napari_spt.parts.widgets import plain_tip, text
from spt_core.bundled import slide_model_path
from spt_core.errors import InputError
from spt_core.insight.model_words import read_model_words
from spt_core.tokens import layout
from spt_core.tokens.finding import features_in

MEAN_WORDS = "No model: mean of patches"
FILE_WORDS = "Choose a file…"
FEATURES_WORDS = "none chosen"
LABELS_WORDS = "none"
LABELS_FILES = "Tables (*.csv *.tsv *.txt *.xlsx)"


@dataclass(frozen=True)
class Sources:
    """
    Attributes
    ----------
    model
        None takes the mean of each slide's patches.
    labels, slides
        None where there are none, and where slides are looked for beside the features.
    """

    features: Path | None = None
    model: Path | None = None
    labels: Path | None = None
    slides: Path | None = None


class SourcePanel(QWidget):
    """Three choices of files or folders, and one of a model."""

    features_chosen = Signal()
    model_chosen = Signal()
    labels_chosen = Signal()
    slides_chosen = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.sources = Sources()
        grid = QGridLayout(self)
        grid.setContentsMargins(0, 0, 0, 0)
        grid.setColumnStretch(1, 1)
        self.features = self._row(
            grid, 0, "Features", "A folder with one file of features per slide"
        )
        self.model = QComboBox()
        self.model.setAccessibleName("Model that compares the slides")
        self.model.setToolTip("By whose eyes slides are alike")
        self.model.setSizePolicy(
            QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred
        )
        self.model.setSizeAdjustPolicy(
            QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon
        )
        self.model.setMinimumContentsLength(9)
        grid.addWidget(text("Model"), 1, 0)
        grid.addWidget(self.model, 1, 1, 1, 2)
        self.labels = self._row(
            grid, 2, "Labels", "A table with the columns slide, label and any others"
        )
        self.slides = self._row(
            grid, 3, "Slides", "The folder of the slides, to show and to open them"
        )
        self.features.button.clicked.connect(self.ask_features)
        self.labels.button.clicked.connect(self._ask_labels)
        self.slides.button.clicked.connect(self._ask_slides)
        self.model.activated.connect(self._on_model)
        self._fill_models()
        self._show()

    def _row(self, grid: QGridLayout, row: int, title: str, tip: str) -> "_Chosen":
        chosen = _Chosen(title, tip)
        grid.addWidget(text(title), row, 0)
        grid.addWidget(chosen.words, row, 1)
        grid.addWidget(chosen.button, row, 2)
        return chosen

    # Models

    def _fill_models(self) -> None:
        self.model.clear()
        self.model.addItem(MEAN_WORDS, "")
        with suppress(InputError):
            self.model.addItem(BUNDLED_WORDS, str(slide_model_path()))
        named = []
        for path in recent_models():
            try:
                named.append(named_model(read_model_words(path)))
            except (InputError, OSError):
                continue
        for one, words in zip(named, model_labels(named), strict=True):
            self.model.addItem(words, str(one.path))
        self.model.addItem(FILE_WORDS, None)
        self._show_model()

    def _show_model(self) -> None:
        wanted = "" if self.sources.model is None else str(self.sources.model)
        at = self.model.findData(wanted)
        if at < 0:
            at = self.model.count() - 1
            self.model.insertItem(at, Path(wanted).parent.name, wanted)
        self.model.setCurrentIndex(at)

    def _on_model(self, index: int) -> None:
        path = self.model.itemData(index)
        if path is None:
            self._show_model()
            self.dialog = _dialog(self, "Choose a model", Path(remembered("model", "")))
            self.dialog.setNameFilters(["Models (*.safetensors)", "All files (*)"])
            self.dialog.setFileMode(QFileDialog.FileMode.ExistingFile)
            self.dialog.fileSelected.connect(self.choose_model)
            self.dialog.open()
            return
        self.choose_model(path)

    def choose_model(self, path: str | Path) -> None:
        """Take a model file, or "" for none; a sentence where it is none."""
        if path:
            try:
                read_model_words(path)
            except InputError as error:
                show_error(str(error))
                self._show_model()
                return
        self._change(model=Path(path) if path else None)
        self._show_model()
        self.model_chosen.emit()

    # Files and folders

    def ask_features(self) -> None:
        self.dialog = _dialog(
            self, "Choose a folder of features", Path(remembered("map_features", ""))
        )
        self.dialog.setFileMode(QFileDialog.FileMode.Directory)
        self.dialog.fileSelected.connect(self.choose_features)
        self.dialog.open()

    def choose_features(self, folder: str | Path) -> None:
        """Take a folder; labels that lie beside it are taken too."""
        folder = Path(folder)
        try:
            # Of a study's folder, those that lie in it.
            inside = (folder, folder / "features")
            found = next((one for one in inside if features_in(one)), None)
        except InputError as error:
            show_error(str(error))
            return
        if found is None:
            show_error(
                f"{folder} holds no feature files (*{layout.ENDING}). A study of "
                "the Train dock makes them, in its folder “features”, and so does "
                "“spt encode”."
            )
            return
        folder = found
        remember("map_features", str(folder))
        beside = (folder.parent / name for name in ("labels.csv", "labels.xlsx"))
        labels = next((one for one in beside if one.is_file()), None)
        self._change(features=folder, labels=labels, slides=None)
        self.features_chosen.emit()

    def _ask_labels(self) -> None:
        self.dialog = _dialog(self, "Choose a table of labels", self.sources.labels)
        self.dialog.setNameFilters([LABELS_FILES, "All files (*)"])
        self.dialog.setFileMode(QFileDialog.FileMode.ExistingFile)
        self.dialog.fileSelected.connect(self.choose_labels)
        self.dialog.open()

    def choose_labels(self, path: str | Path) -> None:
        self._change(labels=Path(path))
        self.labels_chosen.emit()

    def _ask_slides(self) -> None:
        self.dialog = _dialog(self, "Choose the folder of slides", self.sources.slides)
        self.dialog.setFileMode(QFileDialog.FileMode.Directory)
        self.dialog.fileSelected.connect(self.choose_slides)
        self.dialog.open()

    def choose_slides(self, folder: str | Path) -> None:
        self._change(slides=Path(folder))
        self.slides_chosen.emit()

    def use(self, sources: Sources) -> None:
        """Take all at once, without a word to anybody."""
        self.sources = sources
        self._show_model()
        self._show()

    def _change(self, **parts: Path | None) -> None:
        self.sources = Sources(**{**vars(self.sources), **parts})
        self._show()

    def _show(self) -> None:
        found = self.sources
        self.features.show_path(found.features, FEATURES_WORDS)
        self.labels.show_path(found.labels, LABELS_WORDS)
        self.slides.show_path(found.slides, "beside the features")
        for one in (self.labels, self.slides):
            one.button.setEnabled(found.features is not None)


class _Chosen:
    """A path in few words, with a button to choose another."""

    def __init__(self, title: str, tip: str) -> None:
        self.words = text("", title)
        self.button = QPushButton("Choose…")
        self.button.setToolTip(tip)
        self.button.setAccessibleName(f"Choose: {title.lower()}")

    def show_path(self, path: Path | None, otherwise: str) -> None:
        self.words.setText(otherwise if path is None else _called(path))
        self.words.setToolTip("" if path is None else plain_tip(str(path)))


def _called(path: Path) -> str:
    return f"{path.parent.name}/{path.name}" if path.parent.name else path.name


def _dialog(parent: QWidget, title: str, start: Path | None) -> QFileDialog:
    folder = "" if start is None else str(start.parent)
    return QFileDialog(parent, title, folder)
