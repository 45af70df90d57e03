"""Supervised contrastive learning: items of one class are positives.

For anchor i among all views of all items, with P(i) the other views of its class:

    L_i = -1/|P(i)| sum over p in P(i) of
          log( exp(z_i.z_p / t) / sum_{a != i} exp(z_i.z_a / t) )

(Khosla et al. 2020, L_out), z of unit length, averaged over anchors.
"""

from math import log

import torch
import torch.nn.functional as F
from torch import Tensor

from spt_core.training.heads import PROJECTED, projection_head
from spt_core.training.objectives.objective import Objective


def contrastive_loss(
    z: Tensor, labels: Tensor, temperature: float, unrelated: Tensor | None = None
) -> Tensor:
    """The mean of L_i over all views of all items.

    Parameters
    ----------
    z : (views, batch, k), of any length
    labels : (batch,)
    unrelated : (batch, batch)
        True where two items are neither positive nor negative to each other: they are
        left out of the sum.
    """
    views, batch, _ = z.shape
    z = F.normalize(z.flatten(0, 1).float(), dim=-1)  # (views * batch, k)
    similarity = z @ z.T / temperature
    itself = torch.eye(views * batch, dtype=torch.bool, device=z.device)
    similarity = similarity.masked_fill(itself, -torch.inf)
    if unrelated is not None:
        similarity = similarity.masked_fill(unrelated.repeat(views, views), -torch.inf)
    log_odds = similarity - similarity.logsumexp(dim=1, keepdim=True)
    labels = labels.repeat(views)
    positive = (labels[:, None] == labels[None, :]) & ~itself
    return -(log_odds.masked_fill(~positive, 0).sum(1) / positive.sum(1)).mean()


class SupCon(Objective):
    """Two-layer projection, contrastive loss over classes."""

    needs_labels = True

    def __init__(
        self, dim: int, *, head: str = "batchnorm", temperature: float = 0.07
    ) -> None:
        super().__init__()
        self.head = projection_head(dim, dim, PROJECTED, head=head)
        self.temperature = temperature

    def forward(
        self, h: Tensor, *, labels: Tensor | None = None, h_target: Tensor | None = None
    ) -> dict[str, Tensor]:
        if labels is None:
            raise ValueError("SupCon needs labels.")
        z = self.head(h.flatten(0, 1)).unflatten(0, h.shape[:2])
        return {"loss": contrastive_loss(z, labels, self.temperature)}

    def chance_level(self, batch: int, views: int) -> float | None:
        if self.varies or views * batch <= 2:
            return None
        return log(views * batch - 1)
