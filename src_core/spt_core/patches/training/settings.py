"""What a run of patch training was asked to do; plain data."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import yaml

from spt_core.errors import InputError
from spt_core.patches.training.augment import Augmentation
from spt_core.training.config_file import read_config

METHODS = ("simclr", "hidisc")
STATISTICS = ("frozen", "batch")
# HiDisc's own: with several positives an anchor, a sharp softmax is unstable.
TEMPERATURES = {"simclr": 0.07, "hidisc": 0.7}


@dataclass(frozen=True)
class PatchTrainSettings:
    """One run. None means: chosen for the method, the start and the patches.

    Attributes
    ----------
    sources
        Slides, folders of slides, and folders of tiles (PNG, JPEG ...).
    out
        The run's folder; the encoder is ``encoder.safetensors`` in it.
    tables
        CSV files with ``file,slide,patient,mpp,split,label`` of tiles, or
        ``slide,patient,mpp,split,label`` of slides; all but the first optional. Tiles
        that no table names are left out where a table names tiles of their folder.
    arch
        A registered encoder or a model of timm.
    init
        ``imagenet``, ``none``, or a file of weights.
    patch_size, mpp
        The patches that the encoder is to be used for.
    view_size
        Pixels a side of the views it learns from, at the same mpp; smaller is quicker,
        and needed where tiles are smaller than patches.
    tile_mpp, slide_mpp
        Of tiles and slides that do not say it.
    patches_per_slide, memory_gb
        How much of each slide, and of all, is kept in memory.
    group
        HiDisc: how many slides of a patient, and patches of a slide, a step takes.
    level_weights
        HiDisc: of the patient's, the slide's and the patch's loss.
    freeze
        How many of the first blocks stay as they are.
    statistics
        Of batch norms: ``frozen`` keeps the start's, ``batch`` uses each batch's own.
    stay
        Weight of the distance from the start's own features: what it knew is kept.
    blend
        Share of the learned weights in the result, the rest being the start's.
    """

    sources: tuple[str, ...]
    method: str
    out: str
    tables: tuple[str, ...] = ()
    name: str = "encoder"
    arch: str = "resnet34"
    init: str = "imagenet"
    patch_size: int | None = None
    mpp: float | None = None
    view_size: int | None = None
    tile_mpp: float | None = None
    slide_mpp: float | None = None
    patches_per_slide: int = 512
    memory_gb: float = 4.0
    views: int = 2
    group: tuple[int, int] = (2, 2)
    level_weights: tuple[float, float, float] = (1.0, 1.0, 1.0)
    temperature: float | None = None
    head: str = "batchnorm"
    freeze: int = 0
    statistics: str | None = None
    stay: float = 0.0
    blend: float = 1.0
    half: bool = False
    augmentation: Augmentation = field(default_factory=Augmentation)
    epochs: int | None = 100
    batch_size: int = 128
    learning_rate: float = 3e-4
    weight_decay: float = 0.01
    warm_up: float = 0.1
    seed: int = 0
    device: str = "auto"
    mixed_precision: bool = True
    micro_batch: int | None = None
    checkpoint_steps: int = 50
    validate_epochs: int | None = None

    def __post_init__(self) -> None:
        wrong = []
        if self.method not in METHODS:
            wrong.append(f"the method is one of {', '.join(METHODS)}")
        if self.statistics not in (None, *STATISTICS):
            wrong.append(f"the statistics are one of {', '.join(STATISTICS)}")
        if self.views < 2:
            wrong.append("at least two views are needed")
        for name in ("patches_per_slide", "batch_size", "epochs", "micro_batch",
                     "validate_epochs", "patch_size", "view_size"):  # fmt: skip
            value = getattr(self, name)
            if value is not None and value < 1:
                wrong.append(f"{name} is {value}; at least 1 is needed")
        for name in ("mpp", "tile_mpp", "slide_mpp", "memory_gb", "learning_rate"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                wrong.append(f"{name} is {value}; it must be greater than 0")
        if min(self.group) < 1:
            wrong.append("a group has at least one slide and one patch")
        if min(self.level_weights) < 0 or not any(self.level_weights):
            wrong.append("the levels' weights are positive, or 0 for some of them")
        if not 0 < self.blend <= 1:
            wrong.append(f"blend is {self.blend}; it is a share")
        if self.init == "none" and (self.stay or self.blend < 1 or self.freeze):
            wrong.append("without a start there is nothing to freeze, stay or blend")
        if self.seed < 0:
            wrong.append(f"the seed is {self.seed}; it cannot be negative")
        if wrong:
            raise InputError("These settings do not work: " + "; ".join(wrong) + ".")

    def resolved(self, patch_size: int, mpp: float) -> "PatchTrainSettings":
        """The same with every None decided, for the architecture's own patches."""
        size = self.patch_size or patch_size
        return replace(
            self,
            patch_size=size,
            mpp=self.mpp or mpp,
            view_size=self.view_size or size,
            temperature=self.temperature or TEMPERATURES[self.method],
            statistics=self.statistics
            or ("batch" if self.init == "none" else "frozen"),
            validate_epochs=self.validate_epochs or max(1, int(self.epochs or 1) // 20),
        )

    def write(self, path: Path) -> None:
        plain = _listed(asdict(self))
        text = yaml.safe_dump(plain, sort_keys=False, allow_unicode=True)
        path.write_text(text, encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> "PatchTrainSettings":
        plain = read_config(path)
        known = {one.name for one in fields(cls)}
        if not isinstance(plain, Mapping) or set(plain) - known:
            raise InputError(f"{path.parent} is not a run of 'spt train-patches'.")
        plain = _tupled(plain)
        return cls(**{**plain, "augmentation": Augmentation(**plain["augmentation"])})


def _listed(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _listed(part) for name, part in value.items()}
    return [_listed(part) for part in value] if isinstance(value, tuple) else value


def _tupled(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _tupled(part) for name, part in value.items()}
    return tuple(_tupled(part) for part in value) if isinstance(value, list) else value
