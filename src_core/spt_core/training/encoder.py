"""What training knows of the encoders that it trains."""

from torch import nn


class Encoder(nn.Module):
    """Takes views, as one tensor or several, and gives embeddings (views, dim).

    No layer of it mixes views, but for batch norms of patch encoders that use the
    statistics of the batch.
    """

    dim: int
