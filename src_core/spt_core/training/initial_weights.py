"""How linear layers begin."""

from torch import nn


def xavier(module: nn.Module, bias: float = 0.01) -> None:
    """Initialise the linear layers within ``module``."""
    for layer in module.modules():
        if isinstance(layer, nn.Linear):
            nn.init.xavier_uniform_(layer.weight)
            if layer.bias is not None:
                nn.init.constant_(layer.bias, bias)
