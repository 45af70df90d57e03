"""DSMIL: for each class the most critical token, and what is like it."""

from math import log, sqrt

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spt_core.learning.aggregator import Aggregator
from spt_core.learning.attended import Attended
from spt_core.training.encoder import OwnLoss

INSTANCE_SHARE = 0.5


class DualStream(Aggregator):
    """Dual-stream MIL (Li et al. 2021).

    The first stream scores every token for each class c, s_ic = w_c' x_i, and finds the
    critical token m_c, which has the highest. The second compares all with it:

        a_ic = softmax over i of q_i' q_m / sqrt(hidden), q = Q x
        h_c = V (sum over i of a_ic x_i)

    h is h_1, h_2, ... one after another, so that the classifier of slides is a linear
    layer on it. Half of the loss is the classifier's, half that of the first stream,
    whose answer is the scores of the critical tokens. The answer in use is the
    classifier's alone, as in the authors' code; the paper also states their mean.

    Parameters
    ----------
    dim
        Length of h_c; the embedding is ``classes`` times as long.
    """

    name = "dsmil"

    def __init__(
        self, in_dim: int, dim: int = 512, hidden: int = 128, classes: int = 2
    ) -> None:
        super().__init__()
        self.config = {
            "in_dim": in_dim,
            "dim": dim,
            "hidden": hidden,
            "classes": classes,
        }
        self.in_dim, self.dim, self.heads = in_dim, classes * dim, classes
        self.own_loss = OwnLoss(classes, INSTANCE_SHARE, chance=log(classes))
        self.token_floats = 2 * hidden + 4 * classes
        self.instance = nn.Linear(in_dim, classes)
        self.query = nn.Linear(in_dim, hidden)
        self.value = nn.Linear(in_dim, dim)

    def forward(self, x: Tensor, p: Tensor, mask: Tensor | None = None) -> Tensor:
        return self._pool(x, mask)[0]

    def for_objective(self, x: Tensor, p: Tensor, mask: Tensor | None = None) -> Tensor:
        h, _, best = self._pool(x, mask)
        return torch.cat([h.float(), -F.log_softmax(best.float(), dim=1)], dim=1)

    @torch.no_grad()
    def attend(self, x: Tensor, p: Tensor) -> Attended:
        """One attention map per class."""
        h, attention, _ = self._pool(x.to(self.value.weight)[None], None)
        return Attended(h[0], attention[0])

    def _pool(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """h (b, dim), attention (b, classes, n), scores of critical tokens."""
        scores = self.instance(x)  # (b, n, classes)
        if mask is not None:
            scores = scores.masked_fill(~mask[..., None], -torch.inf)
        best, critical = scores.max(dim=1)
        q = self.query(x)  # (b, n, hidden)
        of_critical = q.gather(1, critical[..., None].expand(-1, -1, q.shape[2]))
        alike = (of_critical @ q.transpose(1, 2)).float() / sqrt(q.shape[2])
        if mask is not None:
            alike = alike.masked_fill(~mask[:, None], -torch.inf)
        attention = F.softmax(alike, dim=-1)
        # V is linear: once for each class instead of for each token.
        h = self.value(attention.to(x) @ x)  # (b, classes, dim)
        return h.flatten(1), attention, best
