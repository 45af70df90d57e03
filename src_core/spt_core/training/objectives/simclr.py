"""SimCLR: the other view of the same item is the positive, all else is negative.

NT-Xent (Chen et al. 2020), z of unit length, for views i and j of one item:

    L_ij = -log( exp(z_i.z_j / t) / sum_{a != i} exp(z_i.z_a / t) )

averaged over all views; with more than two views, over each one's positives.
"""

from math import log

import torch
from torch import Tensor

from spt_core.training.heads import PROJECTED, projection_head
from spt_core.training.objectives.objective import Objective
from spt_core.training.objectives.supcon import contrastive_loss


def nt_xent(z: Tensor, temperature: float) -> Tensor:
    """NT-Xent of z (views, batch, k): every item is a class of its own."""
    return contrastive_loss(z, torch.arange(z.shape[1], device=z.device), temperature)


class SimCLR(Objective):
    """Two-layer projection, NT-Xent."""

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
        return {"loss": nt_xent(z, self.temperature)}

    def chance_level(self, batch: int, views: int) -> float | None:
        return log(views * batch - 1) if views * batch > 2 else None
