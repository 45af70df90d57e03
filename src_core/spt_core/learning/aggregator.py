"""What every way from tokens to a slide embedding has in common."""

from abc import ABC, abstractmethod

from torch import Tensor

from spt_core.learning.attended import Attended
from spt_core.training.encoder import Encoder


class Aggregator(Encoder, ABC):
    """A slide encoder f: "any learned aggregation architecture".

    Training, evaluation and maps use these members alone, and never ask which it is.

    Attributes
    ----------
    name
        By which a model file names the architecture.
    config
        The arguments that build it again, by name.
    in_dim, dim
        Length of a token and of an embedding.
    heads
        How many attention maps ``attend`` gives.
    token_floats
        About how many numbers a token's graph holds in training.
    slide_floats
        Those that a slide's graph holds beside, however many tokens it has.
    """

    name: str
    config: dict[str, float]
    in_dim: int
    heads: int
    token_floats: float = 0.0
    slide_floats: float = 0.0

    @abstractmethod
    def forward(self, x: Tensor, p: Tensor, mask: Tensor | None = None) -> Tensor:
        """Embed a padded batch.

        Parameters
        ----------
        x : (b, n, in_dim)
        p : (b, n, 2) grid (row, col)
        mask : (b, n), True = real token

        Returns
        -------
        h : (b, dim)
        """

    @abstractmethod
    def attend(self, x: Tensor, p: Tensor) -> Attended:
        """Embed one whole slide and say how much each token counts.

        Parameters
        ----------
        x : (n, in_dim)
        p : (n, 2) grid (row, col)

        Returns
        -------
        h : (dim,)
        attention : (heads, n)
        """
