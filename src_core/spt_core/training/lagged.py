"""Numbers of training steps, read without making a GPU wait at every step."""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

# Steps whose numbers are read together on a GPU: reading waits for all its work.
EVERY_ON_GPU = 16


class LaggedScalars:
    """Keeps scalars on their device and reads those of several steps at once.

    Elsewhere than on a GPU each step's are read at once: nothing is gained by waiting.
    When they are read depends on the number of steps alone, so that all processes of a
    run learn of a step's numbers at the same step.
    """

    def __init__(self, device: torch.device, every: int | None = None) -> None:
        on_gpu = device.type == "cuda"
        self.every = every or (EVERY_ON_GPU if on_gpu else 1)
        self._waiting: list[tuple[int, tuple[str, ...], Tensor]] = []

    def put(self, step: int, values: Mapping[str, Tensor]) -> None:
        """Take a step's scalars; nothing waits for them."""
        together = torch.stack([value.detach().float() for value in values.values()])
        self._waiting.append((step, tuple(values), together))

    def due(self) -> Iterator[tuple[int, dict[str, float]]]:
        """Each step's numbers, oldest first, once enough steps wait; else nothing."""
        if len(self._waiting) >= self.every:
            yield from self.all()

    def all(self) -> Iterator[tuple[int, dict[str, float]]]:
        """The numbers of every step that waits: before a checkpoint, and at the end."""
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        flat = torch.cat([values for *_, values in waiting]).tolist()
        for step, names, values in waiting:
            numbers, flat = flat[: len(values)], flat[len(values) :]
            yield step, dict(zip(names, numbers, strict=True))


def skip_unless_finite(
    optimiser: torch.optim.Optimizer, *scalars: Tensor | None
) -> None:
    """Make a fused optimiser's next step change nothing where a scalar is not finite.

    The device decides, so that nobody waits: the weights stay the last good ones until
    the numbers have been read. To be called before each step with the loss and the norm
    of the gradient; a gradient scaler does the same by itself.
    """
    if not getattr(optimiser, "_step_supports_amp_scaling", False):
        raise ValueError("Only a fused optimiser can skip a step on the device.")
    known = torch.stack([one.detach().float() for one in scalars if one is not None])
    optimiser.grad_scale = None  # type: ignore[attr-defined]
    optimiser.found_inf = (~known.isfinite().all()).float()  # type: ignore[attr-defined]
