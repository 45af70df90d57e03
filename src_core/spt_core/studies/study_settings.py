"""What a study was asked to do; plain data, so that a window can fill it in."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import yaml

from spt_core import bundled
from spt_core.errors import InputError
from spt_core.hints import Device, Hint, check, check_types, refuse_unknown
from spt_core.learning.details import LearningDetails
from spt_core.learning.model_card import NONE, SITE, SLIDE
from spt_core.learning.views import ViewSettings
from spt_core.patches.settings import EncodeSettings
from spt_core.patches.training.settings import METHODS as PATCH_METHODS
from spt_core.tokens.labels import PatientSource
from spt_core.training.config_file import read_config, settings_of_file
from spt_core.training.options import LearningRate, Seed


class Goal(StrEnum):
    """What a study is for."""

    PRETRAIN = "pretrain"
    CLASSIFY = "classify"
    BOTH = "both"
    FINETUNE = "finetune"
    PATCHES = "patches"

    @property
    def needs_labels(self) -> bool:
        return self in (Goal.CLASSIFY, Goal.BOTH, Goal.FINETUNE)

    @property
    def pretrains(self) -> bool:
        return self in (Goal.PRETRAIN, Goal.BOTH)


# What a study's own method is compared with.
COMPARED = ("mean", "max", "abmil")
# Where things are, and how they are done: neither changes what is found. Slides and
# labels are known by what is in them.
NOT_IN_RECIPE = (
    "out",
    "slides",
    "features",
    "labels",
    "slide_table",
    "init",
    "device",
    "workers",
    "title",
)


@dataclass(frozen=True)
class StudySettings:
    """One study. None means: chosen for the slides and the device.

    Attributes
    ----------
    out
        The study's folder.
    encode
        How slides become features; its ``device`` is the study's.
    views
        How views of slides are made.
    details
        How each training is done.
    """

    out: str
    goal: Annotated[
        str,
        Hint(
            "pretrain: learn from slides without labels; classify: learn to tell the "
            "labels apart; both: first without, then with labels; finetune: teach the "
            "model of --init the labels; patches: train a patch encoder",
            choices=tuple(goal.value for goal in Goal),
            choice_labels=(
                "Learn from slides without labels",
                "Learn to tell my labels apart",
                "First without, then with labels",
                "Teach an existing model my labels",
                "Train a patch encoder",
            ),
        ),
    ]
    slides: Annotated[
        str | None, Hint("folder of slides, encoded as they come", metavar="FOLDER")
    ] = None
    features: Annotated[
        str | None,
        Hint("folder of features that are there already", metavar="FOLDER"),
    ] = None
    labels: Annotated[
        str | None,
        Hint(
            "table with columns slide,label[,patient,site,split,mpp], or patient,label "
            "with --slide-table",
            metavar="CSV",
        ),
    ] = None
    slide_table: Annotated[
        str | None,
        Hint(
            "table with columns slide,patient, for labels of patients",
            metavar="CSV",
            advanced=True,
        ),
    ] = None
    patient_from: Annotated[
        str | None,
        Hint(
            "take patients from the slides' names where no column gives them",
            choices=tuple(source.value for source in PatientSource),
            advanced=True,
        ),
    ] = None
    init: Annotated[
        str | None,
        Hint("model file to start from", label="Start from", metavar="MODEL"),
    ] = None
    folds: Annotated[
        int, Hint("parts of the patients, each tested in its turn", minimum=2)
    ] = 5
    seeds: Annotated[
        int,
        Hint("how often each model is trained in each fold", minimum=1, advanced=True),
    ] = 1
    ignore_split: Annotated[
        bool,
        Hint(
            "test all slides in folds, whatever the labels say of splits", advanced=True
        ),
    ] = False
    pretrain_once: Annotated[
        bool,
        Hint(
            "pre-train once on all slides without labels, not anew in each fold: "
            "quicker, but the tested slides have been seen",
            advanced=True,
        ),
    ] = False
    model: Annotated[
        str | None,
        Hint(
            "preset of the slide encoder",
            choices=("paper", "paper-2", "paper-4", "paper-8", "small"),
            automatic="paper with a GPU, small without",
        ),
    ] = None
    steps: Annotated[
        int | None,
        Hint(
            "steps of each training; of 'both', of the second",
            above=0,
            automatic="with labels 100 epochs and 500 steps at least; without 800 "
            "and 1000",
        ),
    ] = None
    pretrain_steps: Annotated[
        int | None,
        Hint(
            "steps of the training without labels, of 'both'",
            above=0,
            automatic="800 epochs, and 1000 steps at least",
        ),
    ] = None
    batch_size: Annotated[
        int | None,
        Hint(
            "slides in each step",
            above=0,
            automatic="with labels a quarter of them, 8 to 32; without, up to 256",
        ),
    ] = None
    learning_rate: LearningRate = 3e-4
    standardise: Annotated[
        str | None,
        Hint(
            "measure tokens from the mean of their site or slide, in its spread, so "
            "that the scanner is not what is learned",
            choices=(SITE, SLIDE, NONE),
            choice_labels=("Per site", "Per slide", "No"),
            automatic="site where the labels have a column 'site', else no; of "
            "finetune, as the model was trained",
            advanced=True,
        ),
    ] = None
    site_batches: Annotated[
        bool, Hint("draw each batch from slides of one site", advanced=True)
    ] = False
    seed: Seed = 0
    patch_method: Annotated[
        str,
        Hint(
            "of the goal patches: simclr tells patches apart, hidisc patients and "
            "slides too",
            choices=PATCH_METHODS,
            choice_labels=("SimCLR", "HiDisc"),
            advanced=True,
        ),
    ] = "simclr"
    patch_arch: Annotated[
        str,
        Hint(
            "of the goal patches: mobilenetv2, which starts from the bundled encoder, "
            "or resnet34 or any model of timm, from ImageNet's weights",
            advanced=True,
        ),
    ] = "mobilenetv2"
    patch_epochs: Annotated[
        int | None,
        Hint(
            "of the goal patches: times that every patch is seen",
            above=0,
            automatic="as for spt train-patches",
            advanced=True,
        ),
    ] = None
    encode: EncodeSettings = field(default_factory=EncodeSettings)
    views: ViewSettings = field(default_factory=ViewSettings)
    details: LearningDetails = field(default_factory=LearningDetails)
    device: Device = "auto"
    workers: Annotated[
        int | None,
        Hint(
            "cells at work at the same time",
            above=0,
            automatic="as many as cores and memory allow, one with a GPU",
            advanced=True,
        ),
    ] = None
    title: Annotated[str | None, Hint("title of the report", metavar="TEXT")] = None

    def __post_init__(self) -> None:
        conflicts = []
        if not self.slides and not self.features:
            conflicts.append("Give a folder of slides, of features, or both.")
        if self.goal == Goal.FINETUNE and not self.init:
            conflicts.append("To teach an existing model, name it: --init MODEL.")
        if self.init and self.goal not in (Goal.FINETUNE, Goal.PATCHES):
            conflicts.append(
                f"The goal {self.goal} begins anew: leave --init out, or choose the "
                "goal finetune."
            )
        if self.goal == Goal.PATCHES and not self.slides:
            conflicts.append("A patch encoder is trained on slides: give --slides.")
        is_known = self.goal in tuple(Goal)
        if is_known and Goal(self.goal).needs_labels and not self.labels:
            conflicts.append(
                f"The goal {self.goal} learns from labels: give --labels CSV, or "
                "choose the goal pretrain."
            )
        check(self, *conflicts)

    @property
    def aim(self) -> Goal:
        return Goal(self.goal)

    @property
    def evaluates(self) -> bool:
        """Whether there is something to measure it by."""
        return self.labels is not None and self.aim is not Goal.PATCHES

    @property
    def patch_start(self) -> str:
        """What a patch encoder starts from: the package's own where there is one."""
        if self.init:
            return self.init
        return bundled.ENCODER if self.patch_arch == "mobilenetv2" else "imagenet"

    @property
    def method(self) -> str:
        """What the study's model is called in the table."""
        if self.aim is Goal.BOTH:
            return "finetune" if self.pretrain_once else "pretrained-classify"
        if self.aim is Goal.PRETRAIN:
            return f"ssspt-{self.details.pretraining}"
        return "finetune" if self.aim is Goal.FINETUNE else "classify"

    def recipe(self) -> str:
        """A hash of the settings that results depend on."""
        plain = self.plain()
        wanted = {name: plain[name] for name in plain if name not in NOT_IN_RECIPE}
        for name in ("device", "batch_size", "readers", "lanes", "threads", "redo"):
            wanted["encode"].pop(name)
        # Studies that were begun before there was a choice go on.
        for name in ("standardise", "site_batches"):
            if not wanted[name]:
                del wanted[name]
        wanted["details"] = self.details.changed()
        if not wanted["details"]:
            del wanted["details"]
        if wanted["encode"]["channels"] is None:
            del wanted["encode"]["channels"]
        return hashlib.sha256(json.dumps(wanted, sort_keys=True).encode()).hexdigest()

    def plain(self) -> dict[str, Any]:
        """As plain data, for a file."""

        def as_plain(value: Any) -> Any:
            if isinstance(value, dict):
                return {name: as_plain(one) for name, one in value.items()}
            if isinstance(value, Path):
                return str(value)
            return list(value) if isinstance(value, tuple) else value

        return as_plain(asdict(self))

    def write(self, path: Path) -> None:
        text = yaml.safe_dump(self.plain(), sort_keys=False, allow_unicode=True)
        path.write_text(text, encoding="utf-8")

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> "StudySettings":
        """From what ``write`` wrote, or a window filled in."""
        if not isinstance(plain, Mapping):
            raise InputError("The settings of a study are names and values.")
        values = dict(plain)
        encode = dict(values.pop("encode", None) or {})
        views = dict(values.pop("views", None) or {})
        details = LearningDetails.from_plain(values.pop("details", None))
        for kind, found in (
            (cls, plain),
            (EncodeSettings, encode),
            (ViewSettings, views),
        ):
            refuse_unknown(kind, found)
            check_types(kind, found)
        if encode.get("weights"):
            encode["weights"] = Path(encode["weights"])
        views = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in views.items()
        }
        try:
            return cls(
                **values,
                encode=EncodeSettings(**encode),
                views=ViewSettings(**views),
                details=details,
            )
        except TypeError as error:
            raise InputError(f"The settings cannot be used: {error}.") from error

    @classmethod
    def read(cls, path: Path) -> "StudySettings":
        plain = read_config(path)
        with settings_of_file(path):
            return cls.from_plain(plain)
