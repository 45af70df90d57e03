"""The vision transformer of HIPT's regions: 16 x 16 patch tokens in, one token out.

Its weights have the names of the published ones.
"""

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SIDE = 16  # cells of a region


class HeadedAttention(nn.Module):
    """Self-attention with bias on queries, keys and values."""

    def __init__(self, dim: int, heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(
        self, tokens: Tensor, mask: Tensor | None = None, *, first: bool = False
    ) -> Tensor:
        """(b, n, dim), or of the first token alone (b, 1, dim)."""
        q, k, v = self._projected(tokens)
        if mask is not None:
            mask = mask[:, None, None, :]
        mixed = F.scaled_dot_product_attention(
            q[:, :, :1] if first else q,
            k,
            v,
            attn_mask=mask,
            dropout_p=self.dropout if self.training else 0.0,
        )
        return self.proj(mixed.transpose(1, 2).flatten(2))

    def first_row(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """The softmax weights (b, heads, n) of the first token."""
        q, k, _ = self._projected(tokens)
        scores = (q[:, :, :1] @ k.mT).squeeze(2).float() / q.shape[-1] ** 0.5
        return scores.masked_fill(~mask[:, None], -torch.inf).softmax(dim=-1)

    def _projected(self, tokens: Tensor) -> Tensor:
        b, n, dim = tokens.shape
        qkv = self.qkv(tokens).view(b, n, 3, self.heads, dim // self.heads)
        return qkv.permute(2, 0, 3, 1, 4)  # each (b, heads, n, dim / heads)


class Mlp(nn.Module):
    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(dim, hidden), nn.Linear(hidden, dim)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.fc2(F.gelu(self.fc1(tokens)))


class RegionLayer(nn.Module):
    """One pre-norm layer."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=1e-6)
        self.attn = HeadedAttention(dim, heads)
        self.norm2 = nn.LayerNorm(dim, eps=1e-6)
        self.mlp = Mlp(dim, 4 * dim)

    def forward(self, tokens: Tensor, mask: Tensor, *, first: bool = False) -> Tensor:
        mixed = self.attn(self.norm1(tokens), mask, first=first)
        tokens = (tokens[:, :1] if first else tokens) + mixed
        return tokens + self.mlp(self.norm2(tokens))


class RegionTransformer(nn.Module):
    """CLS token, a learned position for each of 16 x 16 cells, ``depth`` layers."""

    def __init__(self, in_dim: int, dim: int, depth: int, heads: int) -> None:
        super().__init__()
        self.phi = nn.Sequential(nn.Linear(in_dim, dim), nn.GELU())
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos_embed = nn.Parameter(torch.zeros(1, 1 + SIDE * SIDE, dim))
        self.blocks = nn.ModuleList(RegionLayer(dim, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        for one in (self.cls_token, self.pos_embed):
            nn.init.trunc_normal_(one, std=0.02)
        for layer in self.modules():
            if isinstance(layer, nn.Linear):
                nn.init.trunc_normal_(layer.weight, std=0.02)
                nn.init.zeros_(layer.bias)

    def forward(
        self, x: Tensor, cells: Tensor, mask: Tensor, *, attends: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Embed regions.

        Parameters
        ----------
        x : (regions, n, in_dim)
        cells : (regions, n)
            Where in its region each token is: 16 row + col.
        mask : (regions, n), True = real token

        Returns
        -------
        cls : (regions, dim)
        shares : (regions, heads, n)
            CLS's weights in the last layer, made to sum to one over the tokens; empty
            unless asked for.
        """
        cls_position, positions = self.pos_embed[0, 0], self.pos_embed[0, 1:]
        tokens = self.phi(x) + positions[cells]
        cls = (self.cls_token + cls_position).to(tokens.dtype).expand(len(x), -1, -1)
        tokens = torch.cat([cls, tokens], dim=1)
        mask = F.pad(mask, (1, 0), value=True)
        *blocks, last = cast(list[RegionLayer], list(self.blocks))
        for block in blocks:
            tokens = block(tokens, mask)
        shares = tokens.new_zeros(0)
        if attends:
            shares = last.attn.first_row(last.norm1(tokens), mask)[:, :, 1:]
            shares = shares / shares.sum(dim=-1, keepdim=True)
        return self.norm(last(tokens, mask, first=True))[:, 0], shares
