"""The slide encoder f: patch tokens and their places in, one slide embedding out.

A pre-norm transformer with a CLS token and learnable Fourier positions. ``forward``
takes padded batches (training, windows); ``attend`` takes one whole slide and also
says where the CLS token looks.
"""

from math import sqrt

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spt_core.devices import attention_rows, full_precision
from spt_core.learning.aggregator import Aggregator
from spt_core.learning.attended import Attended, interleaved_groups, join_groups
from spt_core.training.initial_weights import xavier

# by name: keyword arguments of SlideEncoder
PRESETS: dict[str, dict[str, int]] = {
    "paper": {"dim": 512, "depth": 6, "heads": 4},
    "paper-2": {"dim": 512, "depth": 2, "heads": 4},
    "paper-4": {"dim": 512, "depth": 4, "heads": 4},
    "paper-8": {"dim": 512, "depth": 8, "heads": 4},
    "small": {"dim": 192, "depth": 2, "heads": 3},
}

# Floats that a token's graph holds for each unit of dim and layer, as measured.
GRAPH_FLOATS = 18
# A slide with more tokens is attended in groups of at most so many.
ATTEND_GROUP = 20_000


class FourierPositions(nn.Module):
    """Learnable Fourier features of grid (row, col), after Li et al. 2021.

    [cos(p W), sin(p W)] / sqrt(96), then a small MLP; W is trained too.
    """

    def __init__(self, dim: int, *, features: int = 96, hidden: int = 36) -> None:
        super().__init__()
        self.project = nn.Linear(2, features // 2, bias=False)
        self.mlp = nn.Sequential(
            nn.LayerNorm(features),
            nn.Linear(features, hidden),
            nn.GELU(),
            nn.LayerNorm(hidden),
            nn.Linear(hidden, dim),
        )
        self.scale = 1 / sqrt(features)
        nn.init.normal_(self.project.weight, std=0.25)
        xavier(self.mlp)

    def forward(self, p: Tensor) -> Tensor:  # (..., 2) -> (..., dim)
        # Grid numbers reach hundreds, where half precision has no room for a phase.
        with full_precision(p.device):
            phase = self.project(p.float())
            waves = torch.cat([phase.cos(), phase.sin()], dim=-1) * self.scale
        return self.mlp(waves)


class Attention(nn.Module):
    """Self-attention without bias on queries, keys and values."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.out = nn.Linear(dim, dim)

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        b, n, dim = tokens.shape
        qkv = self.qkv(tokens).view(b, n, 3, self.heads, dim // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each (b, heads, n, dim / heads)
        if mask is not None:
            mask = mask[:, None, None, :]  # nobody looks at padding
        rows = attention_rows(q.device, b * self.heads, n)
        parts = [
            F.scaled_dot_product_attention(some, k, v, attn_mask=mask)
            for some in q.split(rows, dim=2)
        ]
        mixed = parts[0] if len(parts) == 1 else torch.cat(parts, dim=2)
        return self.out(mixed.transpose(1, 2).reshape(b, n, dim))

    def first_query(
        self, tokens: Tensor, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """What token 0 takes from all n; neither keys nor values are ever formed.

        q . (K t) = (K' q) . t, and the sum of a_i V t_i is V times the sum of a_i t_i,
        so both projections are done once for each head instead of for each token.

        Returns
        -------
        mixed (b, dim), attention (b, heads, n), log-sum-exp of the scores (b, heads)
        """
        b, _, dim = tokens.shape
        each = dim // self.heads
        to_q, to_k, to_v = self.qkv.weight.view(3, self.heads, each, dim)
        q = torch.einsum("bd,hed->bhe", tokens[:, 0], to_q)
        probe = torch.einsum("bhe,hed->bhd", q, to_k) / sqrt(each)
        scores = (probe @ tokens.transpose(1, 2)).float()  # (b, heads, n)
        if mask is not None:
            scores = scores.masked_fill(~mask[:, None], -torch.inf)
        total = scores.logsumexp(dim=-1)
        attention = (scores - total[..., None]).exp()
        pooled = attention.to(tokens) @ tokens  # (b, heads, dim)
        mixed = torch.einsum("bhd,hed->bhe", pooled, to_v).reshape(b, dim)
        return self.out(mixed), attention, total


class Block(nn.Module):
    """One pre-norm transformer layer."""

    def __init__(self, dim: int, heads: int, mlp_ratio: int = 4) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attention = Attention(dim, heads)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(
            nn.Linear(dim, mlp_ratio * dim),
            nn.GELU(),
            nn.Linear(mlp_ratio * dim, dim),
        )

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        tokens = tokens + self.attention(self.norm1(tokens), mask)
        return tokens + self.mlp(self.norm2(tokens))

    def first(
        self, tokens: Tensor, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The layer's output for token 0 alone, (b, dim), and how it attended."""
        mixed, *attended = self.attention.first_query(self.norm1(tokens), mask)
        token = tokens[:, 0] + mixed
        return token + self.mlp(self.norm2(token)), attended[0], attended[1]


class SlideEncoder(Aggregator):
    """CLS token, Fourier positions, ``depth`` layers, final LayerNorm.

    Parameters
    ----------
    in_dim
        Length of a patch token. Other than ``dim``, a linear layer comes first.
    dim, depth, heads
        Width, layers and attention heads; the defaults are the paper's.
    """

    name = "transformer"

    def __init__(
        self, in_dim: int, dim: int = 512, depth: int = 6, heads: int = 4
    ) -> None:
        super().__init__()
        if dim % heads:
            raise ValueError(f"dim {dim} cannot be shared by {heads} heads.")
        self.config = {"in_dim": in_dim, "dim": dim, "depth": depth, "heads": heads}
        self.in_dim, self.dim, self.heads = in_dim, dim, heads
        self.token_floats = GRAPH_FLOATS * depth * dim
        self.input = nn.Identity() if in_dim == dim else nn.Linear(in_dim, dim)
        self.positions = FourierPositions(dim)
        self.cls = nn.Parameter(torch.randn(dim) * 0.02)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(depth - 1))
        self.last = Block(dim, heads)  # of which only the CLS row is ever used
        self.norm = nn.LayerNorm(dim)

    def forward(self, x: Tensor, p: Tensor, mask: Tensor | None = None) -> Tensor:
        tokens = self._with_cls(x, p)  # (b, 1 + n, dim)
        if mask is not None:
            mask = F.pad(mask, (1, 0), value=True)  # CLS is always real
        return self._transform(tokens, mask)[0]

    @torch.no_grad()
    def attend(self, x: Tensor, p: Tensor, *, group: int = ATTEND_GROUP) -> Attended:
        """Embed one whole slide and say where its CLS token looks.

        No n x n matrix is formed. A slide of more than ``group`` tokens is taken as
        evenly interleaved groups: their embeddings are averaged, their attention is
        joined by each group's log-sum-exp, and the result's ``groups`` says so.

        Parameters
        ----------
        x : (n, in_dim)
        p : (n, 2) grid (row, col)

        Returns
        -------
        h : (dim,)
        attention : (heads, n)
            The last layer's softmax weights of CLS over CLS and patches together,
            its own column left out.
        """
        x = x.to(self.cls)
        p = p.to(self.cls.device)
        return join_groups(
            len(x),
            (
                (rows, *self._attend(x[rows], p[rows]))
                for rows in interleaved_groups(len(x), group)
            ),
        )

    def _attend(self, x: Tensor, p: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        h, attention, total = self._transform(self._with_cls(x[None], p[None]))
        return h[0], attention[0, :, 1:], total[0]

    def _transform(
        self, tokens: Tensor, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        for block in self.blocks:
            tokens = block(tokens, mask)
        cls, attention, total = self.last.first(tokens, mask)
        return self.norm(cls), attention, total

    def _with_cls(self, x: Tensor, p: Tensor) -> Tensor:
        tokens = self.input(x) + self.positions(p)
        cls = self.cls.to(tokens.dtype).expand(len(x), 1, -1)
        return torch.cat([cls, tokens], dim=1)
