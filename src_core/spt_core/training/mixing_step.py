"""One training step of an encoder whose batch norms use the statistics of the batch.

All views go through the encoder in one pass, so that the statistics, and with them the
gradient, are the whole batch's. Where that does not fit in memory, views go through in
parts: the statistics are then those of each part, which is said. A part holds one view
of patches drawn at random, so that views which are to be alike never share statistics
by which they could be recognised. The gradient is exact for those statistics.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from math import ceil

import numpy as np
import torch
from torch import Tensor, nn

from spt_core.devices import free_memory, is_out_of_memory
from spt_core.errors import InputError
from spt_core.training.batch import ViewBatch, ViewChunk
from spt_core.training.step import ExactStep

SMALLEST = 2  # views that have statistics at all


class MixingStep(ExactStep):
    """The gradient with statistics of the whole batch, or of parts as large as can be.

    Several processes take the same number of passes, because their batch norms wait
    for one another (:mod:`spt_core.training.batch_norms`).
    """

    def __call__(
        self,
        batch: ViewBatch,
        labels: Tensor | None = None,
        scale: Tensor | float = 1.0,
    ) -> dict[str, Tensor]:
        if self.size > batch.count:
            self.size = self._views_that_fit(batch)
        self._say_if_parted(batch)
        while True:
            try:
                return super().__call__(batch, labels, scale)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                if self.processes.world > 1 or self.size <= SMALLEST:
                    raise InputError(
                        f"{self.size} views do not fit in memory at once. Choose a "
                        "smaller --micro-batch or --batch-size, or --statistics frozen."
                    ) from error
            # Outside of the handler: the traceback held the failed attempt's memory.
            free_memory()
            self.size = max(SMALLEST, self.size // 2)
            self._say_if_parted(batch)

    def _views_that_fit(self, batch: ViewBatch) -> int:
        size = batch.count
        if self.graph_floats is not None:
            floats_per_view = self.graph_floats(batch) / batch.count
            size = max(SMALLEST, min(size, int(self.budget / (4 * floats_per_view))))
        sizes = torch.tensor([size], device=self.device)
        return int(self.processes.gather(sizes, dim=0).min())

    def _say_if_parted(self, batch: ViewBatch) -> None:
        if self.size >= batch.count:
            return
        world = self.processes.world
        self.remarks.append(
            f"Batch norms see {self.size * world} views at a time, not all "
            f"{batch.count * world} of a batch, so the gradient is not that of the "
            "whole batch. A smaller --batch-size or --view-size, or --statistics "
            "frozen, makes it so."
        )
        self._say_if_parted = lambda batch: None  # type: ignore[method-assign]

    def _embed(self, batch: ViewBatch) -> Tensor:
        in_one_pass = self.trains and self.size >= batch.count
        with torch.set_grad_enabled(in_one_pass):
            return self._all_of(batch, self.encoder, self.size)

    def _go_back(self, batch: ViewBatch, h: Tensor, gradient: Tensor) -> None:
        if h.requires_grad:
            h.backward(gradient)
            return
        with running_statistics_kept(self.encoder):  # the first pass has moved them
            self._second_pass(batch, gradient.flatten(0, 1), self.size)

    def _passes(self, batch: ViewBatch, size: int) -> Iterator[ViewChunk]:
        whole = joined(batch)
        if size >= batch.count:
            yield whole
            return
        share = batch.count // batch.views
        rng = np.random.default_rng(batch.items)  # the same parts whenever it is made
        for view in range(batch.views):
            places = view * share + rng.permutation(share)
            for part in np.array_split(places, ceil(share / size)):
                rows = torch.from_numpy(part)
                yield ViewChunk(rows, tuple(one[rows] for one in whole.inputs))


def joined(batch: ViewBatch) -> ViewChunk:
    """All views of a batch in the order of their places."""
    order = torch.cat([chunk.places for chunk in batch.chunks]).argsort()
    inputs = zip(*(chunk.inputs for chunk in batch.chunks), strict=True)
    in_order = tuple(torch.cat(parts)[order] for parts in inputs)
    return ViewChunk(torch.arange(len(order)), in_order)


@contextmanager
def running_statistics_kept(module: nn.Module) -> Iterator[None]:
    """Let batch norms normalise by the batch without adding it to what they keep."""
    norms = [
        one
        for one in module.modules()
        if isinstance(one, nn.modules.batchnorm._BatchNorm)
    ]
    before = [one.momentum for one in norms]
    for one in norms:
        one.momentum = 0.0
    try:
        yield
    finally:
        for one, momentum in zip(norms, before, strict=True):
            one.momentum = momentum
