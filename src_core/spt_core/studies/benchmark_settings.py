"""What a benchmark was asked to compare; plain data, as its YAML file has it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import yaml

from spt_core.errors import InputError
from spt_core.hints import Device, Hint, check, check_types, refuse_unknown
from spt_core.learning.details import LearningDetails
from spt_core.learning.model_card import NONE, SITE, SLIDE
from spt_core.learning.views import ViewSettings
from spt_core.patches.scheduler import TlsCa, TlsCert, TlsFiles, TlsKey
from spt_core.studies.benchmark_methods import ABLATIONS, METHODS, Method
from spt_core.tokens.labels import PatientSource
from spt_core.training.config_file import read_config, settings_of_file
from spt_core.training.options import LearningRate

DEFAULT_METHODS = ("mean", "max", "untrained", "ssspt-simclr", "abmil", "classify")


@dataclass(frozen=True)
class BenchmarkSettings:
    """One benchmark. None means: chosen for the cohort and the device.

    Attributes
    ----------
    features
        Folders of feature files, ``FOLDER`` or ``NAME=FOLDER``; several of them are
        of the same slides, by different patch encoders.
    labels, out
        The table of labels, and the folder for cells and report.
    methods
        Names of :data:`METHODS`.
    ablations
        Names of :data:`ABLATIONS`.
    augmented
        Folders of features of the same slides, augmented, for giga-ssl.
    """

    features: tuple[str, ...]
    labels: str
    out: str
    methods: tuple[str, ...] = DEFAULT_METHODS
    ablations: tuple[str, ...] = ()
    slide_table: str | None = None
    patient_from: Annotated[
        str | None,
        Hint(
            "take patients from the slides' names where no column gives them",
            choices=tuple(source.value for source in PatientSource),
        ),
    ] = None
    folds: Annotated[
        int, Hint("parts of the slides, each tested in its turn", minimum=2)
    ] = 10
    repeats: Annotated[int, Hint("how often the folds are drawn", minimum=1)] = 1
    seeds: Annotated[
        int, Hint("how often each model is trained in each fold", minimum=1)
    ] = 1
    leave_site_out: Annotated[
        bool, Hint("test on each site in its turn, learning from the others")
    ] = False
    splits: Annotated[
        str | None,
        Hint(
            "folds as given: splits.json of STAMP, or the csv files of CLAM, HIPT or "
            "Patho-Bench",
            metavar="FILE",
        ),
    ] = None
    ignore_split: Annotated[
        bool, Hint("test all slides in folds, whatever the labels say of splits")
    ] = False
    baseline: Annotated[
        str,
        Hint(
            "method that the others are compared with, slide by slide",
            choices=tuple(METHODS),
        ),
    ] = "mean"
    ordered: Annotated[
        bool,
        Hint("the classes are grades: their names in alphabetical order are the order"),
    ] = False
    unlabelled: Annotated[
        bool,
        Hint("let methods without labels learn from unlabelled slides too"),
    ] = False
    permute_labels: Annotated[
        bool,
        Hint("also measure everything with labels permuted between patients"),
    ] = False
    mlp: Annotated[
        bool, Hint("also fit a small neural network on the embeddings", label="MLP")
    ] = False
    model: Annotated[
        str | None,
        Hint(
            "preset of the slide encoder",
            choices=("paper", "paper-2", "paper-4", "paper-8", "small"),
            automatic="paper with a GPU, small without",
        ),
    ] = None
    standardise: Annotated[
        str | None,
        Hint(
            "measure tokens from the mean of their site or slide, in its spread, for "
            "every method",
            choices=(SITE, SLIDE, NONE),
            automatic="site where the labels have a column 'site', else no",
        ),
    ] = None
    site_batches: Annotated[bool, Hint("draw each batch from slides of one site")] = (
        False
    )
    views: ViewSettings = field(default_factory=ViewSettings)
    details: LearningDetails = field(default_factory=LearningDetails)
    steps: Annotated[
        int | None,
        Hint(
            "steps of each training",
            above=0,
            automatic="as spt train chooses them",
        ),
    ] = None
    batch_size: Annotated[
        int | None, Hint("slides in each step", above=0, automatic="as for spt train")
    ] = None
    learning_rate: LearningRate = 3e-4
    pretrain_steps: Annotated[
        int | None,
        Hint(
            "steps of the pre-training of pretrained-classify",
            above=0,
            automatic="as spt train chooses them",
        ),
    ] = None
    init: Annotated[
        str | None,
        Hint("model file that the method finetune starts from", metavar="MODEL"),
    ] = None
    only: Annotated[
        str | None,
        Hint(
            "leave out all slides but those of this list, one name or pseudonym a line",
            metavar="FILE",
        ),
    ] = None
    augmented: tuple[str, ...] = ()
    hipt_weights: Annotated[
        str | None,
        Hint("published weights of HIPT's region encoder", metavar="FILE"),
    ] = None
    include_slide_name: Annotated[
        bool, Hint("write the slides' names in place of pseudonyms")
    ] = False
    device: Device = "auto"
    workers: Annotated[
        int | None,
        Hint(
            "cells at work at the same time",
            above=0,
            automatic="as many as cores and memory allow, one with a GPU",
        ),
    ] = None
    scheduler: Annotated[
        str | None,
        Hint(
            "address of a running dask scheduler that shares the cells out; whoever "
            "reaches it can run programs as you, unless it has TLS",
            metavar="ADDRESS",
        ),
    ] = None
    tls_ca: TlsCa = None
    tls_cert: TlsCert = None
    tls_key: TlsKey = None
    title: Annotated[str | None, Hint("title of the report", metavar="TEXT")] = None

    def __post_init__(self) -> None:
        conflicts = [
            f"There is no {what} {name!r}. Choose of: {', '.join(known)}."
            for what, names, known in (
                ("method", self.methods, METHODS),
                ("ablation", self.ablations, ABLATIONS),
            )
            for name in names
            if name not in known
        ]
        if not self.features:
            conflicts.append("Give a folder of feature files.")
        if not self.methods:
            conflicts.append("Give one method or more.")
        if any(one.from_init for one in self.all_methods()) and not self.init:
            conflicts.append("The method finetune needs a model to start from: --init.")
        if self.leave_site_out and self.splits:
            conflicts.append("Folds are by site or as given, not both.")
        named = [name for name, _ in self.named_features()]
        if len(set(named)) < len(named):
            conflicts.append(
                "Two folders of features have one name: call them apart by NAME=FOLDER."
            )
        check(self, *conflicts)

    @property
    def tls(self) -> TlsFiles | None:
        """The files of a scheduler's TLS; a part of them is an error."""
        return TlsFiles.given(self.tls_ca, self.tls_cert, self.tls_key)

    def named_features(self) -> list[tuple[str, Path]]:
        """Short name and folder of each set of features."""
        found = []
        for text in self.features:
            name, is_named, folder = text.partition("=")
            path = Path(folder if is_named else text)
            found.append((name if is_named else path.absolute().name, path))
        return found

    def all_methods(self) -> list[Method]:
        """Those asked for, with the baseline."""
        names = dict.fromkeys((self.baseline, *self.methods))
        # In the registry's order: that of the table.
        return [method for name, method in METHODS.items() if name in names]

    def plain(self) -> dict[str, Any]:
        """As plain data, for a file."""

        def as_list(value: Any) -> Any:
            if isinstance(value, dict):
                return {name: as_list(one) for name, one in value.items()}
            return list(value) if isinstance(value, tuple) else value

        return as_list(asdict(self))

    def write(self, path: Path) -> None:
        text = yaml.safe_dump(self.plain(), sort_keys=False, allow_unicode=True)
        path.write_text(text, encoding="utf-8")

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> "BenchmarkSettings":
        """From what ``write`` wrote, or somebody did by hand."""
        refuse_unknown(cls, plain)
        missing = sorted({"features", "labels", "out"} - set(plain))
        if missing:
            raise InputError(f"The settings lack {', '.join(missing)}.")

        def as_tuple(value: Any) -> Any:
            return tuple(value) if isinstance(value, list) else value

        values = {name: as_tuple(value) for name, value in plain.items()}
        if isinstance(values["features"], str):
            values["features"] = (values["features"],)
        details = LearningDetails.from_plain(values.pop("details", None))
        views = values.pop("views", None) or {}
        views = {name: as_tuple(value) for name, value in views.items()}
        check_types(cls, values)
        check_types(ViewSettings, views)
        try:
            return cls(**values, views=ViewSettings(**views), details=details)
        except TypeError as error:
            raise InputError(f"The settings cannot be used: {error}.") from error

    @classmethod
    def read(cls, path: Path) -> "BenchmarkSettings":
        plain = read_config(path)
        with settings_of_file(path):
            return cls.from_plain(plain)
