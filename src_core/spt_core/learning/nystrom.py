"""Nystrom attention: self-attention by way of a few landmarks, linear in the tokens."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spt_core.devices import full_precision

ITERATIONS = 6
KERNEL = 33


class NystromAttention(nn.Module):
    """Self-attention approximated by landmarks (Xiong et al. 2021).

    Landmarks are means of so many tokens in a row. With softmax weights A of tokens on
    landmarks, B of landmarks on landmarks and C of landmarks on tokens, the attention
    is A pinv(B) C; no matrix of tokens by tokens is formed, and A and C only where they
    are asked for. A convolution along the tokens is added to the values.

    So that landmarks are means of equally many, zeros stand before the tokens. They
    take part, as in all published code.
    """

    def __init__(self, dim: int, heads: int, landmarks: int) -> None:
        super().__init__()
        self.heads, self.landmarks = heads, landmarks
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.out = nn.Linear(dim, dim)
        self.nearby = nn.Conv2d(
            heads, heads, (KERNEL, 1), groups=heads, bias=False
        )  # the same for all features of a head

    def forward(self, tokens: Tensor, *, first: bool = False) -> Tensor:
        """(b, n, dim) of tokens (b, n, dim); of ``first`` alone (b, 1, dim)."""
        n = tokens.shape[1]
        q, k, v, pad = self._projected(tokens)
        q_marks, k_marks = self._marks(q), self._marks(k)
        rows = 1 if first else n
        # A (pinv(B) (C v)), and never A or C themselves
        gathered = F.scaled_dot_product_attention(q_marks, k, v, scale=1.0)
        solved = self._inverse(q_marks, k_marks).to(v) @ gathered
        wanted = q[:, :, pad : pad + rows]
        mixed = F.scaled_dot_product_attention(wanted, k_marks, solved, scale=1.0)
        around = F.pad(v, (0, 0, KERNEL // 2, KERNEL // 2))
        mixed = mixed + self.nearby(around[:, :, pad : pad + rows + KERNEL - 1])
        return self.out(mixed.transpose(1, 2).flatten(2))

    def first_row(self, tokens: Tensor) -> Tensor:
        """How the first token attends to all: (b, heads, n). May be below zero."""
        q, k, _, pad = self._projected(tokens)
        q_marks, k_marks = self._marks(q), self._marks(k)
        to_marks = (q[:, :, pad : pad + 1] @ k_marks.transpose(2, 3)).softmax(dim=-1)
        weights = to_marks @ self._inverse(q_marks, k_marks)  # (b, heads, 1, marks)
        rows = [
            weights[:, head] @ (q_marks[:, head] @ k[:, head].mT).softmax(dim=-1)
            for head in range(self.heads)  # one at a time: marks by tokens are many
        ]
        return torch.cat(rows, dim=1)[:, :, pad:]

    def _projected(self, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor, int]:
        """Scaled queries, keys and values (b, heads, pad + n, each), and pad."""
        b, n, dim = tokens.shape
        pad = -n % self.landmarks
        qkv = self.qkv(F.pad(tokens, (0, 0, pad, 0)))
        qkv = qkv.view(b, pad + n, 3, self.heads, dim // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        return q * q.shape[-1] ** -0.5, k, v, pad

    def _marks(self, tokens: Tensor) -> Tensor:
        return tokens.unflatten(2, (self.landmarks, -1)).mean(dim=3)

    def _inverse(self, q_marks: Tensor, k_marks: Tensor) -> Tensor:
        with full_precision(q_marks.device):  # half of it is too coarse to invert
            scores = q_marks.float() @ k_marks.float().mT
            return pseudo_inverse(scores.softmax(dim=-1))


def pseudo_inverse(matrix: Tensor) -> Tensor:
    """About the Moore-Penrose inverse of matrices (b, heads, m, m), by iteration.

    Z <- Z (13 I - B Z (15 I - B Z (7 I - B Z))) / 4, from B' by its norms: the largest
    sum of a row and of a column among all heads of a slide.
    """
    sums = matrix.abs().sum(dim=-1), matrix.abs().sum(dim=-2)  # (b, heads, m) each
    norm = sums[0].amax(dim=(1, 2)) * sums[1].amax(dim=(1, 2))
    z = matrix.mT / norm[:, None, None, None]
    one = torch.eye(matrix.shape[-1], device=matrix.device, dtype=matrix.dtype)
    for _ in range(ITERATIONS):
        bz = matrix @ z
        z = z @ (13 * one - bz @ (15 * one - bz @ (7 * one - bz))) / 4
    return z
