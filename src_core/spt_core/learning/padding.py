"""Padded batches, slide by slide: for aggregators that padding would change."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from torch import Tensor


def slides_of(
    x: Tensor, p: Tensor, mask: Tensor | None
) -> Iterator[tuple[Tensor, ...]]:
    """The real tokens x (n, d) and their places p (n, 2) of each slide of a batch."""
    if mask is None:
        yield from zip(x, p, strict=True)
        return
    order = mask.int().argsort(dim=1, descending=True, stable=True)  # real ones first
    for number, length in enumerate(lengths_of(mask)):
        real = order[number, :length]
        yield x[number, real], p[number, real]


# What depends on numbers, and not on shapes alone, is asked for here: a GPU is waited
# for.


def lengths_of(mask: Tensor) -> list[int]:
    """How many real tokens each slide has."""
    return mask.sum(dim=1).tolist()


def places_of(p: Tensor) -> NDArray[np.integer]:
    """The places (n, 2) as numbers."""
    return p.cpu().numpy()
