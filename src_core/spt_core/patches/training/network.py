"""The network in training: pixels in, features out, and what of it may change."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from spt_core.errors import InputError
from spt_core.training.encoder import Encoder


class PatchNetwork(Encoder):
    """A patch encoder's module, from pixels as they are stored.

    Parameters
    ----------
    freeze
        How many of the first blocks stay as they are. No graph is kept of them, which
        saves most of a convolutional network's time and memory.
    frozen_statistics
        Whether batch norms keep their statistics.
    """

    shift: Tensor
    scale: Tensor

    def __init__(
        self,
        module: nn.Module,
        dim: int,
        mean: Sequence[float],
        std: Sequence[float],
        *,
        freeze: int = 0,
        frozen_statistics: bool = True,
    ) -> None:
        super().__init__()
        self.module, self.dim = module, dim
        self.frozen_statistics = frozen_statistics
        self.register_buffer("shift", torch.tensor(mean).view(1, 3, 1, 1) * 255)
        self.register_buffer("scale", torch.tensor(std).view(1, 3, 1, 1) * 255)
        self.to(memory_format=torch.channels_last)
        parts = blocks(module)
        if freeze >= len(parts):
            raise InputError(
                f"--freeze {freeze} leaves nothing to learn: there are {len(parts)} "
                "blocks."
            )
        self.frozen = parts[:freeze]
        for part in self.frozen:
            part.requires_grad_(False)
        self.train()

    def train(self, mode: bool = True) -> "PatchNetwork":
        super().train(mode)
        fixed = self.modules() if self.frozen_statistics else self.frozen
        for part in fixed:
            for inside in part.modules():
                if isinstance(inside, nn.modules.batchnorm._BatchNorm):
                    inside.eval()
        return self

    def forward(self, pixels: Tensor) -> Tensor:
        """Features (s, dim) of pixels (s, 3, h, w), 0 to 255."""
        x = pixels.to(torch.float32, memory_format=torch.channels_last)
        out = self.module((x - self.shift) / self.scale)
        return out.mean(dim=(2, 3)) if out.ndim == 4 else out


def blocks(module: nn.Module) -> list[nn.Module]:
    """The parts that pixels go through, in order."""
    found: list[nn.Module] = []
    for child in module.children():
        if isinstance(child, (nn.Sequential, nn.ModuleList)) and len(child) > 4:
            found += list(child)
        else:
            found.append(child)
    return [part for part in found if any(True for _ in part.parameters())]


def graph_floats(network: nn.Module, pixels: Tensor) -> float:
    """About how many numbers the graph of one view (1, 3, h, w) holds."""
    held = 0

    def count(tensor: Tensor) -> Tensor:
        nonlocal held
        held += tensor.numel()
        return tensor

    training = network.training
    network.eval()  # to look must not move batch norms' statistics
    with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        network(pixels)
    network.train(training)
    weights = sum(weight.numel() for weight in network.parameters())
    return max(held - weights, pixels.numel())
