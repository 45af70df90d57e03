"""The page "Goal": what the study is for, how thorough it is, and every setting."""

from itertools import pairwise
from pathlib import Path
from typing import Any

from qtpy.QtCore import Signal
from qtpy.QtWidgets import (
    QButtonGroup,
    QComboBox,
    QHBoxLayout,
    QRadioButton,
    QSizePolicy,
    QVBoxLayout,
    QWidget,
)

from napari_spt.parts.widgets import Folded, text
from napari_spt.training.draft import StudyDraft
from napari_spt.training.rows import PathRow
from napari_spt.training.words import EFFORTS, GOALS
from spt_core.hints import settings_of
from spt_core.learning.views import ViewSettings
from spt_core.patches.settings import EncodeSettings
from spt_core.studies.study_settings import Goal, StudySettings

OF_STUDY = (
    "model", "steps", "pretrain_steps", "batch_size", "learning_rate", "folds",
    "seeds", "ignore_split", "pretrain_once", "patient_from", "seed", "device",
    "workers", "patch_method", "patch_arch", "patch_epochs", "title",
)  # fmt: skip
OF_ENCODING = (
    "encoder", "weights", "target_mpp", "patch_size", "slide_mpp", "min_tissue",
    "stain", "allow_upsampling", "precision",
)  # fmt: skip
OF_VIEWS = tuple(name for name in settings_of(ViewSettings) if name != "views")


class GoalPanel(QWidget):
    def __init__(self, draft: StudyDraft) -> None:
        super().__init__()
        self.draft = draft
        box = QVBoxLayout(self)
        box.setContentsMargins(0, 4, 0, 0)
        box.setSpacing(4)
        self.group = QButtonGroup(self)
        self.buttons: dict[str, QRadioButton] = {}
        for goal, words in GOALS.items():
            button = QRadioButton(words.title)
            button.setToolTip(words.says)
            says = text(words.says)
            says.setIndent(20)
            self.group.addButton(button)
            self.buttons[goal] = button
            box.addWidget(button)
            box.addWidget(says)
            button.clicked.connect(lambda _=False, goal=goal: draft.set(goal=goal))
        self.init = PathRow(
            "Begin from this model",
            "No model chosen.",
            is_folder=False,
            tooltip="A model that was trained before: model.safetensors of a study",
            kinds="Models (*.safetensors)",
        )
        self.init.chosen.connect(lambda path: draft.set(init=path))
        box.addWidget(self.init)
        box.addSpacing(6)
        self.effort = QComboBox()
        self.effort.setAccessibleName("How thorough")
        self.effort.setToolTip(
            "A large model with a graphics card, a small one without"
        )
        self.effort.setSizePolicy(
            QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred
        )
        self.effort.setSizeAdjustPolicy(
            QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon
        )
        for name, (words, _) in EFFORTS.items():
            self.effort.addItem(words, name)
        self.effort.activated.connect(
            lambda at: draft.set(effort=self.effort.itemData(at))
        )
        box.addWidget(text("<b>How thorough</b>"))
        box.addWidget(self.effort)
        self.doubt = text("", "What is missing for this goal")
        box.addWidget(self.doubt)
        self.advanced = AdvancedForms(draft)
        box.addWidget(self.advanced)
        draft.changed.connect(self.refresh)
        self.refresh()

    def refresh(self) -> None:
        draft = self.draft
        self.buttons[draft.aim.value].setChecked(True)
        self.init.show_path(draft.init)
        self.init.setVisible(draft.aim is Goal.FINETUNE)
        self.effort.setCurrentIndex(self.effort.findData(draft.effort))
        problem = draft.problem() if draft.has_data else ""
        self.doubt.setText(problem)
        self.doubt.setVisible(bool(problem))


class AdvancedForms(QWidget):
    """Every setting with its default and a line that explains it.

    Made when it is opened for the first time.
    """

    opened = Signal()

    def __init__(self, draft: StudyDraft) -> None:
        super().__init__()
        self.draft = draft
        self.is_built = False
        self.content = QWidget()
        self.folded = Folded("Advanced", self.content)
        box = QVBoxLayout(self)
        box.setContentsMargins(0, 0, 0, 0)
        box.addWidget(self.folded)
        self.folded.button.toggled.connect(self._on_toggled)

    def open(self, is_open: bool = True) -> None:
        self.folded.open(is_open)

    def _on_toggled(self, is_open: bool) -> None:
        if is_open:
            self.build()
            self.opened.emit()

    def build(self) -> None:
        if self.is_built:
            return
        from napari_spt.parts.forms import settings_form

        self.forms = {
            "advanced": settings_form(StudySettings, *OF_STUDY),
            "encode": settings_form(EncodeSettings, *OF_ENCODING),
            "views": settings_form(ViewSettings, *OF_VIEWS),
        }
        self.classes: dict[str, tuple[type, tuple[str, ...]]] = {
            "advanced": (StudySettings, OF_STUDY),
            "encode": (EncodeSettings, OF_ENCODING),
            "views": (ViewSettings, OF_VIEWS),
        }
        layout = QVBoxLayout(self.content)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(4)
        natives = []
        titles = {
            "advanced": "Learning",
            "encode": "Reading slides",
            "views": "Views of a slide",
        }
        for part, form in self.forms.items():
            layout.addSpacing(4)
            layout.addWidget(text(f"<b>{titles[part]}</b>"))
            for row in form:
                native = row.native
                if isinstance(native, QComboBox):
                    native.setSizeAdjustPolicy(
                        QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon
                    )
                name = text(row.label)
                line = QHBoxLayout()
                line.setSpacing(6)
                line.addWidget(name, stretch=2)
                line.addWidget(native, stretch=3)
                layout.addLayout(line)
                layout.addWidget(text(_explained(self.classes[part][0], row.name)))
                natives.append(native)
        for before, after in pairwise([self.folded.button, *natives]):
            QWidget.setTabOrder(before, after)
        self.is_built = True
        self.fill()
        for part, form in self.forms.items():
            form.changed.connect(lambda _=None, part=part: self._on_form(part))
        self.draft.changed.connect(self.fill)

    def fill(self) -> None:
        for part, form in self.forms.items():
            cls, names = self.classes[part]
            given = {**_defaults(cls, names), **self._effort(part)}
            given |= getattr(self.draft, part)
            with form.changed.blocked():
                form.value = {name: given[name] for name in names}

    def _effort(self, part: str) -> dict[str, Any]:
        return EFFORTS[self.draft.effort][1] if part == "advanced" else {}

    def _on_form(self, part: str) -> None:
        cls, names = self.classes[part]
        usual = {**_defaults(cls, names), **self._effort(part)}
        given = {
            name: str(value) if isinstance(value, Path) else value
            for name, value in self.forms[part].value.items()
            if value != usual[name]
        }
        self.draft.set(**{part: given})


def _defaults(cls: type, names: tuple[str, ...]) -> dict[str, Any]:
    known = settings_of(cls)
    return {name: known[name].default for name in names}


def _explained(cls: type, name: str) -> str:
    setting = settings_of(cls)[name]
    words = setting.hint.help[:1].upper() + setting.hint.help[1:]
    usual = setting.default
    if usual is None:
        usual = setting.hint.automatic
    elif isinstance(usual, bool):
        usual = "yes" if usual else "no"
    elif isinstance(usual, tuple):
        usual = " to ".join(f"{part:g}" for part in usual)
    return f"{words}. Usually: {usual}." if usual not in (None, "") else f"{words}."
