"""Which tiles, in which views, make a step: a function of the seed alone."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from spt_core.devices import ready_to_copy
from spt_core.patches.training.augment import draw_views, make_views
from spt_core.patches.training.pool import TilePool
from spt_core.patches.training.settings import PatchTrainSettings
from spt_core.training.batch import (
    ViewBatch,
    ViewChunk,
    shuffled_items,
    steps_per_epoch,
)

CHUNK = 64


@dataclass(frozen=True, eq=False)
class PatchPlan:
    """Batches of tiles, by their numbers in the pool.

    Attributes
    ----------
    batch
        Tiles in a step, all processes together.
    rank, world
        Which part of each batch is this process's.
    """

    pool: TilePool
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
        return steps_per_epoch(len(self.pool), self.batch)

    def tiles(self, step: int) -> NDArray[np.int64]:
        """Numbers of the tiles of a whole batch."""
        if self.settings.method == "hidisc":
            return self._by_patient(step)
        return shuffled_items(len(self.pool), self.batch, step, self.settings.seed)

    def _by_patient(self, step: int) -> NDArray[np.int64]:
        """Patients, of each some slides, of each some tiles, until the batch is full.

        Tiles of unknown patients take the share of the batch that they have of all.
        """
        pool, (slides, patches) = self.pool, self.settings.group
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
        settings, whole = self.settings, self.tiles(step)
        share = len(whole) // self.world
        mine = slice(self.rank * share, (self.rank + 1) * share)
        rng = np.random.default_rng([settings.seed, 41, step])
        chunks = []
        for view in range(self.views):
            numbers = draw_views(rng, len(whole), settings.augmentation).part(mine)
            pixels = make_views(
                [self.pool.tiles[tile] for tile in whole[mine]],
                self.pool.um[whole[mine]],
                numbers,
                settings.view_size or 1,
                settings.mpp or 1.0,
            )
            chunks += list(self._chunks(pixels, view * share))
        return ViewBatch(whole, self.views, chunks)

    def _chunks(self, pixels: torch.Tensor, first: int) -> Iterator[ViewChunk]:
        """Views (n, 3, size, size) in chunks; the first one's place is ``first``."""
        for start in range(0, len(pixels), CHUNK):
            part = pixels[start : start + CHUNK]
            places = torch.arange(first + start, first + start + len(part))
            yield ViewChunk(places, (ready_to_copy(part, self.device),))
