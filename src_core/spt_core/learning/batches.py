"""From slides to padded tensors: views drawn, rows read, ahead of the training step."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from spt_core.devices import copy_to, ready_to_copy
from spt_core.learning.cohort import Cohort
from spt_core.learning.views import Rows, ViewSettings, slide_views, view_generator

AHEAD = 2  # batches made ahead of the one in use


@dataclass(frozen=True, eq=False)
class Chunk:
    """Views of about one length, padded to the longest.

    Attributes
    ----------
    places : (s,)
        Where each view belongs in the batch, counted view by view: view * batch + slide
    x : (s, n, d)
    p : (s, n, 2) int32
    mask : (s, n), True = real token
    """

    places: Tensor
    x: Tensor
    p: Tensor
    mask: Tensor

    def on(self, device: torch.device) -> "Chunk":
        x, p, mask = (copy_to(t, device) for t in (self.x, self.p, self.mask))
        return Chunk(self.places, x.float(), p, mask)

    def split(self, size: int) -> Iterator["Chunk"]:
        for start in range(0, len(self.places), size):
            part = slice(start, start + size)
            yield Chunk(self.places[part], self.x[part], self.p[part], self.mask[part])


@dataclass(frozen=True, eq=False)
class Batch:
    """One step's views of this process's slides, in chunks.

    Attributes
    ----------
    slides : (batch,)
        Numbers of the slides of the whole batch, all processes together.
    """

    slides: NDArray[np.int64]
    views: int
    chunks: list[Chunk]

    @property
    def tokens(self) -> int:
        """Tokens to compute, padding included."""
        return sum(chunk.mask.numel() for chunk in self.chunks)

    @property
    def count(self) -> int:
        return sum(len(chunk.places) for chunk in self.chunks)


def make_batch(
    cohort: Cohort,
    slides: NDArray[np.int64],
    rows: list[list[Rows]],
    *,
    chunk: int,
    device: torch.device,
) -> Batch:
    """Read and pad views, ``rows[view][slide]``, longest first in chunks.

    Views are of very different length. Chunks of similar ones waste a third less on
    padding than one tensor of them all, and change no result.
    """
    flat = [view for views in rows for view in views]
    lengths = np.array([len(view) for view in flat])
    order = np.argsort(-lengths, kind="stable")
    chunks = []
    for start in range(0, len(order), chunk):
        places = order[start : start + chunk]
        n = int(lengths[places[0]])
        x = np.zeros((len(places), n, cohort.dim), cohort.dtype)
        p = np.zeros((len(places), n, 2), np.int32)
        for line, place in enumerate(places):
            slide, view = cohort[int(slides[place % len(slides)])], flat[place]
            slide.read(view, x[line, : len(view)])
            p[line, : len(view)] = slide.p[view]
        mask = np.arange(n) < lengths[places, None]
        tensors = (torch.from_numpy(array) for array in (x, p, mask))
        chunks.append(
            Chunk(
                torch.from_numpy(places), *(ready_to_copy(t, device) for t in tensors)
            )
        )
    return Batch(slides, len(rows), chunks)


@dataclass(frozen=True)
class Plan:
    """Which slides, in which views, make step ``step``: a function of the seed alone.

    Nothing is carried from step to step, so a run can go on at any of them, in any
    number of processes.

    Attributes
    ----------
    batch
        Slides in a step, all processes together.
    rank, world
        Which part of each batch is this process's.
    """

    cohort: Cohort
    views: ViewSettings
    batch: int
    seed: int
    device: torch.device
    chunk: int = 64
    rank: int = 0
    world: int = 1

    @property
    def steps_per_epoch(self) -> int:
        return max(1, len(self.cohort) // self.batch)

    def slides(self, step: int) -> NDArray[np.int64]:
        """Numbers of the slides of a whole batch."""
        epoch, within = divmod(step, self.steps_per_epoch)
        order = np.random.default_rng([self.seed, epoch]).permutation(len(self.cohort))
        return order[within * self.batch : (within + 1) * self.batch]

    def make(self, step: int) -> Batch:
        """This process's part of the batch of one step."""
        whole = self.slides(step)
        share = len(whole) // self.world
        mine = whole[self.rank * share : (self.rank + 1) * share]
        epoch = step // self.steps_per_epoch
        by_slide = [
            slide_views(
                self.cohort[int(slide)].p,
                view_generator(self.seed, epoch, int(slide)),
                self.views,
            )
            for slide in mine
        ]
        rows = [list(view) for view in zip(*by_slide, strict=True)]
        made = make_batch(self.cohort, mine, rows, chunk=self.chunk, device=self.device)
        return Batch(whole, made.views, made.chunks)

    def from_step(
        self, first: int, last: int
    ) -> AbstractContextManager[Iterator[Batch]]:
        """The batches of steps ``first`` to ``last`` - 1, made ahead in a thread."""
        return made_ahead(self.make, first, last)


@contextmanager
def made_ahead(
    make: Callable[[int], Batch], first: int, last: int
) -> Iterator[Iterator[Batch]]:
    """The batches of steps ``first`` to ``last`` - 1, made ahead in a thread."""
    with ThreadPoolExecutor(1, thread_name_prefix="batches") as pool:
        pending = [
            pool.submit(make, step) for step in range(first, min(first + AHEAD, last))
        ]

        def batches() -> Iterator[Batch]:
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
