"""The buffers that carry pixels from the readers to the device."""

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from spt_core import devices
from spt_core.patches.job import SlideJob

# No buffer takes more than this, whatever the patches' size.
_SLOT_BYTES = 160 * 2**20


@dataclass(eq=False)
class Slot:
    """One buffer, pinned where the device gains from it; it grows as needed."""

    memory: torch.Tensor | None = None

    def shaped(self, shape: tuple[int, ...], device: torch.device) -> torch.Tensor:
        need = int(np.prod(shape))
        if self.memory is None or self.memory.numel() < need:
            self.memory = devices.ready_to_copy(
                torch.empty(need, dtype=torch.uint8), device
            )
        return self.memory[:need].view(shape)


def capacity(job: SlideJob, batch_size: int) -> int:
    """How many of a slide's patches a buffer holds, at most a batch."""
    height, width = job.patch_shape
    return max(1, min(batch_size, _SLOT_BYTES // (height * width * 3)))


@dataclass(frozen=True, eq=False)
class Encoded:
    """What came out of one batch; ``unreadable`` rows have no features."""

    job: SlideJob
    rows: NDArray[np.int64]
    x: NDArray[np.float32]
    unreadable: NDArray[np.int64]


@dataclass(eq=False)
class PatchBatch:
    """Patches of one slide that are encoded together."""

    job: SlideJob
    number: int  # counts the pipeline's batches in the order they were begun
    slot: Slot
    pixels: torch.Tensor  # (capacity, h, w, 3) uint8
    blocks: list[NDArray[np.int64]] = field(default_factory=list)
    readable: list[NDArray[np.bool_]] = field(default_factory=list)
    count: int = 0
    reading: int = 0
    is_closed: bool = False

    @classmethod
    def begin(
        cls, job: SlideJob, number: int, slot: Slot, size: int, device: torch.device
    ) -> "PatchBatch":
        height, width = job.patch_shape
        return cls(job, number, slot, slot.shaped((size, height, width, 3), device))

    def has_room(self, rows: NDArray[np.int64]) -> bool:
        # A block larger than any batch is never asked for: see Pipeline._take.
        return self.count + len(rows) <= len(self.pixels)

    def place(self, rows: NDArray[np.int64]) -> "BlockPlace":
        place = BlockPlace(self, len(self.blocks), rows, self.count)
        self.blocks.append(rows)
        self.readable.append(np.zeros(len(rows), bool))
        self.count += len(rows)
        self.reading += 1
        return place

    @property
    def is_full(self) -> bool:
        return self.is_closed and self.reading == 0


@dataclass(frozen=True, eq=False)
class BlockPlace:
    """Where one block of patches belongs in its batch."""

    batch: PatchBatch
    index: int
    rows: NDArray[np.int64]
    start: int

    def pixels(self) -> NDArray[np.uint8]:
        """The part of the buffer to read into, (n, h, w, 3)."""
        return self.batch.pixels[self.start : self.start + len(self.rows)].numpy()
