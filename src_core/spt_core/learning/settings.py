"""What a training run was asked to do; plain data, so that a window can fill it in."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import ceil
from pathlib import Path
from typing import Annotated, Any

import yaml

from spt_core.hints import Device, Hint, check, check_types, refuse_unknown
from spt_core.learning.model_card import (
    FOUND,
    LABELS,
    NONE,
    SCANNER,
    SITE,
    SLIDE,
)
from spt_core.learning.views import ViewSettings
from spt_core.tokens.labels import PatientSource
from spt_core.training.config_file import read_config, settings_of_file
from spt_core.training.options import (
    CheckpointSteps,
    Head,
    LearningRate,
    MicroBatch,
    MixedPrecision,
    Momentum,
    Seed,
    Temperature,
    ValidateEpochs,
    VicregWeights,
    WarmUp,
    WeightDecay,
)
from spt_core.training.stages import SUPERVISED

SELF_SUPERVISED = ("simclr", "vicreg", "byol")
OBJECTIVES = (*SELF_SUPERVISED, *SUPERVISED)
# Aggregators to compare with: by default they see whole slides.
BASELINES = ("abmil", "clam", "dsmil", "transmil", "hipt", "mean", "max")
# Those that have a part for each class, and a loss of their own for it.
WITH_CLASSES = ("clam", "dsmil")
# On cohorts of 36 to 120 slides SimCLR needed 300 to 900 steps; a cohort that fits one
# batch takes only one step per epoch. Labels teach sooner.
LEAST_STEPS, LEAST_STEPS_WITH_LABELS = 1000, 500
# Whom SimCLR keeps slides apart from, besides those of the SITE.
ALL = "all"
# Among fewer there is little to tell a slide apart from.
NEGATIVES_PER_SITE = 8
# Slides in a step where nobody says; fewer where labels are few.
USUAL_BATCH = 256
MODELS = ("paper", "paper-2", "paper-4", "paper-8", "small", *BASELINES)


def site_batches(counts: Sequence[int], batch: int) -> list[tuple[int, int]]:
    """The batches of an epoch where each is of one site: (site number, slides).

    A site with more slides than a batch has several, of one size; what is left over is
    other in each epoch.
    """
    found = []
    for site, count in enumerate(counts):
        parts = max(1, min(-(-count // batch), count // 2))
        found += [(site, count // parts)] * parts
    return found


def needs_classifier(model: str) -> str:
    """Why a model cannot be trained by another objective, as a sentence."""
    return (
        f"{model} has a loss of its own for each class, beside a classifier's: train "
        "it with the objective classify."
    )


@dataclass(frozen=True)
class TrainSettings:
    """One run. None means: chosen for the objective, the cohort and the device.

    Attributes
    ----------
    features, out
        The folder of feature files, and the run's folder.
    architecture
        Options of the model instead of the preset's: ``dim``, ``depth``, ``heads``,
        ``dropout``.
    """

    features: str
    objective: Annotated[
        str,
        Hint(
            "what to learn: simclr, vicreg and byol need no labels, supcon and "
            "classify learn from them",
            choices=OBJECTIVES,
        ),
    ]
    out: str
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
    model: Annotated[
        str | None,
        Hint(
            "preset of the slide encoder, or another aggregator",
            choices=MODELS,
            automatic="paper with a GPU, small without",
        ),
    ] = None
    architecture: dict[str, float] = field(default_factory=dict)
    init: Annotated[
        str | None,
        Hint(
            "model file whose encoder to start from",
            label="Start from",
            metavar="MODEL",
        ),
    ] = None
    region_weights: Annotated[
        str | None,
        Hint(
            "published weights of hipt's region encoder to start from",
            metavar="FILE",
            advanced=True,
        ),
    ] = None
    freeze: Annotated[
        bool,
        Hint("train the classifier alone", label="Train the classifier alone"),
    ] = False
    head: Head = "batchnorm"
    class_weights: Annotated[
        str,
        Hint(
            "in classification, whether rare classes weigh as much as frequent ones",
            choices=("balanced", "none"),
            choice_labels=("Balanced", "None"),
        ),
    ] = "balanced"
    momentum: Momentum = 0.99
    temperature: Temperature = 0.07
    vicreg_weights: VicregWeights = (10.0, 10.0, 1.0)
    standardise: Annotated[
        str | None,
        Hint(
            "measure tokens from the mean of their site or slide, in its spread, so "
            "that the scanner is not what is learned",
            choices=(SITE, SLIDE, NONE),
            choice_labels=("Per site", "Per slide", "No"),
            automatic="site where the labels have a column 'site', else no",
        ),
    ] = None
    sites: Annotated[
        str | None,
        Hint(
            "where sites are from: found groups slides by their mean tokens, scanner "
            "by what feature files say of the scanner; both show the groups first",
            choices=(LABELS, FOUND, SCANNER),
            automatic="the labels' column 'site'",
            advanced=True,
        ),
    ] = None
    site_batches: Annotated[
        bool, Hint("draw each batch from slides of one site", advanced=True)
    ] = False
    negatives: Annotated[
        str | None,
        Hint(
            "in SimCLR, which other slides to keep apart: all, or those of the same "
            "site; never those of the same patient",
            choices=(ALL, SITE),
            choice_labels=("All", "Of the same site"),
            automatic="site where tokens are standardised per site and a batch has "
            f"{NEGATIVES_PER_SITE} slides of each on average, else all",
            advanced=True,
        ),
    ] = None
    views: ViewSettings = field(default_factory=ViewSettings)
    epochs: Annotated[
        int | None,
        Hint(
            "times that every slide is seen",
            above=0,
            automatic=f"800, and {LEAST_STEPS} steps at least; with labels 100, and "
            f"{LEAST_STEPS_WITH_LABELS} steps",
        ),
    ] = None
    steps: Annotated[
        int | None,
        Hint(
            "steps to take instead of a number of epochs; the last epoch is finished",
            above=0,
            automatic="by the number of epochs",
        ),
    ] = None
    batch_size: Annotated[
        int | None,
        Hint(
            "slides in each step, over all GPUs",
            above=0,
            automatic="chosen for the objective and the number of slides",
        ),
    ] = None
    learning_rate: LearningRate = 3e-4
    weight_decay: WeightDecay = 0.01
    warm_up: WarmUp = 0.1
    seed: Seed = 0
    device: Device = "auto"
    mixed_precision: MixedPrecision = True
    micro_batch: MicroBatch = None
    checkpoint_steps: CheckpointSteps = 50
    validate_epochs: ValidateEpochs = None
    encoder: Annotated[
        str | None,
        Hint("name of the patch encoder", label="Patch encoder", advanced=True),
    ] = None
    mpp: Annotated[
        float | None,
        Hint(
            "pixel size of the patches",
            label="Patch pixel size",
            above=0,
            unit="µm",
            digits=4,
            advanced=True,
            metavar="UM",
        ),
    ] = None
    patch_size: Annotated[
        int | None,
        Hint("side of the patches", above=0, unit="px", advanced=True, metavar="PX"),
    ] = None

    def __post_init__(self) -> None:
        conflicts = []
        if self.supervised and not self.labels:
            conflicts.append(f"{self.objective} learns from labels: give a labels.csv.")
        if self.epochs and self.steps:
            conflicts.append("Give a number of epochs or of steps, not both.")
        if self.objective != "classify" and self.freeze:
            conflicts.append("Only the objective classify trains a classifier alone.")
        if self.region_weights and (self.model != "hipt" or self.init):
            conflicts.append("Only a new model 'hipt' starts from region weights.")
        if self.model in ("mean", "max") and self.objective != "classify":
            conflicts.append(
                f"{self.model} pooling has nothing to learn but a classifier."
            )
        if self.model in WITH_CLASSES and self.objective != "classify":
            conflicts.append(needs_classifier(self.model))
        if self.objective != "classify" and self.views.views < 2:
            conflicts.append(f"{self.objective} needs two views or more.")
        if self.negatives == SITE and self.objective != "simclr":
            conflicts.append(
                "Negatives of the site alone are for simclr: with "
                f"{self.objective} draw batches of one site instead."
            )
        check(self, *conflicts)

    @property
    def by_site(self) -> bool:
        """Whether a slide's site decides in which batch it is, or against whom."""
        return self.site_batches or self.negatives == SITE

    @property
    def supervised(self) -> bool:
        return self.objective in SUPERVISED

    def resolved(
        self, slides: int, *, on_cpu: bool, site_counts: Sequence[int] = ()
    ) -> "TrainSettings":
        """The same with every None decided, for a cohort of so many slides.

        Parameters
        ----------
        site_counts
            Slides of each site, where batches are drawn within one.
        """
        # Few labelled slides: smaller batches, or 100 epochs would be 100 steps.
        few = slides // 4
        usual = {"classify": min(32, few), "supcon": min(USUAL_BATCH, few)}
        batch = self.batch_size or max(usual.get(self.objective, USUAL_BATCH), 8)
        batch = min(batch, slides)
        per_epoch = max(1, slides // batch)
        if self.site_batches and site_counts:
            per_epoch = len(site_batches(site_counts, batch))
        epochs = self.epochs or self._epochs(per_epoch)
        views = self.views
        if self.objective == "classify":
            views = replace(views, views=1)
        return replace(
            self,
            model=self.model or ("small" if on_cpu else "paper"),
            epochs=epochs,
            steps=None,
            batch_size=batch,
            validate_epochs=self.validate_epochs or max(1, epochs // 20),
            views=views,
        )

    def _epochs(self, steps_per_epoch: int) -> int:
        if self.steps:
            return ceil(self.steps / steps_per_epoch)
        usual, least = 800, LEAST_STEPS
        if self.supervised:
            usual, least = 100, LEAST_STEPS_WITH_LABELS
        return max(usual, ceil(least / steps_per_epoch))

    def write(self, path: Path) -> None:
        plain = asdict(self)
        plain["vicreg_weights"] = list(self.vicreg_weights)
        plain["views"] = {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in plain["views"].items()
        }
        path.write_text(
            yaml.safe_dump(plain, sort_keys=False, allow_unicode=True), encoding="utf-8"
        )

    @classmethod
    def read(cls, path: Path) -> "TrainSettings":
        plain = read_config(path)
        with settings_of_file(path):
            return cls.from_plain(plain)

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> "TrainSettings":
        """From what ``write`` wrote, or a window filled in."""
        refuse_unknown(cls, plain)
        views: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in plain.get("views", {}).items()
        }
        check_types(cls, plain)
        check_types(ViewSettings, views)
        weights = plain.get("vicreg_weights", (10.0, 10.0, 1.0))
        values = {**plain, "vicreg_weights": tuple(weights)}
        return cls(**{**values, "views": ViewSettings(**views)})
