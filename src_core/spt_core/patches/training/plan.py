"""Which tiles, in which views, make a step: a function of the seed alone."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from spt_core.devices import ready_to_copy
from spt_core.learning.batches import Batch, Chunk, made_ahead
from spt_core.patches.training.augment import draw, make_views
from spt_core.patches.training.pool import TilePool
from spt_core.patches.training.settings import PatchTrainSettings

CHUNK = 64


@dataclass(frozen=True, eq=False)
class PatchPlan:
    """Batches of tiles; ``Batch.slides`` are the tiles' numbers in the pool.

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
    def steps_per_epoch(self) -> int:
        return max(1, len(self.pool) // self.batch)

    def tiles(self, step: int) -> NDArray[np.int64]:
        """Numbers of the tiles of a whole batch."""
        if self.settings.method == "hidisc":
            return self._by_patient(step)
        epoch, within = divmod(step, self.steps_per_epoch)
        rng = np.random.default_rng([self.settings.seed, epoch])
        order = rng.permutation(len(self.pool))
        return order[within * self.batch : (within + 1) * self.batch]

    def _by_patient(self, step: int) -> NDArray[np.int64]:
        """Patients, of each some slides, of each some tiles, until the batch is full.

        Tiles of unknown patients take the share of the batch that they have of all.
        """
        pool, (slides, patches) = self.pool, self.settings.group
        rng = np.random.default_rng([self.settings.seed, 37, step])
        lone = round(self.batch * len(pool.orphans) / len(pool))
        if not pool.by_patient:
            lone = self.batch
        found: list[int] = rng.permutation(pool.orphans)[:lone].tolist()
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

    def make(self, step: int) -> Batch:
        """This process's part of the batch of one step."""
        settings, whole = self.settings, self.tiles(step)
        share = len(whole) // self.world
        mine = slice(self.rank * share, (self.rank + 1) * share)
        rng = np.random.default_rng([settings.seed, 41, step])
        chunks = []
        for view in range(settings.views):
            numbers = draw(rng, len(whole), settings.augmentation).part(mine)
            pixels = make_views(
                [self.pool.tiles[tile] for tile in whole[mine]],
                self.pool.um[whole[mine]],
                numbers,
                settings.view_size or 1,
                settings.mpp or 1.0,
            )
            chunks += list(self._chunks(pixels, view * share))
        return Batch(whole, settings.views, chunks)

    def _chunks(self, pixels: torch.Tensor, first: int) -> Iterator[Chunk]:
        for start in range(0, len(pixels), CHUNK):
            x = pixels[start : start + CHUNK]
            n = len(x)
            # A patch is all the token there is: no places, nothing padded.
            yield Chunk(
                torch.arange(first + start, first + start + n),
                ready_to_copy(x, self.device),
                torch.zeros((n, 1, 2), dtype=torch.int32),
                torch.ones((n, 1), dtype=torch.bool),
            )

    def from_step(
        self, first: int, last: int
    ) -> AbstractContextManager[Iterator[Batch]]:
        return made_ahead(self.make, first, last)
