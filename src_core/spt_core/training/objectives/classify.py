"""Classification: cross-entropy of a linear layer on the embedding.

One view of each item per step. Class weights against imbalance.
"""

from math import log

import torch.nn.functional as F
from torch import Tensor, nn

from spt_core.training.initial_weights import xavier
from spt_core.training.objectives.objective import Objective


class Classify(Objective):
    """A linear classifier and its cross-entropy.

    Parameters
    ----------
    class_weights : (classes,)
        How much an item of each class counts; equal if not given.
    """

    needs_labels = True

    def __init__(
        self, dim: int, classes: int, *, class_weights: Tensor | None = None
    ) -> None:
        super().__init__()
        self.classifier = nn.Linear(dim, classes)
        self.class_weights: Tensor | None
        self.register_buffer("class_weights", class_weights)
        xavier(self)

    def forward(
        self, h: Tensor, *, labels: Tensor | None = None, h_target: Tensor | None = None
    ) -> dict[str, Tensor]:
        if labels is None:
            raise ValueError("Classification needs labels.")
        logits = self.classifier(h.flatten(0, 1)).float()
        repeated = labels.repeat(len(h))
        loss = F.cross_entropy(logits, repeated, weight=self.class_weights)
        right = (logits.argmax(-1) == repeated).float().mean()
        return {"loss": loss, "accuracy": right}

    def chance_level(self, batch: int, views: int) -> float | None:
        return log(self.classifier.out_features)
