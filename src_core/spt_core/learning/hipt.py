"""HIPT: patches make regions, regions make the slide."""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from spt_core.learning.aggregator import Aggregator
from spt_core.learning.attended import Attended
from spt_core.learning.gated_attention import gated_scores
from spt_core.learning.padding import places_of, slides_of
from spt_core.learning.region_transformer import (
    SIDE,
    HeadedAttention,
    RegionTransformer,
)
from spt_core.weights_file import fill, read_weights, unwrapped

# Floats that the graph of a token holds for each unit of dim and layer, as measured.
GRAPH_FLOATS = 18
REGIONS_AT_ONCE = 64


class SlideLayer(nn.Module):
    """One layer of the slide's transformer, normalised after each step."""

    def __init__(self, dim: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.attn = HeadedAttention(dim, heads, dropout)
        self.mlp = nn.Sequential(
            nn.Linear(dim, dim), nn.ReLU(), nn.Dropout(dropout), nn.Linear(dim, dim)
        )
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.drop = nn.Dropout(dropout)

    def forward(self, tokens: Tensor) -> Tensor:  # (b, n, dim), same
        tokens = self.norm1(tokens + self.drop(self.attn(tokens)))
        return self.norm2(tokens + self.drop(self.mlp(tokens)))


class Hipt(Aggregator):
    """The second and third stage of HIPT (Chen et al. 2022).

    Regions are the squares of 16 x 16 grid cells. The tokens that a region has go
    through a small vision transformer with 16 x 16 positions, whose CLS token is the
    region's; the regions go through a transformer without positions and gated
    attention: h = ReLU(linear(sum a_r t_r)). Widths, layers and heads are the
    published; those of the slide's transformer are half as many heads.

    Published regions are all tissue. Here a region has the tokens that there are.
    """

    name = "hipt"

    def __init__(
        self,
        in_dim: int,
        dim: int = 192,
        depth: int = 6,
        heads: int = 6,
        layers: int = 2,
        dropout: float = 0.25,
    ) -> None:
        super().__init__()
        if dim % heads or dim % max(1, heads // 2):
            raise ValueError(f"dim {dim} cannot be shared by {heads} heads.")
        self.config = {
            "in_dim": in_dim,
            "dim": dim,
            "depth": depth,
            "heads": heads,
            "layers": layers,
            "dropout": dropout,
        }
        self.in_dim, self.dim, self.heads = in_dim, dim, heads
        self.has_dropout = dropout > 0
        self.token_floats = GRAPH_FLOATS * depth * dim
        self.region = RegionTransformer(in_dim, dim, depth, heads)
        self.input = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Dropout(dropout))
        self.layers = nn.ModuleList(
            SlideLayer(dim, max(1, heads // 2), dropout) for _ in range(layers)
        )
        self.value = nn.Linear(dim, dim)
        self.gate = nn.Linear(dim, dim)
        self.score = nn.Linear(dim, 1)
        self.drop = nn.Dropout(dropout)
        self.output = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Dropout(dropout))

    def forward(self, x: Tensor, p: Tensor, mask: Tensor | None = None) -> Tensor:
        return torch.stack(
            [self._slide(*one, attends=False)[0] for one in slides_of(x, p, mask)]
        )

    @torch.no_grad()
    def attend(self, x: Tensor, p: Tensor) -> Attended:
        """The region's weight times the token's share of its region.

        A token's share is the last layer's softmax weight of the region's CLS token,
        that of CLS itself left out.
        """
        h, attention = self._slide(x.to(self.score.weight), p, attends=True)
        return Attended(h, attention)

    def region_embeddings(self, x: Tensor, p: Tensor) -> Tensor:
        """(regions, dim) of one slide's tokens x (n, in_dim), in regions' order."""
        found = self._regions(x, p, attends=False)
        order = np.argsort(np.concatenate([numbers for numbers, *_ in found]))
        return torch.cat([cls for _, cls, *_ in found])[torch.from_numpy(order)]

    def _slide(self, x: Tensor, p: Tensor, *, attends: bool) -> tuple[Tensor, Tensor]:
        """h (dim,) of one slide, and attention (heads, n) where it is asked for."""
        found = self._regions(x, p, attends=attends)
        regions = torch.cat([cls for _, cls, *_ in found])
        tokens = self.input(regions)[None]
        for layer in self.layers:
            tokens = layer(tokens)
        scores = gated_scores(tokens, self.value, self.gate, self.score, self.drop)
        weights = scores[0].softmax(dim=0)  # (regions,)
        h = self.output(weights.to(tokens) @ tokens[0])
        attention = x.new_zeros(self.heads, len(x) if attends else 0)
        if attends:
            parts = weights.split([len(cls) for _, cls, *_ in found])
            for (_, _, rows, shares), part in zip(found, parts, strict=True):
                shares = shares * part[:, None, None]  # (regions, heads, most)
                # those of padding are zero
                attention.index_add_(
                    1, rows.flatten(), shares.transpose(0, 1).flatten(1)
                )
        return h, attention

    def _regions(self, x: Tensor, p: Tensor, *, attends: bool) -> list[tuple]:
        """Regions of like size together: their numbers, CLS, rows of x, shares."""
        found = []
        for numbers, rows, cells in regions_of(places_of(p)):
            index = torch.from_numpy(rows).to(x.device)
            is_real, index = index >= 0, index.clamp(min=0)
            cell = torch.from_numpy(cells).to(x.device)
            cls, shares = self.region(x[index], cell, is_real, attends=attends)
            found.append((numbers, cls, index, shares))
        return found


def regions_of(p: NDArray[np.integer]) -> list[tuple[NDArray, NDArray, NDArray]]:
    """Which tokens make which region, in batches of regions of about the same size.

    Parameters
    ----------
    p : (n, 2) grid (row, col)

    Returns
    -------
    For each batch of regions, with ``most`` the tokens of its largest:

    numbers : (regions,)
        Counted row by row over the slide.
    rows : (regions, most)
        Of the tokens; -1 where a region has fewer.
    cells : (regions, most)
        Where in its region a token is: 16 row + col.
    """
    _, region = np.unique(p // SIDE, axis=0, return_inverse=True)
    region = region.reshape(-1)
    cell = p[:, 0] % SIDE * SIDE + p[:, 1] % SIDE
    by_region = np.argsort(region, kind="stable")
    counts = np.bincount(region)
    ends = counts.cumsum()
    batches = []
    for numbers in _of_like_size(counts):
        rows = np.full((len(numbers), counts[numbers[0]]), -1, np.int64)
        cells = np.zeros_like(rows)
        for line, number in enumerate(numbers):
            members = by_region[ends[number] - counts[number] : ends[number]]
            rows[line, : len(members)] = members
            cells[line, : len(members)] = cell[members]
        batches.append((numbers, rows, cells))
    return batches


def _of_like_size(counts: NDArray[np.integer]) -> Iterator[NDArray[np.integer]]:
    """Numbers of regions, largest first; in a batch none is less than half as large."""
    left = np.argsort(-counts, kind="stable")
    while len(left):
        alike = int((2 * counts[left] >= counts[left[0]]).sum())
        taken = min(alike, REGIONS_AT_ONCE)
        yield left[:taken]
        left = left[taken:]


def load_region_weights(encoder: Hipt, path: str | os.PathLike[str]) -> None:
    """Fill the region transformer with weights that were published or trained by DINO.

    The file is a ``.safetensors`` of the network's own weights, or a ``.pth`` as DINO
    writes it, of which the teacher's backbone is taken. Nothing in it is executed.

    Raises
    ------
    InputError
        Where the file cannot be read, or its weights are not exactly those needed.
    """
    path = Path(path)
    state = unwrapped(read_weights(path))
    state = {name: one for name, one in state.items() if not name.startswith("head.")}
    if "pos_embed" in state:
        state["pos_embed"] = _for_16_by_16(state["pos_embed"])
    what = f"HIPT's regions of tokens of length {encoder.in_dim}"
    fill(encoder.region, state, path, what=what)


def _for_16_by_16(positions: Tensor) -> Tensor:
    """Positions (1, 1 + cells, dim) of a square of any side; published is 14.

    The tenth of a cell is in the published code: so the weights were used.
    """
    side = int((positions.shape[1] - 1) ** 0.5)
    if side == SIDE:
        return positions
    square = positions[:, 1:].transpose(1, 2).unflatten(2, (side, side)).float()
    square = F.interpolate(square, scale_factor=(SIDE + 0.1) / side, mode="bicubic")
    return torch.cat([positions[:, :1], square.flatten(2).transpose(1, 2)], dim=1)
