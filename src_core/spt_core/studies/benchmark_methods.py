"""The methods that a benchmark compares, and the ablations of the paper.

A method says how a slide model comes about: by what it learns, which encoder it is and
what views it sees. What is measured of it is the same for all.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from spt_core.learning.views import ViewSettings


@dataclass(frozen=True)
class Method:
    """One way to a slide embedding.

    Attributes
    ----------
    says
        One line for ``--help`` and the report.
    objective
        What it learns by; None where nothing is learned.
    model
        Its aggregator; None for the slide encoder that the settings name.
    views
        What differs from the views of the settings.
    pretraining
        What it learns by before, without labels, from the same slides.
    from_init
        Whether it begins from the model that the settings name.
    """

    name: str
    says: str
    objective: str | None = None
    model: str | None = None
    views: Mapping[str, Any] = field(default_factory=dict)
    pretraining: str | None = None
    from_init: bool = False

    @property
    def learns(self) -> bool:
        return self.objective is not None

    @property
    def uses_labels(self) -> bool:
        return self.objective in ("supcon", "classify")

    @property
    def has_seeds(self) -> bool:
        """Whether another seed makes another model."""
        return self.learns or self.name == "untrained"

    @property
    def is_spt(self) -> bool:
        return self.model is None

    def view_settings(self, given: ViewSettings) -> ViewSettings:
        return replace(given, **self.views)


# Giga-SSL: no coordinates enter its views, and few tiles make one.
_FEW_TILES = {
    "split": False,
    "crop": False,
    "mask": True,
    "mask_keep": (1.0, 1.0),
    "max_tokens": 5,
}

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("mean", "the mean token", model="mean"),
        Method("max", "the largest value of each feature", model="max"),
        Method("untrained", "the slide encoder as it is before training"),
        Method(
            "giga-ssl",
            "contrastive learning of slides by views of a few tiles",
            "simclr",
            views=_FEW_TILES,
        ),
        Method("ssspt-simclr", "self-supervised SPT by SimCLR", "simclr"),
        Method("ssspt-vicreg", "self-supervised SPT by VICReg", "vicreg"),
        Method("ssspt-byol", "self-supervised SPT by BYOL", "byol"),
        Method("suspt", "SPT by supervised contrastive learning", "supcon"),
        Method("classify", "SPT as a classifier", "classify"),
        Method(
            "pretrained-classify",
            "SPT by SimCLR in each fold, then as a classifier",
            "classify",
            pretraining="simclr",
        ),
        Method(
            "finetune",
            "the model of --init, taught the labels",
            "classify",
            from_init=True,
        ),
        Method("abmil", "gated attention pooling", "classify", "abmil"),
        Method("clam", "attention pooling with clustering", "classify", "clam"),
        Method("dsmil", "dual-stream pooling", "classify", "dsmil"),
        Method("transmil", "a transformer of linear cost", "classify", "transmil"),
        Method("hipt", "a transformer of regions of patches", "classify", "hipt"),
    )
}


@dataclass(frozen=True)
class Variant:
    """One line of an ablation: what is changed of a method."""

    name: str
    views: Mapping[str, Any] = field(default_factory=dict)
    architecture: Mapping[str, int] = field(default_factory=dict)
    objective: str | None = None


@dataclass(frozen=True)
class AblationPlan:
    """Variants of self-supervised SPT, to be compared with one another."""

    title: str
    variants: tuple[Variant, ...]
    is_ordered: bool = False


def _transformations() -> tuple[Variant, ...]:
    """The paper's six; splitting alone leaves all tokens and is left out there too."""
    found = []
    for split, crop, mask in (
        (False, False, True),
        (False, True, False),
        (True, False, True),
        (True, True, False),
        (False, True, True),
        (True, True, True),
    ):
        on = {"split": split, "crop": crop, "mask": mask}
        name = " + ".join(what for what, is_on in on.items() if is_on)
        found.append(Variant(name, views=on))
    return tuple(found)


def _token_limits() -> tuple[Variant, ...]:
    return tuple(
        Variant(f"{limit} tokens", views={"max_tokens": limit})
        for limit in (16, 32, 64, 128, 256)
    )


def _crops() -> tuple[Variant, ...]:
    ranges = ((25, 100), (50, 200), (100, 400), (200, 800), (400, 1600))
    found = [
        Variant(
            f"{low} to {high} cells", views={"crop_area": (float(low), float(high))}
        )
        for low, high in ranges
    ]
    return (*found, Variant("no crop", views={"crop": False}))


ABLATIONS: dict[str, AblationPlan] = {
    "transformations": AblationPlan("Transformations", _transformations()),
    "tokens": AblationPlan("Token limit", _token_limits(), is_ordered=True),
    "crop": AblationPlan("Crop range", _crops()),
    "depth": AblationPlan(
        "Number of layers",
        tuple(
            Variant(f"{depth} layers", architecture={"depth": depth})
            for depth in (2, 4, 6, 8)
        ),
        is_ordered=True,
    ),
    "objective": AblationPlan(
        "Objective",
        tuple(Variant(name, objective=name) for name in ("simclr", "vicreg", "byol")),
    ),
}
# What the other ablations vary where no self-supervised method is asked for.
ABLATED = "ssspt-simclr"
