"""What training knows of the encoders that it trains."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn


@dataclass(frozen=True)
class OwnLoss:
    """A loss that an encoder works out itself, for each class that a view may be of.

    Attributes
    ----------
    classes
        How many classes.
    share
        Of the whole loss; the rest is the classifier's.
    chance
        What it is before anything is learned.
    """

    classes: int
    share: float
    chance: float


class Encoder(nn.Module):
    """Takes views, as one tensor or several, and gives embeddings (views, dim).

    No layer of it mixes views, but for batch norms of patch encoders that use the
    statistics of the batch.

    Attributes
    ----------
    own_loss
        Of encoders that have one; only a classifier can be trained with them.
    has_dropout
        Whether it draws at random in training. It is then given one view at a time;
        what is drawn for a view also depends on how far it is padded.
    """

    dim: int
    own_loss: OwnLoss | None = None
    has_dropout: bool = False

    def for_objective(self, *views: Any, **named: Any) -> Tensor:
        """What an objective is given: embeddings (views, dim).

        With a loss of its own (views, dim + classes): what it would add for each class.
        """
        return self(*views, **named)
