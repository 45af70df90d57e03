"""Pooling: from tokens to a slide embedding without anything to learn."""

import torch
from torch import Tensor

from spt_core.learning.aggregator import Aggregator
from spt_core.learning.attended import Attended


class MeanPooling(Aggregator):
    """The mean token: nothing to learn."""

    name = "mean"
    heads = 1

    def __init__(self, in_dim: int) -> None:
        super().__init__()
        self.config = {"in_dim": in_dim}
        self.in_dim = self.dim = in_dim

    def forward(self, x: Tensor, p: Tensor, mask: Tensor | None = None) -> Tensor:
        if mask is None:
            return x.mean(dim=1)
        real = mask[..., None].to(x)
        return (x * real).sum(dim=1) / real.sum(dim=1)

    def attend(self, x: Tensor, p: Tensor) -> Attended:
        """Every token counts alike."""
        x = x.float()
        return Attended(x.mean(dim=0), x.new_full((1, len(x)), 1 / len(x)))


class MaxPooling(Aggregator):
    """The largest value of each feature: nothing to learn."""

    name = "max"
    heads = 1

    def __init__(self, in_dim: int) -> None:
        super().__init__()
        self.config = {"in_dim": in_dim}
        self.in_dim = self.dim = in_dim

    def forward(self, x: Tensor, p: Tensor, mask: Tensor | None = None) -> Tensor:
        if mask is not None:
            x = x.masked_fill(~mask[..., None], -torch.inf)
        return x.amax(dim=1)

    def attend(self, x: Tensor, p: Tensor) -> Attended:
        """A token's weight is the share of features that it is the largest in."""
        h, winners = x.float().max(dim=0)
        share = h.new_zeros(len(x)).index_add(0, winners, torch.ones_like(h))
        return Attended(h, share[None] / x.shape[1])
