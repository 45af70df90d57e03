"""The study that is being put together in the dock."""

import tempfile
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from qtpy.QtCore import QObject, Signal

from napari_spt.parts.settings import remember, remembered
from napari_spt.training.labels_source import LabelsSource
from napari_spt.training.words import EFFORTS
from spt_core.errors import InputError
from spt_core.learning.details import LearningDetails
from spt_core.learning.views import ViewSettings
from spt_core.patches.settings import EncodeSettings
from spt_core.studies.study_settings import Goal, StudySettings

KEY = "training"
_KEPT = ("slides", "features", "goal", "init", "out", "effort")
_PARTS = ("advanced", "encode", "views", "details")


class StudyDraft(QObject):
    """What was chosen so far; ``changed`` follows every change.

    Attributes
    ----------
    slides, features, init, out
        Paths; "" where none is chosen. An empty ``out`` is one beside the slides.
    goal
        "" takes what suits the labels.
    labels
        A file with its columns, or a table.
    advanced, encode, views, details
        Settings by name that differ from their defaults.
    """

    changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.slides = self.features = self.goal = self.init = self.out = ""
        self.effort = "fits"
        self.advanced: dict[str, Any] = {}
        self.encode: dict[str, Any] = {}
        self.views: dict[str, Any] = {}
        self.details: dict[str, Any] = {}
        self.labels = LabelsSource()
        self._folder: tempfile.TemporaryDirectory | None = None

    # Changing

    def set(self, **values: Any) -> None:
        """Change some of it; told once, and only where it is a change."""
        different = {n: v for n, v in values.items() if getattr(self, n) != v}
        if not different:
            return
        if {"slides", "features"} & set(different):
            self.out = ""
        for name, value in different.items():
            setattr(self, name, value)
        self.keep()
        self.changed.emit()

    def set_labels(self, labels: LabelsSource) -> None:
        self.labels = labels
        self.keep()
        self.changed.emit()

    def set_views(self, settings: ViewSettings) -> None:
        """Take the parameters of views."""
        self.set(views=_differing(settings, ViewSettings()))

    @property
    def view_settings(self) -> ViewSettings:
        return ViewSettings(**self.views)

    # Reading

    @property
    def has_data(self) -> bool:
        return bool(self.slides or self.features)

    @property
    def aim(self) -> Goal:
        if self.goal:
            return Goal(self.goal)
        return Goal.BOTH if self.labels.is_given else Goal.PRETRAIN

    @property
    def out_folder(self) -> Path | None:
        """Where the study will be; beside the slides where nothing else is said."""
        if self.out:
            return Path(self.out)
        base = self.slides or self.features
        if not base:
            return None
        return free_folder(Path(base))

    def problem(self) -> str:
        """What is missing, a sentence; "" where nothing is."""
        if not self.has_data:
            return "Choose a folder of slides, or try the sample."
        if self.aim is Goal.PATCHES and not self.slides:
            return "This goal needs the slides themselves: choose their folder."
        if self.aim.needs_labels and not self.labels.is_given:
            return "This goal learns from labels: give them under Data."
        if self.aim is Goal.FINETUNE and not self.init:
            return "Choose the model to begin from, under Goal."
        return self.labels.problem()

    def settings(self, *, labels: str | None = None) -> StudySettings:
        """As the command takes them.

        Parameters
        ----------
        labels
            Where labels of a table are, or will be written.
        """
        if problem := self.problem():
            raise InputError(problem)
        out = self.out_folder
        effort = EFFORTS[self.effort][1]
        return StudySettings(
            out=str(out),
            goal=self.aim.value,
            slides=self.slides or None,
            features=self.features or None,
            labels=labels or self.labels.as_it_is or self._labels_in(out),
            init=self.init or None if self.aim in _TAKES_INIT else None,
            encode=EncodeSettings(
                **{n: Path(v) if n == "weights" else v for n, v in self.encode.items()}
            ),
            views=ViewSettings(**self.views),
            details=LearningDetails(**self.details),
            **{**effort, **self.advanced},
        )

    def checked_settings(self) -> StudySettings:
        """For looking at the data before the study has a folder."""
        if not self.labels.is_given or self.labels.as_it_is:
            return self.settings()
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="spt-labels-")
        path = Path(self._folder.name) / "labels.csv"
        self.labels.write(path)
        return self.settings(labels=str(path))

    def prepared_settings(self) -> StudySettings:
        """For the study itself: labels that were given here are in its folder."""
        settings = self.settings()
        if self.labels.is_given and not self.labels.as_it_is:
            self.labels.write(Path(str(settings.labels)))
        return settings

    def _labels_in(self, out: Path | None) -> str | None:
        return str(out / "labels.csv") if out and self.labels.is_given else None

    # Coming and going

    def keep(self) -> None:
        plain = {name: getattr(self, name) for name in (*_KEPT, *_PARTS)}
        remember(KEY, {**plain, "labels": self.labels.plain()})

    def take_remembered(self) -> None:
        """What was put together last; what is gone by now is left out."""
        plain = remembered(KEY, {})
        if not isinstance(plain, Mapping):
            return
        for name in ("slides", "features", "init"):
            path = plain.get(name)
            if isinstance(path, str) and path and Path(path).exists():
                setattr(self, name, path)
        if self.has_data and isinstance(plain.get("out"), str):
            self.out = plain["out"]
        if plain.get("goal") in ("", *Goal):
            self.goal = plain["goal"]
        if plain.get("effort") in EFFORTS:
            self.effort = plain["effort"]
        self.labels = LabelsSource.from_plain(plain.get("labels"))
        for name in _PARTS:
            values = plain.get(name)
            if isinstance(values, Mapping):
                setattr(self, name, _known(name, values))
        self.changed.emit()

    def take(self, settings: StudySettings) -> None:
        """What a study was asked before."""
        default = StudySettings(out="", goal="pretrain", slides="x")
        named = ("out", "goal", "slides", "features", "labels", "init")
        differing = _differing(settings, default)
        self.slides, self.features = settings.slides or "", settings.features or ""
        self.goal, self.init = settings.goal, settings.init or ""
        self.out, self.effort = settings.out, "fits"
        self.labels = LabelsSource.of_file(settings.labels)
        self.encode = {
            name: str(value) if isinstance(value, Path) else value
            for name, value in _differing(settings.encode, EncodeSettings()).items()
        }
        self.views = _differing(settings.views, ViewSettings())
        self.details = settings.details.changed()
        self.advanced = {
            name: value
            for name, value in differing.items()
            if name not in (*named, "encode", "views", "details")
        }
        self.keep()
        self.changed.emit()

    def clear(self) -> None:
        """Begin a new one; slides and labels stay."""
        self.out = ""
        self.keep()
        self.changed.emit()

    def close(self) -> None:
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None


_TAKES_INIT = (Goal.FINETUNE, Goal.PATCHES)


def free_folder(base: Path) -> Path:
    """A folder beside another, called after it, that is not there yet."""
    parent = base.parent
    name = parent.name if base.name in ("slides", "features") else base.name
    found, number = parent / f"{name}-study", 2
    while found.exists():
        found, number = parent / f"{name}-study-{number}", number + 1
    return found


def _differing(settings: Any, default: Any) -> dict[str, Any]:
    return {
        one.name: getattr(settings, one.name)
        for one in fields(settings)
        if getattr(settings, one.name) != getattr(default, one.name)
    }


def _known(part: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Values that such settings still take."""
    made: dict[str, Any] = {}
    for name, value in values.items():
        value = tuple(value) if isinstance(value, list) else value
        try:
            if part == "encode":
                EncodeSettings(**{name: value})
            elif part == "views":
                ViewSettings(**{name: value})
            elif part == "details":
                LearningDetails(**{name: value})
            else:
                replace(StudySettings("x", "pretrain", slides="x"), **{name: value})
        except (InputError, TypeError, ValueError):
            continue
        made[name] = value
    return made
