"""Gated attention: a weighted mean of embedded tokens, whose weights are learned."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spt_core.learning.aggregator import Aggregator
from spt_core.learning.attended import Attended

# Floats that the graph of a token holds for each unit of dim, as measured; and those
# that dropout adds.
POOLING_FLOATS, DROPOUT_FLOATS = 3, 4


class GatedAttention(Aggregator):
    """Gated-attention ABMIL (Ilse et al. 2018).

    a = softmax(w' (tanh(V t) * sigmoid(U t))), t = ReLU(linear(x)), h = sum a t.

    Parameters
    ----------
    dropout
        Of t, tanh(V t) and sigmoid(U t) in training, as the recent literature has it.
        Model files that do not state it were trained without.
    """

    name = "abmil"
    heads = 1

    def __init__(
        self, in_dim: int, dim: int = 512, hidden: int = 256, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.config = {
            "in_dim": in_dim,
            "dim": dim,
            "hidden": hidden,
            "dropout": dropout,
        }
        self.in_dim, self.dim = in_dim, dim
        self.has_dropout = dropout > 0
        self.token_floats = (POOLING_FLOATS + DROPOUT_FLOATS * self.has_dropout) * dim
        self.input = nn.Sequential(
            nn.Linear(in_dim, dim), nn.ReLU(), nn.Dropout(dropout)
        )
        self.value = nn.Linear(dim, hidden)
        self.gate = nn.Linear(dim, hidden)
        self.score = nn.Linear(hidden, 1)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor, p: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.pool(x, mask)[0]

    @torch.no_grad()
    def attend(self, x: Tensor, p: Tensor) -> Attended:
        h, scores, _ = self.pool(x.to(self.score.weight)[None], None)
        return Attended(h[0], scores.softmax(dim=1))

    def pool(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """h (b, dim), scores (b, n) and embedded tokens (b, n, dim) of x (b, n, ...).

        Scores of padding are minus infinity.
        """
        tokens = self.input(x)
        scores = gated_scores(tokens, self.value, self.gate, self.score, self.drop)
        if mask is not None:
            scores = scores.masked_fill(~mask, -torch.inf)
        attention = F.softmax(scores, dim=1).to(tokens)
        return torch.einsum("bn,bnd->bd", attention, tokens), scores, tokens


def gated_scores(
    tokens: Tensor,
    value: nn.Module,
    gate: nn.Module,
    score: nn.Module,
    drop: nn.Module,
) -> Tensor:
    """How much each token counts, before the softmax: (..., n) of (..., n, dim)."""
    gated = drop(value(tokens).tanh()) * drop(gate(tokens).sigmoid())
    return score(gated).squeeze(-1).float()
