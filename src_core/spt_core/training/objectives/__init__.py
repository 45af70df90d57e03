"""What an encoder learns by: one objective per module, one call signature."""

from torch import Tensor

from spt_core.training.encoder import Encoder
from spt_core.training.objectives.byol import BYOL
from spt_core.training.objectives.classify import Classify
from spt_core.training.objectives.objective import Objective
from spt_core.training.objectives.simclr import SimCLR
from spt_core.training.objectives.supcon import SupCon
from spt_core.training.objectives.vicreg import VICReg

__all__ = [
    "BYOL",
    "Classify",
    "Objective",
    "SimCLR",
    "SupCon",
    "VICReg",
    "build_objective",
]


def build_objective(
    name: str,
    encoder: Encoder,
    *,
    head: str = "batchnorm",
    classes: int = 0,
    class_weights: Tensor | None = None,
    momentum: float = 0.99,
    temperature: float = 0.07,
    vicreg_weights: tuple[float, float, float] = (10, 10, 1),
) -> Objective:
    """Make an objective for an encoder, by its name on the command line."""
    dim = encoder.dim
    if name == "classify":
        return Classify(
            dim, classes, class_weights=class_weights, own_loss=encoder.own_loss
        )
    if name == "byol":
        return BYOL(encoder, head=head, momentum=momentum)
    if name == "vicreg":
        invariance, variance, covariance = vicreg_weights
        return VICReg(
            dim,
            head=head,
            invariance=invariance,
            variance=variance,
            covariance=covariance,
        )
    contrastive = {"simclr": SimCLR, "supcon": SupCon}[name]
    return contrastive(dim, head=head, temperature=temperature)
