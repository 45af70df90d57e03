"""VICReg: views agree, every dimension varies, no two dimensions say the same.

(Bardes et al. 2022), for views z and z' (batch, k):

    invariance  mean (z - z')^2
    variance    mean over dimensions of max(0, 1 - sqrt(var(z) + eps)), mean of views
    covariance  sum of the squared off-diagonal of cov(z) / k, summed over both views

    L = 10 invariance + 10 variance + 1 covariance

The last layer of the projection has no BatchNorm: behind one every dimension varies as
much as any, and the variance term has nothing to say.

With more than two views: the mean invariance of all pairs, and the covariance of an
average view twice.
"""

from itertools import combinations

import torch
import torch.nn.functional as F
from torch import Tensor

from spt_core.training.heads import PROJECTED, projection_head
from spt_core.training.objectives.objective import Objective

EPSILON = 1e-4


def vicreg_terms(z: Tensor) -> dict[str, Tensor]:
    """The three terms, unweighted, of z (views, batch, k)."""
    z = z.float()
    views, batch, k = z.shape
    pairs = list(combinations(range(views), 2))
    invariance = sum((F.mse_loss(z[a], z[b]) for a, b in pairs), z.new_zeros(()))
    centred = z - z.mean(dim=1, keepdim=True)
    spread = (centred.square().sum(dim=1) / (batch - 1) + EPSILON).sqrt()
    covariance = centred.transpose(1, 2) @ centred / (batch - 1)  # (views, k, k)
    diagonal = torch.eye(k, dtype=torch.bool, device=z.device)
    off_diagonal = covariance.masked_fill(diagonal, 0).square().sum(dim=(1, 2)) / k
    return {
        "invariance": invariance / len(pairs),
        "variance": F.relu(1 - spread).mean(),
        "covariance": 2 * off_diagonal.mean(),
    }


class VICReg(Objective):
    """Two-layer projection, variance, invariance and covariance."""

    def __init__(
        self,
        dim: int,
        *,
        head: str = "batchnorm",
        invariance: float = 10,
        variance: float = 10,
        covariance: float = 1,
    ) -> None:
        super().__init__()
        self.head = projection_head(dim, dim, PROJECTED, head=head, last_norm=False)
        self.weights = {
            "invariance": invariance,
            "variance": variance,
            "covariance": covariance,
        }

    def forward(
        self, h: Tensor, *, labels: Tensor | None = None, h_target: Tensor | None = None
    ) -> dict[str, Tensor]:
        z = self.head(h.flatten(0, 1)).unflatten(0, h.shape[:2])
        terms = vicreg_terms(z)
        loss = sum(
            (self.weights[name] * term for name, term in terms.items()), z.new_zeros(())
        )
        return {"loss": loss, **terms}
