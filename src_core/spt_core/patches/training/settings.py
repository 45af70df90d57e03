"""What a run of patch training was asked to do; plain data."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any

import yaml

from spt_core.errors import InputError
from spt_core.hints import Device, Hint, check, check_types
from spt_core.patches.training.augmentation_settings import Augmentation
from spt_core.slides.recipe import asked_recipe
from spt_core.training.config_file import read_config, settings_of_file
from spt_core.training.options import (
    HEADS,
    CheckpointSteps,
    LearningRate,
    MixedPrecision,
    Seed,
    ValidateEpochs,
    WarmUp,
    WeightDecay,
)

METHODS = ("simclr", "hidisc")
STATISTICS = ("frozen", "batch")
PATCH_HEADS = ("linear", *HEADS)
# HiDisc's are those of its authors' configurations. Softer, with batch norms in the
# head (0.7, batchnorm), is ours.
TEMPERATURES = {"simclr": 0.07, "hidisc": 0.07}
HEAD_OF = {"simclr": "batchnorm", "hidisc": "linear"}


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
    """

    sources: tuple[str, ...]
    method: Annotated[
        str,
        Hint(
            "what to learn: simclr tells patches apart, hidisc patients and slides too",
            choices=METHODS,
            choice_labels=("SimCLR", "HiDisc"),
        ),
    ]
    out: str
    tables: tuple[str, ...] = ()
    name: Annotated[str, Hint("name of the encoder")] = "encoder"
    arch: Annotated[
        str,
        Hint(
            "architecture: resnet34, mobilenetv2, or the name of any model of timm",
            label="Architecture",
            metavar="NAME",
        ),
    ] = "resnet34"
    init: Annotated[
        str,
        Hint(
            "weights to start from: imagenet, bundled (of mobilenetv2), none, or a "
            "file",
            label="Start from",
            metavar="START",
        ),
    ] = "imagenet"
    patch_size: Annotated[
        int | None,
        Hint(
            "side of the patches that the encoder will be used for",
            above=0,
            unit="px",
            automatic="the architecture's own",
            metavar="PX",
        ),
    ] = None
    mpp: Annotated[
        float | None,
        Hint(
            "pixel size of those patches",
            label="Patch pixel size",
            above=0,
            unit="µm",
            automatic="the architecture's own",
            digits=4,
            metavar="UM",
        ),
    ] = None
    view_size: Annotated[
        int | None,
        Hint(
            "side of the views to learn from, at the same pixel size; smaller is "
            "faster, and needed where tiles are smaller than patches",
            above=0,
            unit="px",
            automatic="the patch size",
            metavar="PX",
        ),
    ] = None
    tile_mpp: Annotated[
        float | None,
        Hint(
            "pixel size of tiles for which no table states it",
            label="Tile pixel size",
            above=0,
            unit="µm",
            digits=4,
            metavar="UM",
        ),
    ] = None
    slide_mpp: Annotated[
        float | None,
        Hint(
            "pixel size of slides whose file does not state it",
            label="Slide pixel size",
            above=0,
            unit="µm",
            digits=4,
            metavar="UM",
        ),
    ] = None
    channels: Annotated[
        str | None,
        Hint(
            "what is seen as red, green and blue: one to three channels by "
            "name or number, as DAPI,FITC,TRITC, or srh, stimulated Raman histology",
            automatic="all channels in their colours",
            metavar="CHANNELS",
        ),
    ] = None
    patches_per_slide: Annotated[
        int, Hint("most patches that are sampled from each slide", above=0)
    ] = 512
    memory_gb: Annotated[
        float,
        Hint(
            "most memory that pixels may take",
            label="Memory for pixels",
            above=0,
            unit="GB",
            flags=("--memory",),
            metavar="GB",
        ),
    ] = 4.0
    refresh: Annotated[
        float,
        Hint(
            "share of the patches in memory that others take the place of after each "
            "epoch",
            label="Renewed after each epoch",
            minimum=0,
            maximum=1,
            metavar="SHARE",
        ),
    ] = 0.1
    views: Annotated[int, Hint("views of each patch", minimum=2)] = 2
    group: Annotated[
        tuple[int, int],
        Hint(
            "slides of each patient, and patches of each slide, in a step",
            label="Slides per patient, patches per slide",
            above=0,
            metavar=("SLIDES", "PATCHES"),
        ),
    ] = (2, 2)
    level_weights: Annotated[
        tuple[float, float, float],
        Hint(
            "weights of the losses of patient, slide and patch",
            label="Weights of patient, slide, patch",
            minimum=0,
            metavar=("PATIENT", "SLIDE", "PATCH"),
        ),
    ] = (1.0, 1.0, 1.0)
    temperature: Annotated[
        float | None,
        Hint(
            "temperature of the loss",
            above=0,
            automatic=", ".join(f"{t:g} for {m}" for m, t in TEMPERATURES.items()),
            advanced=True,
            metavar="T",
        ),
    ] = None
    head: Annotated[
        str | None,
        Hint(
            "projection head: one linear layer, or two with or without batch norms",
            label="Projection head",
            choices=PATCH_HEADS,
            choice_labels=("Linear", "With batch norms", "Plain"),
            automatic=", ".join(f"{h} for {m}" for m, h in HEAD_OF.items()),
            advanced=True,
        ),
    ] = None
    freeze: Annotated[
        int,
        Hint(
            "number of first blocks that stay as they are",
            label="Frozen blocks",
            minimum=0,
        ),
    ] = 0
    statistics: Annotated[
        str | None,
        Hint(
            "statistics of batch norms: frozen keeps the start's, batch uses those of "
            "each batch",
            label="Batch norm statistics",
            choices=STATISTICS,
            automatic="frozen, or batch without a start",
            advanced=True,
        ),
    ] = None
    stay: Annotated[
        float,
        Hint(
            "weight of the distance from the start's own features, so that what it "
            "knew is kept",
            label="Stay near the start",
            minimum=0,
            advanced=True,
            metavar="W",
        ),
    ] = 0.0
    blend: Annotated[
        float,
        Hint(
            "share of learned weights in the result; the rest is the start's",
            label="Share of learned weights",
            above=0,
            maximum=1,
            advanced=True,
            metavar="SHARE",
        ),
    ] = 1.0
    half: Annotated[
        bool,
        Hint("write the encoder in half precision, at half the size"),
    ] = False
    augmentation: Augmentation = field(default_factory=Augmentation)
    epochs: Annotated[int | None, Hint("times that every patch is seen", above=0)] = 100
    batch_size: Annotated[int, Hint("patches in each step, over all GPUs", above=0)] = (
        128
    )
    learning_rate: LearningRate = 3e-4
    weight_decay: WeightDecay = 0.01
    warm_up: WarmUp = 0.1
    seed: Seed = 0
    device: Device = "auto"
    mixed_precision: MixedPrecision = True
    micro_batch: Annotated[
        int | None,
        Hint(
            "views in one pass through the network; the gradient stays that of the "
            "whole batch with frozen statistics only",
            minimum=2,
            automatic="as many as memory allows",
            advanced=True,
        ),
    ] = None
    workers: Annotated[
        int | None,
        Hint(
            "threads that make views; the views do not depend on their number",
            label="Threads that make views",
            above=0,
            automatic="one for each core beside a GPU, else one for four",
            advanced=True,
        ),
    ] = None
    checkpoint_steps: CheckpointSteps = 50
    validate_epochs: ValidateEpochs = None

    def __post_init__(self) -> None:
        conflicts = []
        if not any(self.level_weights):
            conflicts.append("One of level_weights at least must be greater than 0.")
        if self.init == "none" and (self.stay or self.blend < 1 or self.freeze):
            conflicts.append(
                "init is none: without a start there is nothing to freeze, stay near "
                "or blend."
            )
        check(self, *conflicts)
        asked_recipe(self.channels)

    def resolved(self, patch_size: int, mpp: float) -> "PatchTrainSettings":
        """The same with every None decided, for the architecture's own patches."""
        size = self.patch_size or patch_size
        return replace(
            self,
            patch_size=size,
            mpp=self.mpp or mpp,
            view_size=self.view_size or size,
            temperature=self.temperature or TEMPERATURES[self.method],
            head=self.head or HEAD_OF[self.method],
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
        with settings_of_file(path):
            plain = _tupled(plain)
            check_types(cls, plain)
            check_types(Augmentation, plain["augmentation"])
            augmentation = Augmentation(**plain["augmentation"])
            return cls(**{**plain, "augmentation": augmentation})


def _listed(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _listed(part) for name, part in value.items()}
    return [_listed(part) for part in value] if isinstance(value, tuple) else value


def _tupled(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _tupled(part) for name, part in value.items()}
    return tuple(_tupled(part) for part in value) if isinstance(value, list) else value
