"""How alike the positions of patches are to a slide encoder."""

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from spt_core.learning.slide_encoder import SlideEncoder
from spt_core.studies.benchmark_maps import position_of

# About the side of the largest crop that the paper trains with.
SIDE, SQUARES = 20, 5


@torch.no_grad()
def position_similarity(
    encoder: SlideEncoder, *, side: int = SIDE, squares: int = SQUARES
) -> NDArray[np.float32]:
    """Cosine similarity of position embeddings, as in the paper's appendix.

    Returns
    -------
    (squares, squares, side, side)
        For evenly chosen places of a grid of ``side`` x ``side`` patches, the
        similarity of the place's embedding to that of every place.
    """
    device = encoder.cls.device
    steps = torch.arange(side, device=device)
    p = torch.cartesian_prod(steps, steps)  # (side * side, 2) grid (row, col)
    unit = F.normalize(encoder.positions(p).float(), dim=-1)
    chosen = torch.tensor(
        [position_of(number, squares, side) for number in range(squares)], device=device
    )
    rows = (chosen[:, None] * side + chosen[None, :]).reshape(-1)
    found = unit[rows] @ unit.T
    return found.reshape(squares, squares, side, side).cpu().numpy()
