"""Which tiles, in which views, make a step: a function of the seed alone."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from spt_core.devices import ready_to_copy
from spt_core.patches.training.augment import ViewParameters, draw_views, make_views
from spt_core.patches.training.pool import TilePool, TileSource
from spt_core.patches.training.settings import PatchTrainSettings
from spt_core.patches.training.view_workers import usual_workers, view_workers
from spt_core.training.batch import ViewBatch, ViewChunk, steps_per_epoch

CHUNK = 64
PIECE = 8  # views that one thread makes at a time


@dataclass(frozen=True, eq=False)
class PatchPlan:
    """Batches of tiles, by their numbers among those in memory.

    Attributes
    ----------
    batch
        Tiles in a step, all processes together.
    rank, world
        Which part of each batch is this process's.
    """

    source: TileSource
    settings: PatchTrainSettings
    batch: int
    device: torch.device
    rank: int = 0
    world: int = 1

    @property
    def views(self) -> int:
        return self.settings.views

    @property
    def steps_per_epoch(self) -> int:
        return steps_per_epoch(self.source.count, self.batch)

    def epoch(self, step: int) -> int:
        return step // self.steps_per_epoch

    def pool(self, step: int) -> TilePool:
        """The tiles that are in memory in a step."""
        return self.source.at(self.epoch(step))

    def tiles(self, step: int) -> NDArray[np.int64]:
        """Numbers, in the step's pool, of the tiles of a whole batch."""
        if self.settings.method == "hidisc":
            return self._by_patient(step)
        epoch, within = divmod(step, self.steps_per_epoch)
        order = np.random.default_rng([self.settings.seed, epoch])
        places = np.arange(within * self.batch, (within + 1) * self.batch)
        count = len(self.pool(step))
        # Around: an epoch may lack a few, which could not be read.
        return order.permutation(count)[places % count]

    def _by_patient(self, step: int) -> NDArray[np.int64]:
        """Patients, of each some slides, of each some tiles, until the batch is full.

        Tiles of unknown patients take the share of the batch that they have of all.
        """
        pool, (slides, patches) = self.pool(step), self.settings.group
        rng = np.random.default_rng([self.settings.seed, 37, step])
        lone = round(self.batch * len(pool.without_patient) / len(pool))
        if not pool.by_patient:
            lone = self.batch
        found: list[int] = rng.permutation(pool.without_patient)[:lone].tolist()
        while len(found) < self.batch:
            before = len(found)
            taken = set(found)
            for patient in rng.permutation(len(pool.by_patient)):
                of_patient = pool.by_patient[patient]
                for slide in rng.permutation(len(of_patient))[:slides]:
                    left = [t for t in of_patient[slide] if int(t) not in taken]
                    found += rng.permutation(left)[:patches].astype(int).tolist()
                if len(found) >= self.batch:
                    break
            if len(found) == before:
                break  # every tile is in it
        return np.array(found[: self.batch], np.int64)

    def make(self, step: int) -> ViewBatch:
        """This process's part of the batch of one step."""
        pool, whole = self.pool(step), self.tiles(step)
        share = len(whole) // self.world
        mine = slice(self.rank * share, (self.rank + 1) * share)
        rng = np.random.default_rng([self.settings.seed, 41, step])
        how = self.settings.augmentation
        # Every view's numbers are drawn before any is made, by whichever thread.
        numbers = [
            draw_views(rng, len(whole), how).part(mine) for _ in range(self.views)
        ]
        pieces = [
            (view, slice(start, min(start + PIECE, share)))
            for view in range(self.views)
            for start in range(0, share, PIECE)
        ]

        def made(piece: tuple[int, slice]) -> Tensor:
            view, rows = piece
            return self._views(pool, whole[mine][rows], numbers[view].part(rows))

        found = list(self._workers.map(made, pieces))
        return ViewBatch(
            pool.item[whole], self.views, list(self._chunks(torch.cat(found)))
        )

    def _views(
        self, pool: TilePool, tiles: NDArray[np.int64], numbers: ViewParameters
    ) -> Tensor:
        settings = self.settings
        return make_views(
            [pool.tiles[tile] for tile in tiles],
            pool.um[tiles],
            numbers,
            settings.view_size or 1,
            settings.mpp or 1.0,
        )

    @cached_property
    def _workers(self) -> ThreadPoolExecutor:
        return view_workers(self.settings.workers or usual_workers(self.device))

    def _chunks(self, pixels: Tensor) -> Iterator[ViewChunk]:
        """Views (views * items, 3, size, size) in chunks, view by view."""
        for start in range(0, len(pixels), CHUNK):
            part = pixels[start : start + CHUNK]
            places = torch.arange(start, start + len(part))
            yield ViewChunk(places, (ready_to_copy(part, self.device),))
