"""The studies that are known here, and which of them is shown."""

from collections.abc import Iterable
from pathlib import Path

from qtpy.QtCore import Signal
from qtpy.QtWidgets import QComboBox, QHBoxLayout, QSizePolicy, QToolButton, QWidget

from napari_spt.parts.widgets import text
from napari_spt.training.reading import Phase
from spt_core.engine.study_queue import QueuedStudy

NEW = "New study"


class StudyList(QWidget):
    """A list of studies, those that run or wait marked."""

    chosen = Signal(str)
    new_asked = Signal()
    forgotten = Signal(str)

    def __init__(self) -> None:
        super().__init__()
        self.list = QComboBox()
        self.list.setAccessibleName("Study")
        self.list.setToolTip("The study that is shown; several wait for one another")
        self.list.setSizeAdjustPolicy(
            QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon
        )
        self.list.setSizePolicy(
            QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred
        )
        self.forget_button = QToolButton()
        self.forget_button.setText("✕")
        self.forget_button.setAccessibleName("Remove this study from the list")
        self.forget_button.setToolTip(
            "Remove it from the list; its folder stays as it is"
        )
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(4)
        row.addWidget(text("<b>Study</b>", is_html=True))
        row.addWidget(self.list, stretch=1)
        row.addWidget(self.forget_button)
        self.list.activated.connect(self._on_activated)
        self.forget_button.clicked.connect(
            lambda: self.forgotten.emit(self.list.currentData() or "")
        )
        self._shown: list[tuple[str, str]] = []

    def show_studies(
        self,
        studies: Iterable[QueuedStudy],
        study: Path | None,
        phase: Phase | None = None,
    ) -> None:
        rows = [(NEW, "")]
        for one in list(studies)[::-1]:
            path = Path(one.path)
            words = path.name
            if one.wanted and (path != study or phase is Phase.WAITING):
                words += " (waits or runs)"
            elif path == study and phase is Phase.RUNNING:
                words += " (runs)"
            rows.append((words, str(path)))
        if rows != self._shown:
            self._shown = rows
            self.list.clear()
            for words, path in rows:
                self.list.addItem(words, path)
        at = self.list.findData(str(study)) if study else 0
        self.list.setCurrentIndex(max(at, 0))
        at_work = phase is not None and phase.is_at_work
        self.forget_button.setEnabled(study is not None and not at_work)
        self.setVisible(len(rows) > 1)

    def _on_activated(self, at: int) -> None:
        path = self.list.itemData(at)
        if path:
            self.chosen.emit(path)
        else:
            self.new_asked.emit()
