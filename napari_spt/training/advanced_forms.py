"""Every setting, in forms that are made from the settings classes."""

from itertools import pairwise
from pathlib import Path
from typing import Any

from qtpy.QtCore import Signal
from qtpy.QtWidgets import QComboBox, QHBoxLayout, QPushButton, QVBoxLayout, QWidget

from napari_spt.parts.encoder_dialog import BUTTON, TOOLTIP, EncoderDialog
from napari_spt.parts.widgets import Folded, text
from napari_spt.training.draft import StudyDraft
from napari_spt.training.words import EFFORTS, with_rounds
from spt_core.hints import settings_of
from spt_core.learning.details import LearningDetails
from spt_core.learning.views import ViewSettings
from spt_core.patches.settings import EncodeSettings
from spt_core.studies.study_settings import StudySettings

OF_STUDY = (
    "model", "steps", "pretrain_steps", "batch_size", "learning_rate", "folds",
    "seeds", "ignore_split", "pretrain_once", "patient_from", "standardise",
    "site_batches", "seed", "device", "workers", "patch_method", "patch_arch",
    "patch_epochs", "title",
)  # fmt: skip
OF_ENCODING = (
    "encoder", "weights", "target_mpp", "patch_size", "slide_mpp", "channels",
    "min_tissue", "stain", "allow_upsampling", "precision",
)  # fmt: skip
OF_VIEWS = tuple(name for name in settings_of(ViewSettings) if name != "views")
SETTINGS: dict[str, tuple[type, tuple[str, ...]]] = {
    "advanced": (StudySettings, OF_STUDY),
    "encode": (EncodeSettings, OF_ENCODING),
    "views": (ViewSettings, OF_VIEWS),
    "details": (LearningDetails, tuple(settings_of(LearningDetails))),
}
TITLES = {
    "advanced": "Learning",
    "encode": "Reading slides",
    "views": "Views of a slide",
    "details": "Learning, in detail",
}


class AdvancedForms(QWidget):
    """Every setting with its default and a line that explains it.

    Made when it is opened for the first time.
    """

    opened = Signal()

    def __init__(self, draft: StudyDraft, *parts: str) -> None:
        super().__init__()
        self.draft, self.parts = draft, parts
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
            part: settings_form(SETTINGS[part][0], *SETTINGS[part][1])
            for part in self.parts
        }
        layout = QVBoxLayout(self.content)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(4)
        natives = []
        for part, form in self.forms.items():
            layout.addSpacing(4)
            layout.addWidget(text(f"<b>{TITLES[part]}</b>", is_html=True))
            for row in form:
                native, label = row.native, with_rounds(row.label)
                native.setToolTip(with_rounds(native.toolTip()))
                native.setAccessibleName(with_rounds(native.accessibleName()))
                if isinstance(native, QComboBox):
                    native.setSizeAdjustPolicy(
                        QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon
                    )
                setting = settings_of(SETTINGS[part][0])[row.name]
                if setting.kind is bool:  # which says its own name
                    layout.addWidget(native)
                elif setting.length:  # no room beside its name
                    layout.addWidget(text(label))
                    layout.addWidget(native)
                else:
                    line = QHBoxLayout()
                    line.setSpacing(6)
                    line.addWidget(text(label), stretch=2)
                    line.addWidget(native, stretch=3)
                    layout.addLayout(line)
                layout.addWidget(text(_explained(SETTINGS[part][0], row.name)))

                natives.append(native)
                if (part, row.name) == ("encode", "encoder"):
                    self.all_encoders = QPushButton(BUTTON)
                    self.all_encoders.setToolTip(TOOLTIP)
                    self.all_encoders.clicked.connect(self.show_encoders)
                    layout.addWidget(self.all_encoders)
                    natives.append(self.all_encoders)
        for before, after in pairwise([self.folded.button, *natives]):
            QWidget.setTabOrder(before, after)
        self.is_built = True
        self.fill()
        for part, form in self.forms.items():
            form.changed.connect(lambda _=None, part=part: self._on_form(part))
        self.draft.changed.connect(self.fill)

    def show_encoders(self) -> EncoderDialog:
        """All patch encoders that are known, and how to get them."""
        self.dialog = EncoderDialog(self)
        row = self.forms["encode"]["encoder"]
        self.dialog.chosen.connect(lambda name: setattr(row, "value", name))
        self.dialog.open()
        return self.dialog

    def fill(self) -> None:
        for part, form in self.forms.items():
            cls, names = SETTINGS[part]
            given = {**_defaults(cls, names), **self._effort(part)}
            given |= getattr(self.draft, part)
            with form.changed.blocked():
                form.value = {name: given[name] for name in names}

    def _effort(self, part: str) -> dict[str, Any]:
        return EFFORTS[self.draft.effort][1] if part == "advanced" else {}

    def _on_form(self, part: str) -> None:
        cls, names = SETTINGS[part]
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
    words = with_rounds(setting.hint.help[:1].upper() + setting.hint.help[1:])
    usual = setting.default
    if usual is None:
        usual = setting.hint.automatic
    elif isinstance(usual, bool):
        usual = "yes" if usual else "no"
    elif setting.hint.choice_labels:
        usual = dict(
            zip(setting.hint.choices, setting.hint.choice_labels, strict=True)
        )[usual]
    elif isinstance(usual, tuple):
        between = " to " if setting.hint.is_range else ", "
        usual = between.join(f"{part:g}" for part in usual)
    return f"{words}. Usually: {usual}." if usual not in (None, "") else f"{words}."
