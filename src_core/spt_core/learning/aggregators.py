"""Other ways from tokens to a slide embedding, and all of them by name."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spt_core.learning.aggregator import Aggregator
from spt_core.learning.attended import Attended
from spt_core.learning.slide_encoder import PRESETS, SlideEncoder


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


class GatedAttention(Aggregator):
    """Gated-attention ABMIL (Ilse et al. 2018): a weighted mean of embedded tokens.

    a = softmax(w' (tanh(V t) * sigmoid(U t))), t = ReLU(linear(x)), h = sum a t.
    """

    name = "abmil"
    heads = 1

    def __init__(self, in_dim: int, dim: int = 512, hidden: int = 256) -> None:
        super().__init__()
        self.config = {"in_dim": in_dim, "dim": dim, "hidden": hidden}
        self.in_dim, self.dim = in_dim, dim
        self.input = nn.Sequential(nn.Linear(in_dim, dim), nn.ReLU())
        self.value = nn.Linear(dim, hidden)
        self.gate = nn.Linear(dim, hidden)
        self.score = nn.Linear(hidden, 1)

    def forward(self, x: Tensor, p: Tensor, mask: Tensor | None = None) -> Tensor:
        return self._pool(x, mask)[0]

    @torch.no_grad()
    def attend(self, x: Tensor, p: Tensor) -> Attended:
        h, attention = self._pool(x.to(self.score.weight)[None], None)
        return Attended(h[0], attention)

    def _pool(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        tokens = self.input(x)  # (b, n, dim)
        gated = self.value(tokens).tanh() * self.gate(tokens).sigmoid()
        scores = self.score(gated).squeeze(-1).float()  # (b, n)
        if mask is not None:
            scores = scores.masked_fill(~mask, -torch.inf)
        attention = F.softmax(scores, dim=1)
        return torch.einsum("bn,bnd->bd", attention.to(tokens), tokens), attention


AGGREGATORS: dict[str, type[Aggregator]] = {
    kind.name: kind for kind in (SlideEncoder, MeanPooling, MaxPooling, GatedAttention)
}


def build_encoder(name: str, in_dim: int, **config: int) -> Aggregator:
    """Make an encoder by a preset's name or an aggregator's, with its own options."""
    if name in PRESETS:
        return SlideEncoder(in_dim, **{**PRESETS[name], **config})
    return AGGREGATORS[name](in_dim, **config)
