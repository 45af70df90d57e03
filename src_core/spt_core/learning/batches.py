"""From slides to padded tensors: which views make a step, and their rows read."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from spt_core.devices import ready_to_copy
from spt_core.errors import InputError
from spt_core.learning.aggregator import Aggregator
from spt_core.learning.cohort import Cohort
from spt_core.learning.settings import site_batches
from spt_core.learning.views import (
    Places,
    Rows,
    ViewSettings,
    batch_views,
    move,
    view_generator,
)
from spt_core.training.batch import (
    ViewBatch,
    ViewChunk,
    shuffled_items,
    steps_per_epoch,
)


@dataclass(frozen=True)
class SlidePlan:
    """Which slides, in which views, make step ``step``: a function of the seed alone.

    Attributes
    ----------
    batch
        Slides in a step, all processes together.
    rank, world
        Which part of each batch is this process's.
    by_site
        Whether each batch is of slides of one site; batches then differ in size.
    """

    cohort: Cohort
    view_settings: ViewSettings
    batch: int
    seed: int
    device: torch.device
    chunk: int = 64
    rank: int = 0
    world: int = 1
    by_site: bool = False

    @property
    def views(self) -> int:
        return self.view_settings.views

    @property
    def steps_per_epoch(self) -> int:
        if self.by_site:
            return len(self._of_sites)
        return steps_per_epoch(len(self.cohort), self.batch)

    @cached_property
    def _sites(self) -> NDArray[np.int64]:
        return self.cohort.site_numbers()

    @cached_property
    def _of_sites(self) -> list[tuple[int, int]]:
        """The batches of an epoch: site, and slides that all processes can share."""
        whole = site_batches(np.bincount(self._sites).tolist(), self.batch)
        if min(size for _, size in whole) < self.world:
            raise InputError(
                f"The slides of the smallest site cannot be shared by {self.world} "
                "processes. Start fewer, or leave --site-batches out."
            )
        return [(site, size // self.world * self.world) for site, size in whole]

    def slides(self, step: int) -> NDArray[np.int64]:
        """Numbers of the slides of a whole batch."""
        if self.by_site:
            return self._of_one_site(step)
        return shuffled_items(len(self.cohort), self.batch, step, self.seed)

    def _of_one_site(self, step: int) -> NDArray[np.int64]:
        """Of an epoch's batches, in an order drawn for it, the one of this step."""
        epoch, within = divmod(step, self.steps_per_epoch)
        rng = np.random.default_rng([self.seed, epoch])
        slides = rng.permutation(len(self.cohort))
        turn = int(rng.permutation(len(self._of_sites))[within])
        site, size = self._of_sites[turn]
        first = next(i for i, one in enumerate(self._of_sites) if one[0] == site)
        start = (turn - first) * size
        return slides[self._sites[slides] == site][start : start + size]

    def make(self, step: int) -> ViewBatch:
        """This process's part of the batch of one step."""
        whole = self.slides(step)
        share = len(whole) // self.world
        mine = whole[self.rank * share : (self.rank + 1) * share]
        epoch = step // self.steps_per_epoch
        rngs = [view_generator(self.seed, epoch, int(slide)) for slide in mine]
        ps = [self.cohort[int(slide)].p for slide in mine]
        rows = batch_views(ps, rngs, self.view_settings)
        places = [
            [
                move(p[row], rng, self.view_settings)
                for p, row, rng in zip(ps, view, rngs, strict=True)
            ]
            for view in rows
        ]
        sets = None
        if self.cohort.augmented:
            count = 1 + len(self.cohort.augmented)
            drawn = [rng.integers(count, size=self.views) for rng in rngs]
            sets = np.stack(drawn, axis=1).ravel()
        chunks = padded_chunks(
            self.cohort,
            mine,
            rows,
            places,
            size=self.chunk,
            device=self.device,
            sets=sets,
        )
        return ViewBatch(whole, self.views, chunks, (self.seed, step))


def padded_chunks(
    cohort: Cohort,
    slides: NDArray[np.int64],
    rows: list[list[Rows]],
    places: list[list[Places]],
    *,
    size: int,
    device: torch.device,
    sets: NDArray[np.int64] | None = None,
) -> list[ViewChunk]:
    """Read and pad views, ``rows[view][slide]``, longest first in chunks.

    ``places`` are what the encoder is told of where their tokens are.

    Views are of very different length. Chunks of similar ones waste a third less on
    padding than one tensor of them all, and change no result.

    The inputs of a chunk of s views, padded to n tokens, are x (s, n, d), p (s, n, 2)
    int32, and mask (s, n), True = real token.

    Parameters
    ----------
    sets : (views * slides,)
        Whose tokens each view has: 0 the cohort's own, then its augmented ones.
    """
    sources = (cohort, *cohort.augmented)
    flat = [view for views in rows for view in views]
    flat_places = [place for views in places for place in views]
    lengths = np.array([len(view) for view in flat])
    order = np.argsort(-lengths, kind="stable")
    chunks = []
    for start in range(0, len(order), size):
        numbers = order[start : start + size]
        n = int(lengths[numbers[0]])
        x = np.zeros((len(numbers), n, cohort.dim), cohort.dtype)
        p = np.zeros((len(numbers), n, 2), np.int32)
        for line, number in enumerate(numbers):
            source = sources[int(sets[number])] if sets is not None else cohort
            slide, view = source[int(slides[number % len(slides)])], flat[number]
            slide.read(view, x[line, : len(view)])
            p[line, : len(view)] = flat_places[number]
        mask = np.arange(n) < lengths[numbers, None]
        inputs = tuple(
            ready_to_copy(torch.from_numpy(array), device) for array in (x, p, mask)
        )
        chunks.append(ViewChunk(torch.from_numpy(numbers), inputs))
    return chunks


def graph_floats(encoder: Aggregator, batch: ViewBatch) -> float:
    """About how many numbers the graphs of a batch hold, padding included."""
    masks = (chunk.inputs[-1] for chunk in batch.chunks)
    of_tokens = encoder.token_floats * sum(mask.numel() for mask in masks)
    return of_tokens + encoder.slide_floats * batch.count
