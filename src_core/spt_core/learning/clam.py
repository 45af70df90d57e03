"""CLAM: attention pooling that also sorts the tokens it looks at most and least."""

from math import e, log

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spt_core.learning.gated_attention import GatedAttention
from spt_core.training.encoder import OwnLoss

INSTANCE_SHARE = 0.3


class Clam(GatedAttention):
    """CLAM with a single attention branch (Lu et al. 2021).

    Beside gated attention there is a linear score s_c for each class c. Of a slide of
    class y, the k tokens with most attention are to be of y and the k with least are
    not; being of y, those with most are of no other class. With the smooth SVM loss

        l(s, is) = log(1 + exp(1 - s)) where it is to be, log(1 + exp(1 + s)) where not

    the slide adds, averaged over classes, the mean l of its 2 k tokens for y and of the
    k with most attention for each other class. That is 0.3 of the whole loss, the
    slide's classifier 0.7. Slides of fewer than 2 k tokens lend half of them each.

    Parameters
    ----------
    instances
        k of above.
    """

    name = "clam"

    def __init__(
        self,
        in_dim: int,
        dim: int = 512,
        hidden: int = 256,
        classes: int = 2,
        instances: int = 8,
        dropout: float = 0.25,
    ) -> None:
        super().__init__(in_dim, dim, hidden, dropout)
        self.config |= {"classes": classes, "instances": instances}
        self.instances = instances
        self.own_loss = OwnLoss(classes, INSTANCE_SHARE, chance=log(1 + e))
        self.instance = nn.Linear(dim, classes)

    def for_objective(self, x: Tensor, p: Tensor, mask: Tensor | None = None) -> Tensor:
        h, scores, tokens = self.pool(x, mask)
        return torch.cat([h.float(), self._own_losses(scores, tokens, mask)], dim=1)

    def _own_losses(
        self, scores: Tensor, tokens: Tensor, mask: Tensor | None
    ) -> Tensor:
        """(b, classes) what a slide adds to the loss if it is of each class."""
        b, n = scores.shape
        k = min(self.instances, n)
        most = scores.topk(k, dim=1).indices
        if mask is not None:
            scores = scores.masked_fill(~mask, torch.inf)
        least = scores.topk(k, dim=1, largest=False).indices
        chosen = torch.cat([most, least], dim=1)[..., None]
        chosen = tokens.gather(1, chosen.expand(-1, -1, tokens.shape[2]))
        for_most, for_least = self.instance(chosen).float().split(k, dim=1)
        # Of short slides fewer than k: no token is to be both.
        real = scores.new_full((b,), n) if mask is None else mask.sum(dim=1)
        lent = (real // 2).clamp(max=k)
        is_lent = torch.arange(k, device=scores.device) < lent[:, None]

        def mean(losses: Tensor) -> Tensor:  # (b, k, classes) -> (b, classes)
            kept = (losses * is_lent[..., None]).sum(dim=1)
            return kept / lent.clamp(min=1)[:, None]

        is_class = mean(F.softplus(1 - for_most))
        is_other = mean(F.softplus(1 + for_most))
        inside = (is_class + mean(F.softplus(1 + for_least))) / 2
        others = is_other.sum(dim=1, keepdim=True) - is_other
        return (inside + others) / is_other.shape[1]
