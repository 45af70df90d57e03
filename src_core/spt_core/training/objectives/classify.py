"""Classification: cross-entropy of a linear layer on the embedding.

One view of each item per step. Class weights against imbalance. An encoder's own loss
takes its share: (1 - share) cross-entropy + share own.
"""

from math import log

import torch.nn.functional as F
from torch import Tensor, nn

from spt_core.training.encoder import OwnLoss
from spt_core.training.initial_weights import xavier
from spt_core.training.objectives.objective import Objective


class Classify(Objective):
    """A linear classifier and its cross-entropy.

    Parameters
    ----------
    class_weights : (classes,)
        How much an item of each class counts; equal if not given.
    own_loss
        Of the encoder, where it has one: each embedding is then followed by what the
        item would add to it if it were of each class.
    """

    needs_labels = True

    def __init__(
        self,
        dim: int,
        classes: int,
        *,
        class_weights: Tensor | None = None,
        own_loss: OwnLoss | None = None,
    ) -> None:
        super().__init__()
        self.own_loss = own_loss
        self.classifier = nn.Linear(dim, classes)
        self.class_weights: Tensor | None
        self.register_buffer("class_weights", class_weights)
        xavier(self)

    def forward(
        self, h: Tensor, *, labels: Tensor | None = None, h_target: Tensor | None = None
    ) -> dict[str, Tensor]:
        if labels is None:
            raise ValueError("Classification needs labels.")
        h, own = h.flatten(0, 1).tensor_split([self.classifier.in_features], dim=1)
        logits = self.classifier(h).float()
        repeated = labels.repeat(len(logits) // len(labels))
        loss = F.cross_entropy(logits, repeated, weight=self.class_weights)
        right = (logits.argmax(-1) == repeated).float().mean()
        if self.own_loss is None:
            return {"loss": loss, "accuracy": right}
        share = self.own_loss.share
        # averaged with the class weights, as cross-entropy is
        of_class = F.nll_loss(-own, repeated, weight=self.class_weights)
        return {
            "loss": (1 - share) * loss + share * of_class,
            "accuracy": right,
            "classifier_loss": loss,
            "own_loss": of_class,
        }

    def chance_level(self, batch: int, views: int) -> float | None:
        chance = log(self.classifier.out_features)
        if self.own_loss is None:
            return chance
        share = self.own_loss.share
        return (1 - share) * chance + share * self.own_loss.chance
