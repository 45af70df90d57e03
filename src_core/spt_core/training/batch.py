"""What one step is given: views of some items, in chunks that go through an encoder.

Items are what is learned from: slides in slide training, tiles in patch training.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from spt_core.devices import copy_to

AHEAD = 2  # batches made ahead of the one in use


@dataclass(frozen=True, eq=False)
class ViewChunk:
    """Some views of a batch, as tensors that an encoder takes in one pass.

    Attributes
    ----------
    places : (s,)
        Where each view belongs in the batch, counted view by view: view * items + item
    inputs
        The encoder's arguments, each with s as its first axis.
    """

    places: Tensor
    inputs: tuple[Tensor, ...]

    def inputs_on(self, device: torch.device) -> tuple[Tensor, ...]:
        """The inputs on a device; numbers stored in half precision become single."""
        copies = (copy_to(tensor, device) for tensor in self.inputs)
        return tuple(c.float() if c.is_floating_point() else c for c in copies)

    def split(self, size: int) -> Iterator["ViewChunk"]:
        """The same views in chunks of at most ``size``."""
        for start in range(0, len(self.places), size):
            part = slice(start, start + size)
            yield ViewChunk(self.places[part], tuple(t[part] for t in self.inputs))


@dataclass(frozen=True, eq=False)
class ViewBatch:
    """One step's views of this process's items.

    Attributes
    ----------
    items : (batch,)
        Numbers of the items of the whole batch, all processes together.
    views
        How many views there are of each item.
    seed
        What an encoder with dropout draws by, together with the view; other in each
        step.
    """

    items: NDArray[np.int64]
    views: int
    chunks: list[ViewChunk]
    seed: tuple[int, ...] = ()

    @property
    def count(self) -> int:
        """Views to compute in this process."""
        return sum(len(chunk.places) for chunk in self.chunks)


class BatchPlan(Protocol):
    """Which batch makes which step: a function of the step's number alone.

    Nothing is carried from step to step, so a run can go on at any of them, in any
    number of processes.
    """

    @property
    def batch(self) -> int:
        """Items in a step, all processes together."""

    @property
    def views(self) -> int:
        """Views of each item."""

    @property
    def steps_per_epoch(self) -> int: ...

    def make(self, step: int) -> ViewBatch:
        """This process's part of the batch of one step."""


def steps_per_epoch(count: int, batch: int) -> int:
    """How many whole batches ``count`` items make; at least one."""
    return max(1, count // batch)


def shuffled_items(count: int, batch: int, step: int, seed: int) -> NDArray[np.int64]:
    """The items of a step's batch, each of ``count`` at most once per epoch."""
    epoch, within = divmod(step, steps_per_epoch(count, batch))
    order = np.random.default_rng([seed, epoch]).permutation(count)
    return order[within * batch : (within + 1) * batch]


@contextmanager
def made_ahead(
    make: Callable[[int], ViewBatch], first: int, last: int
) -> Iterator[Iterator[ViewBatch]]:
    """The batches of steps ``first`` to ``last`` - 1, made ahead in a thread."""
    with ThreadPoolExecutor(1, thread_name_prefix="batches") as pool:
        pending = [
            pool.submit(make, step) for step in range(first, min(first + AHEAD, last))
        ]

        def batches() -> Iterator[ViewBatch]:
            for step in range(first, last):
                batch = pending.pop(0).result()
                if step + AHEAD < last:
                    pending.append(pool.submit(make, step + AHEAD))
                yield batch

        try:
            yield batches()
        finally:
            for future in pending:
                future.cancel()
