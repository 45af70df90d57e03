"""Batch norms that use the statistics of all processes' views.

On GPUs these are torch's own, SyncBatchNorm. Elsewhere torch has none: there sums of
values and of squares, and their gradients, are added up over the processes.
"""

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional

from spt_core.training.processes import together

_BatchNorm = nn.modules.batchnorm._BatchNorm


def share_statistics(module: nn.Module, device: torch.device) -> nn.Module:
    """The module with batch norms over all processes; names of weights stay."""
    if device.type == "cuda":
        from timm.layers import convert_sync_batchnorm  # knows timm's own norms too

        return convert_sync_batchnorm(module)
    return _converted(module)


class GatheredBatchNorm(_BatchNorm):
    """A batch norm over the equal shares of several processes."""

    def __init__(self, like: _BatchNorm) -> None:
        super().__init__(
            like.num_features,
            like.eps,
            like.momentum,
            like.affine,
            like.track_running_stats,
        )
        self.load_state_dict(like.state_dict())
        # timm's batch norms hold the activation that follows.
        self.drop = getattr(like, "drop", nn.Identity())
        self.act = getattr(like, "act", nn.Identity())
        for mine, theirs in zip(self.parameters(), like.parameters(), strict=False):
            mine.requires_grad_(theirs.requires_grad)
        self.train(like.training)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            out = self._normalised(x)
        else:
            out = functional.batch_norm(
                x, self.running_mean, self.running_var, self.weight, self.bias,
                eps=self.eps,
            )  # fmt: skip
        return self.act(self.drop(out))

    def _normalised(self, x: Tensor) -> Tensor:
        axes = [0, *range(2, x.ndim)]
        shape = [1, -1] + [1] * (x.ndim - 2)
        values = x.float()
        count = dist.get_world_size() * x.numel() // x.shape[1]
        mean = _SumOfAll.apply(values.sum(axes)) / count
        centred = values - mean.view(shape)
        variance = _SumOfAll.apply(centred.square().sum(axes)) / count
        out = centred * (variance + self.eps).rsqrt().view(shape)
        if self.weight is not None:
            out = out * self.weight.view(shape) + self.bias.view(shape)
        self._remember(mean.detach(), variance.detach() * count / max(1, count - 1))
        return out.to(x.dtype)

    @torch.no_grad()
    def _remember(self, mean: Tensor, variance: Tensor) -> None:
        if self.running_mean is None or self.running_var is None:
            return
        share = 0.1 if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean, share)
        self.running_var.lerp_(variance, share)

    def _check_input_dim(self, input: Tensor) -> None:
        """Any number of axes after the second will do."""


class _SumOfAll(torch.autograd.Function):
    """The sum over all processes; so is its gradient."""

    @staticmethod
    def forward(ctx: object, part: Tensor) -> Tensor:
        whole = part.clone()
        with together():
            dist.all_reduce(whole)
        return whole

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> Tensor:
        whole = gradient.clone()
        with together():
            dist.all_reduce(whole)
        return whole


def _converted(module: nn.Module) -> nn.Module:
    if isinstance(module, _BatchNorm):
        return GatheredBatchNorm(module)
    for name, child in module.named_children():
        setattr(module, name, _converted(child))
    return module
