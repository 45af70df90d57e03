"""TransMIL: a transformer over the tokens in their order, laid out as a square."""

from math import isqrt

import torch
from torch import Tensor, nn

from spt_core.learning.aggregator import Aggregator
from spt_core.learning.attended import Attended
from spt_core.learning.nystrom import NystromAttention
from spt_core.learning.padding import slides_of

# Floats that the graph of a token holds for each unit of dim, as measured; and that of
# a slide, for each number in the matrices of landmarks.
GRAPH_FLOATS, INVERSE_FLOATS = 23, 70


class Pyramid(nn.Module):
    """PPEG: what stands around a token says where it is.

    Convolutions of 7, 5 and 3 cells, for each feature by itself, over the tokens as
    the square that they fill row by row.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(
            nn.Conv2d(dim, dim, size, padding=size // 2, groups=dim)
            for size in (7, 5, 3)
        )

    def forward(self, tokens: Tensor) -> Tensor:  # (b, side * side, dim), same
        side = isqrt(tokens.shape[1])
        square = tokens.transpose(1, 2).unflatten(2, (side, side))
        square = square + sum(one(square) for one in self.convolutions)
        return square.flatten(2).transpose(1, 2)


class TransMil(Aggregator):
    """TransMIL (Shao et al. 2021).

    t = ReLU(linear(x)); the first tokens once more until they fill a square; a CLS
    token; Nystrom attention, the convolutions of :class:`Pyramid`, Nystrom attention;
    h is the CLS token after a LayerNorm. Tokens are taken in the order they come in,
    row by row in feature files; places are not looked at.

    Slides of a padded batch are taken one by one: their squares are of their own size.

    Parameters
    ----------
    landmarks
        Of Nystrom attention; half of ``dim`` if 0.
    """

    name = "transmil"

    def __init__(
        self,
        in_dim: int,
        dim: int = 512,
        heads: int = 8,
        landmarks: int = 0,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        if dim % heads:
            raise ValueError(f"dim {dim} cannot be shared by {heads} heads.")
        landmarks = landmarks or dim // 2
        self.config = {
            "in_dim": in_dim,
            "dim": dim,
            "heads": heads,
            "landmarks": landmarks,
            "dropout": dropout,
        }
        self.in_dim, self.dim, self.heads = in_dim, dim, heads
        self.has_dropout = dropout > 0
        self.token_floats = GRAPH_FLOATS * dim
        self.slide_floats = INVERSE_FLOATS * heads * landmarks**2
        self.input = nn.Sequential(nn.Linear(in_dim, dim), nn.ReLU())
        self.cls = nn.Parameter(torch.randn(dim))
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attention1 = NystromAttention(dim, heads, landmarks)
        self.attention2 = NystromAttention(dim, heads, landmarks)
        self.pyramid = Pyramid(dim)
        self.norm = nn.LayerNorm(dim)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor, p: Tensor, mask: Tensor | None = None) -> Tensor:
        if mask is None:
            return self._cls(self._before_last(x))
        slides = slides_of(x, p, mask)
        return torch.cat([self._cls(self._before_last(one[None])) for one, _ in slides])

    @torch.no_grad()
    def attend(self, x: Tensor, p: Tensor) -> Attended:
        """The last layer's row of CLS, without CLS, made to sum to one.

        A token that stands in the square twice has the weight of both. Nystrom
        attention may be below zero; such weights count as none.
        """
        n = len(x)
        tokens = self._before_last(x.to(self.cls)[None])
        row = self.last_row(tokens)[0].clamp(min=0)  # (heads, side * side)
        attention, again = row.split([n, row.shape[1] - n], dim=1)
        attention = attention.clone()
        attention[:, : again.shape[1]] += again
        total = attention.sum(dim=1, keepdim=True)
        even = torch.full_like(attention, 1 / n)
        attention = torch.where(total > 0, attention / total, even)
        return Attended(self._cls(tokens)[0], attention)

    def last_row(self, tokens: Tensor) -> Tensor:
        """How CLS attends in the last layer, (b, heads, side * side)."""
        return self.attention2.first_row(self.norm2(tokens))[:, :, 1:]

    def _before_last(self, x: Tensor) -> Tensor:
        """CLS and the square (b, 1 + side * side, dim) before the last layer."""
        tokens = self.input(x)
        n = tokens.shape[1]
        side = isqrt(n - 1) + 1
        tokens = torch.cat([tokens, tokens[:, : side * side - n]], dim=1)
        cls = self.cls.to(tokens.dtype).expand(len(x), 1, -1)
        tokens = torch.cat([cls, tokens], dim=1)
        tokens = tokens + self.drop(self.attention1(self.norm1(tokens)))
        return torch.cat([tokens[:, :1], self.pyramid(tokens[:, 1:])], dim=1)

    def _cls(self, tokens: Tensor) -> Tensor:
        mixed = self.attention2(self.norm2(tokens), first=True)
        return self.norm(tokens[:, 0] + self.drop(mixed[:, 0]))
