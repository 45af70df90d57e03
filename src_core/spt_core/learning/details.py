"""How a training is done in detail: values of the paper, which few people change."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Annotated, Any

from spt_core.hints import Hint, check, check_types, refuse_unknown
from spt_core.training.options import (
    Head,
    Momentum,
    Temperature,
    VicregWeights,
    WarmUp,
    WeightDecay,
)

WITHOUT_LABELS = ("simclr", "vicreg", "byol")


@dataclass(frozen=True)
class LearningDetails:
    """What a study and a benchmark hand on to each of their trainings."""

    pretraining: Annotated[
        str,
        Hint(
            "what learning without labels learns by",
            label="Without labels, learn by",
            choices=WITHOUT_LABELS,
            choice_labels=("SimCLR", "VICReg", "BYOL"),
            advanced=True,
        ),
    ] = "simclr"
    temperature: Temperature = 0.07
    vicreg_weights: VicregWeights = (10.0, 10.0, 1.0)
    momentum: Momentum = 0.99
    head: Head = "batchnorm"
    weight_decay: WeightDecay = 0.01
    warm_up: WarmUp = 0.1

    def __post_init__(self) -> None:
        check(self)

    def of_training(self) -> dict[str, Any]:
        """As a training takes them, which has an objective of its own."""
        found = {one.name: getattr(self, one.name) for one in fields(self)}
        del found["pretraining"]
        return found

    def changed(self) -> dict[str, Any]:
        """What differs from the usual; what was begun before there was a choice of
        them has nothing."""
        usual = asdict(LearningDetails())
        return {name: one for name, one in asdict(self).items() if one != usual[name]}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any] | None) -> "LearningDetails":
        """From plain data, as a file has it."""
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in (plain or {}).items()
        }
        refuse_unknown(cls, values)
        check_types(cls, values)
        return cls(**values)
