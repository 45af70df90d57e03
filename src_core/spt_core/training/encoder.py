"""What training knows of the encoders that it trains."""

from torch import nn


class Encoder(nn.Module):
    """Takes views, as one tensor or several, and gives embeddings (views, dim).

    No layer of it mixes views.
    """

    dim: int
