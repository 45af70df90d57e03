"""BYOL: predict what a slowly moving copy of the model makes of the other view.

(Grill et al. 2020), with q the online prediction and z' the target's projection:

    L = 2 - 2 cos(q(view), z'(other view)), averaged over ordered pairs of views

The target follows the online network: target = m target + (1 - m) online, m from 0.99
to 1 by a cosine over the run.
"""

from copy import deepcopy
from itertools import permutations
from math import cos, pi

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spt_core.training.encoder import Encoder
from spt_core.training.heads import PROJECTED, projection_head
from spt_core.training.objectives.objective import Objective


def byol_loss(prediction: Tensor, target: Tensor) -> Tensor:
    """Of predictions and targets (views, batch, k)."""
    q = F.normalize(prediction.float(), dim=-1)
    z = F.normalize(target.float(), dim=-1)
    pairs = list(permutations(range(len(q)), 2))
    agreement = sum(((q[a] * z[b]).sum(-1).mean() for a, b in pairs), q.new_zeros(()))
    return 2 - 2 * agreement / len(pairs)


class BYOL(Objective):
    """One-layer projection and prediction, and the target network."""

    def __init__(
        self, encoder: Encoder, *, head: str = "batchnorm", momentum: float = 0.99
    ) -> None:
        super().__init__()
        self.momentum = momentum
        self.project = projection_head(encoder.dim, PROJECTED, head=head)
        self.predict = projection_head(PROJECTED, PROJECTED, head=head)
        self.target_encoder = deepcopy(encoder).requires_grad_(False)
        self.target_project = deepcopy(self.project).requires_grad_(False)

    @property
    def target(self) -> Encoder:
        return self.target_encoder

    def forward(
        self, h: Tensor, *, labels: Tensor | None = None, h_target: Tensor | None = None
    ) -> dict[str, Tensor]:
        if h_target is None:
            raise ValueError("BYOL needs the target network's embeddings.")
        shape = h.shape[:2]
        prediction = self.predict(self.project(h.flatten(0, 1))).unflatten(0, shape)
        with torch.no_grad():
            target = self.target_project(h_target.flatten(0, 1)).unflatten(0, shape)
        return {"loss": byol_loss(prediction, target)}

    @torch.no_grad()
    def after_step(self, encoder: nn.Module, progress: float) -> None:
        momentum = 1 - (1 - self.momentum) * (cos(pi * progress) + 1) / 2
        for target, online in (
            (self.target_encoder, encoder),
            (self.target_project, self.project),
        ):
            torch._foreach_lerp_(
                list(target.parameters()),
                [weight.detach() for weight in online.parameters()],
                1 - momentum,
            )
