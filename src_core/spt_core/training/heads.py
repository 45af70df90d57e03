"""What stands between an embedding and a loss, in training only."""

from itertools import pairwise

from torch import nn

from spt_core.training.initial_weights import xavier
from spt_core.training.options import HEADS

PROJECTED = 128
LINEAR = "linear"


def projection_head(
    *widths: int, head: str = "batchnorm", last_norm: bool = True
) -> nn.Sequential:
    """Linear layers with ReLU between them.

    ``paper`` is plain. ``batchnorm`` (the default) normalises after each linear layer:
    plain heads stay on the chance plateau on small cohorts. The statistics are always
    those of the whole batch, because heads run on all its embeddings at once, whatever
    the number of micro-batches and processes that made them. Without ``last_norm`` the
    last layer has none, for losses that look at the spread of what it gives. ``linear``
    is one layer from the first width to the last.
    """
    if head not in (*HEADS, LINEAR):
        raise ValueError(f"head is one of {', '.join(HEADS)}, {LINEAR}, not {head!r}")
    if head == LINEAR:
        widths = (widths[0], widths[-1])
    layers: list[nn.Module] = []
    for number, (width, after) in enumerate(pairwise(widths), start=2):
        if layers:
            layers.append(nn.ReLU())
        layers.append(nn.Linear(width, after))
        if head == "batchnorm" and (last_norm or number < len(widths)):
            layers.append(nn.BatchNorm1d(after))
    module = nn.Sequential(*layers)
    xavier(module)
    return module
