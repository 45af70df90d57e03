"""What a training run was asked to do; plain data, so that a window can fill it in."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import yaml

from spt_core.errors import InputError
from spt_core.learning.views import ViewSettings
from spt_core.training.config_file import read_config

SELF_SUPERVISED = ("simclr", "vicreg", "byol")
SUPERVISED = ("supcon", "classify")
OBJECTIVES = (*SELF_SUPERVISED, *SUPERVISED)
MODELS = ("paper", "paper-2", "paper-4", "paper-8", "small", "abmil", "mean", "max")


@dataclass(frozen=True)
class TrainSettings:
    """One run. None means: chosen for the objective, the cohort and the device.

    Attributes
    ----------
    features, labels, out
        The folder of feature files, labels.csv, and the run's folder.
    model
        A preset of the slide encoder, or another aggregator.
    architecture
        Options of the model beside the preset's: ``dim``, ``depth``, ``heads``.
    init
        A model file whose encoder to start from.
    freeze
        Train the classifier alone.
    class_weights
        ``balanced`` or ``none``, in classification.
    momentum
        Of BYOL's target network at the start; 1 at the end.
    encoder, mpp, patch_size
        Facts of the tokens, for feature files that do not state them.
    """

    features: str
    objective: str
    out: str
    labels: str | None = None
    model: str | None = None
    architecture: dict[str, int] = field(default_factory=dict)
    init: str | None = None
    freeze: bool = False
    head: str = "batchnorm"
    class_weights: str = "balanced"
    momentum: float = 0.99
    views: ViewSettings = field(default_factory=ViewSettings)
    epochs: int | None = None
    batch_size: int | None = None
    learning_rate: float = 3e-4
    weight_decay: float = 0.01
    warm_up: float = 0.1
    seed: int = 0
    device: str = "auto"
    mixed_precision: bool = True
    micro_batch: int | None = None
    checkpoint_steps: int = 50
    validate_epochs: int | None = None
    encoder: str | None = None
    mpp: float | None = None
    patch_size: int | None = None

    def __post_init__(self) -> None:
        wrong = []
        if self.objective not in OBJECTIVES:
            wrong.append(f"the objective is one of {', '.join(OBJECTIVES)}")
        if self.model is not None and self.model not in MODELS:
            wrong.append(f"the model is one of {', '.join(MODELS)}")
        if self.objective in SUPERVISED and not self.labels:
            wrong.append(f"{self.objective} learns from labels; give --labels CSV")
        if self.objective != "classify" and self.freeze:
            wrong.append("--freeze is for --objective classify")
        if self.model in ("mean", "max") and self.objective != "classify":
            wrong.append(f"{self.model} pooling has nothing to learn but a classifier")
        if self.objective != "classify" and self.views.views < 2:
            wrong.append(f"{self.objective} needs two views or more")
        for name in ("epochs", "batch_size", "micro_batch", "validate_epochs"):
            value = getattr(self, name)
            if value is not None and value < 1:
                wrong.append(f"{name} is {value}; at least 1 is needed")
        if self.seed < 0:
            wrong.append(f"the seed is {self.seed}; it cannot be negative")
        if not self.learning_rate > 0:
            wrong.append(f"the learning rate is {self.learning_rate}")
        if self.class_weights not in ("balanced", "none"):
            wrong.append("class weights are balanced or none")
        if wrong:
            raise InputError("These settings do not work: " + "; ".join(wrong) + ".")

    @property
    def supervised(self) -> bool:
        return self.objective in SUPERVISED

    def resolved(self, slides: int, *, on_cpu: bool) -> "TrainSettings":
        """The same with every None decided, for a cohort of so many slides."""
        epochs = self.epochs or (100 if self.supervised else 800)
        # Few labelled slides: smaller batches, or 100 epochs would be 100 steps.
        usual = {"classify": min(32, slides // 4), "supcon": min(256, slides // 4)}
        batch = self.batch_size or max(usual.get(self.objective, 256), 8)
        views = self.views
        if self.objective == "classify":
            views = replace(views, views=1)
        return replace(
            self,
            model=self.model or ("small" if on_cpu else "paper"),
            epochs=epochs,
            batch_size=min(batch, slides),
            validate_epochs=self.validate_epochs or max(1, epochs // 20),
            views=views,
        )

    def write(self, path: Path) -> None:
        plain = asdict(self)
        plain["views"] = {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in plain["views"].items()
        }
        path.write_text(
            yaml.safe_dump(plain, sort_keys=False, allow_unicode=True), encoding="utf-8"
        )

    @classmethod
    def read(cls, path: Path) -> "TrainSettings":
        return cls.from_plain(read_config(path))

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> "TrainSettings":
        """From what ``write`` wrote, or a window filled in."""
        known = {one.name for one in fields(cls)}
        unknown = sorted(set(plain) - known)
        if unknown:
            raise InputError(f"Unknown settings: {', '.join(unknown)}.")
        views: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in plain.get("views", {}).items()
        }
        return cls(**{**plain, "views": ViewSettings(**views)})
