"""Learning without forgetting: features stay near those of the start.

    L = L_method + w (1 - cos(h, h_start)), averaged over all views

h_start being the untouched start's features of the same view.
"""

from copy import deepcopy

from torch import Tensor
from torch.nn import functional

from spt_core.training.encoder import Encoder
from spt_core.training.objectives.objective import Objective


class StayNear(Objective):
    """Another objective, and the distance from the start."""

    def __init__(self, objective: Objective, start: Encoder, weight: float) -> None:
        super().__init__()
        self.objective, self.weight = objective, weight
        self.needs_labels = objective.needs_labels
        self.start = deepcopy(start).requires_grad_(False).eval()

    @property
    def target(self) -> Encoder:
        return self.start

    def train(self, mode: bool = True) -> "StayNear":
        super().train(mode)
        self.start.eval()
        return self

    def forward(
        self, h: Tensor, *, labels: Tensor | None = None, h_target: Tensor | None = None
    ) -> dict[str, Tensor]:
        if h_target is None:
            raise ValueError("The start's features are needed.")
        parts = self.objective(h, labels=labels)
        away = 1 - functional.cosine_similarity(h.float(), h_target.float(), dim=-1)
        parts["away"] = away.mean()
        parts["method_loss"] = parts["loss"]
        parts["loss"] = parts["loss"] + self.weight * parts["away"]
        return parts
