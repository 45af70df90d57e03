"""What attending to a slide gives, and how one too long for one pass is joined."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor


class _Pair(NamedTuple):
    h: Tensor
    attention: Tensor


class Attended(_Pair):
    """``h, attention = encoder.attend(x, p)``.

    Attributes
    ----------
    h : (dim,)
        The slide's embedding.
    attention : (heads, n)
    groups : int
        1 when every token saw every other; more when the slide was too long for one
        pass and was attended in so many interleaved groups.
    """

    groups: int

    def __new__(cls, h: Tensor, attention: Tensor, groups: int = 1) -> "Attended":
        pair = super().__new__(cls, h, attention)
        pair.groups = groups
        return pair


def interleaved_groups(n: int, most: int) -> Iterator[slice]:
    """As few even samples of ``n`` rows as have at most ``most`` rows each."""
    count = max(1, -(-n // most))
    for first in range(count):
        yield slice(first, n, count)


def join_groups(
    n: int, parts: Iterable[tuple[slice, Tensor, Tensor, Tensor]]
) -> Attended:
    """Average the embeddings; weigh each group's attention by its log-sum-exp.

    Parameters
    ----------
    parts
        For each group its rows, h (dim,), attention (heads, rows) and the log of the
        sum that the attention was divided by (heads,).
    """
    rows, hs, attentions, totals = zip(*parts, strict=True)
    if len(rows) == 1:
        return Attended(hs[0], attentions[0])
    weights = torch.stack(totals).softmax(dim=0)  # (groups, heads)
    attention = attentions[0].new_empty(len(attentions[0]), n)
    for group, of_group, weight in zip(rows, attentions, weights, strict=True):
        attention[:, group] = of_group * weight[:, None]
    return Attended(torch.stack(hs).mean(dim=0), attention, groups=len(rows))
