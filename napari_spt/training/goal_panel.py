"""The page "Goal": what the study is for, and how thorough it is."""

from qtpy.QtWidgets import (
    QButtonGroup,
    QComboBox,
    QRadioButton,
    QSizePolicy,
    QVBoxLayout,
    QWidget,
)

from napari_spt.parts.widgets import text
from napari_spt.training.advanced_forms import AdvancedForms
from napari_spt.training.draft import StudyDraft
from napari_spt.training.rows import PathRow
from napari_spt.training.words import EFFORTS, GOALS
from spt_core.studies.study_settings import Goal


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
        box.addWidget(text("<b>How thorough</b>", is_html=True))
        box.addWidget(self.effort)
        self.doubt = text("", "What is missing for this goal")
        box.addWidget(self.doubt)
        self.advanced = AdvancedForms(draft, "advanced", "details", "encode")
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
