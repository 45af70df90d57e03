"""The one signature of all objectives."""

from abc import ABC, abstractmethod

from torch import Tensor, nn

from spt_core.training.encoder import Encoder


class Objective(nn.Module, ABC):
    """Heads and a loss over the embeddings of a whole batch.

    An objective sees every embedding of the batch at once, gathered from all
    micro-batches and all processes. Batch statistics and negatives are therefore those
    of the whole batch without any code here for it.
    """

    needs_labels = False
    # Whether batches, or those an item is compared with, differ in number from step to
    # step: the level of chance is then not known.
    varies = False

    @abstractmethod
    def forward(
        self, h: Tensor, *, labels: Tensor | None = None, h_target: Tensor | None = None
    ) -> dict[str, Tensor]:
        """The loss, under ``"loss"``, and its parts by name.

        Parameters
        ----------
        h : (views, batch, dim)
        labels : (batch,) class numbers
        h_target : (views, batch, dim), from :attr:`target` where there is one
        """

    @property
    def target(self) -> Encoder | None:
        """A second encoder whose embeddings the loss also needs, without gradient."""
        return None

    def after_step(self, encoder: nn.Module, progress: float) -> None:
        """Called after each optimiser step; ``progress`` runs from 0 to 1."""

    def chance_level(self, batch: int, views: int) -> float | None:
        """The loss of a model that has learned nothing, where that is known."""
        return None
