"""SimCLR: the other view of the same item is the positive, all else is negative.

NT-Xent (Chen et al. 2020), z of unit length, for views i and j of one item:

    L_ij = -log( exp(z_i.z_j / t) / sum_{a != i} exp(z_i.z_a / t) )

averaged over all views; with more than two views, over each one's positives. Views a of
items that are no negatives of one another (slides of one patient, or of different
sites where only those of one site are compared) are left out of the sum.
"""

from math import log

import torch
from torch import Tensor

from spt_core.training.heads import PROJECTED, projection_head
from spt_core.training.objectives.objective import Objective
from spt_core.training.objectives.supcon import contrastive_loss


def nt_xent(z: Tensor, temperature: float, unrelated: Tensor | None = None) -> Tensor:
    """NT-Xent of z (views, batch, k): every item is a class of its own.

    Parameters
    ----------
    unrelated : (batch, batch)
        True where two items are no negatives of one another.
    """
    each = torch.arange(z.shape[1], device=z.device)
    return contrastive_loss(z, each, temperature, unrelated)


def no_negatives(groups: Tensor) -> Tensor:
    """Which items are no negatives of one another, (batch, batch).

    Parameters
    ----------
    groups : (batch, 2)
        Each item's group whose members are no negatives (its patient), and the one
        whose members alone are (its site).
    """
    patient, site = groups[:, 0], groups[:, 1]
    related = (patient[:, None] != patient[None, :]) & (site[:, None] == site[None, :])
    itself = torch.eye(len(groups), dtype=torch.bool, device=groups.device)
    return ~(related | itself)


def level_of_chance(groups: Tensor, views: int) -> float:
    """NT-Xent where all views are equally alike, for the groups of a batch."""
    others = views * (~no_negatives(groups)).sum(dim=1) - 1
    return float(others.log().mean())


class SimCLR(Objective):
    """Two-layer projection, NT-Xent.

    Attributes
    ----------
    chance
        The mean level of chance where items are kept apart from some others alone.
    """

    chance: float | None = None

    def __init__(
        self, dim: int, *, head: str = "batchnorm", temperature: float = 0.07
    ) -> None:
        super().__init__()
        self.head = projection_head(dim, dim, PROJECTED, head=head)
        self.temperature = temperature

    def forward(
        self, h: Tensor, *, labels: Tensor | None = None, h_target: Tensor | None = None
    ) -> dict[str, Tensor]:
        z = self.head(h.flatten(0, 1)).unflatten(0, h.shape[:2])
        # Class numbers, (batch,), say nothing of who is compared.
        grouped = labels is not None and labels.ndim == 2
        unrelated = no_negatives(labels) if grouped else None  # type: ignore[arg-type]
        return {"loss": nt_xent(z, self.temperature, unrelated)}

    def chance_level(self, batch: int, views: int) -> float | None:
        if self.chance is not None:
            return self.chance
        if self.varies or views * batch <= 2:
            return None
        return log(views * batch - 1)
