"""From slides to features without letting the device wait.

Threads hand work on under one lock: a *preparer* makes slides ready, one ahead;
*readers* fill batches of pixels in a ring of buffers; *lanes* encode full batches;
the caller of ``run`` takes the results in the order in which they were read, because
any prefix must be a fair sample, though batches overtake one another on their way.
Every queue is bounded, so memory does not depend on the size of a slide.
"""

import logging
import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from threading import Condition, Lock, Thread
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from spt_core import devices
from spt_core.events import Note, NoticeKind
from spt_core.patches.encoder import PatchEncoder
from spt_core.patches.job import SlideJob
from spt_core.patches.order import same_batches
from spt_core.patches.reading import read_patches
from spt_core.patches.ring import BlockPlace, Encoded, PatchBatch, Slot, capacity
from spt_core.patches.settings import SlideResult
from spt_core.tokens import writing

log = logging.getLogger(__name__)

_MAX_RESULTS = 16
_SMALLER = Note(
    "Memory ran short, so the work goes on in smaller batches. That is slower, and the "
    "result is the same.",
    NoticeKind.SMALLER_BATCHES,
)


class Pipeline:
    """Runs one encoder over slides; ``run`` it once, and ``close`` it always.

    Parameters
    ----------
    precision
        In which the encoder runs; None is float32.
    batch_size
        Patches that are encoded at once; halved where memory does not suffice.
    readers, lanes, threads
        Threads that read, threads that encode, and torch's own threads in each lane.
    """

    def __init__(
        self,
        encoder: PatchEncoder,
        device: torch.device,
        *,
        precision: torch.dtype | None = None,
        batch_size: int | None = None,
        readers: int | None = None,
        lanes: int | None = None,
        threads: int | None = None,
    ) -> None:
        self.device = device
        self.precision = precision
        self.encoder = encoder.to(device)
        self.batch_size = max(1, batch_size or devices.usual_batch(device))
        self.micro_batch = self.batch_size
        usual_lanes, usual_threads = devices.usual_lanes(device)
        self.lanes = lanes or usual_lanes
        self.threads = threads or usual_threads
        self.readers = readers or max(1, min(8, os.cpu_count() or 1))
        self._slots = self.lanes + 2
        self._free = [Slot() for _ in range(self._slots)]
        self._prepared: deque[SlideJob] = deque()
        self._all_prepared = False
        self._job: SlideJob | None = None
        self._capacity = 1  # of a batch of that job
        self._batch: PatchBatch | None = None
        self._full: deque[PatchBatch] = deque()
        self._results: deque[Any] = deque()
        self._early: dict[int, Encoded] = {}  # by number, of batches not yet due
        self._begun = 0
        self._given = 0
        self._is_smaller = False
        self._stopped = False
        self._lock = Condition()
        self._turn = Lock()  # one reader at a time decides what it reads
        self._threads: list[Thread] = []

    def run(
        self, slides: Iterable[SlideJob | SlideResult]
    ) -> Generator[SlideJob | SlideResult | Encoded | Note, None, None]:
        """Encode slides in turn.

        ``slides`` is consumed in a thread, one slide ahead of what is read. A job is
        given out when its reading begins, then what comes of it; whoever takes that
        counts the job's rows to know when it is complete. That batches became smaller
        is a note, once.
        """
        work: list[Callable[[], None]] = [lambda: self._prepare(iter(slides))]
        work += [self._read] * self.readers + [self._encode] * self.lanes
        with devices.threads_kept(self.device):
            for target in work:
                thread = Thread(target=self._guarded, args=(target,), daemon=True)
                thread.start()
                self._threads.append(thread)
            while (result := self._next_result()) is not None:
                yield result

    def close(self) -> tuple[list[Encoded], list[SlideJob]]:
        """Stop within one batch.

        Returns
        -------
        What was encoded but not yet taken, and the slides that were not yet taken.
        """
        with self._lock:
            self._stopped = True
            self._lock.notify_all()
        for thread in self._threads:
            thread.join()
        encoded = [one for one in self._results if isinstance(one, Encoded)]
        encoded += self._early.values()
        jobs = [one for one in self._results if isinstance(one, SlideJob)]
        jobs += self._prepared
        self._results.clear()
        self._early.clear()
        self._prepared.clear()
        self._free.clear()
        return encoded, jobs

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        # It is raised again in the thread that runs the pipeline.
        except BaseException as error:  # noqa: BLE001
            with self._lock:
                self._results.append(error)
                self._lock.notify_all()

    def _wait(self, ready: Callable[[], Any]) -> bool:
        """Wait, holding the lock; False when the pipeline is to stop."""
        self._lock.wait_for(lambda: self._stopped or ready())
        return not self._stopped

    def _next_result(self) -> Any:
        with self._lock:
            self._wait(lambda: self._results or self._is_idle())
            if not self._results:
                return None
            result = self._results.popleft()
            self._lock.notify_all()
        if isinstance(result, BaseException):
            raise result
        return result

    def _is_idle(self) -> bool:
        return (
            self._all_prepared
            and not self._prepared
            and self._job is None
            and len(self._free) == self._slots
        )

    # The preparer

    def _prepare(self, slides: Iterator[SlideJob | SlideResult]) -> None:
        try:
            while not self._stopped:
                one = next(slides, None)
                if one is None:
                    return
                with self._lock:
                    if isinstance(one, SlideResult):
                        if self._wait(lambda: len(self._results) < _MAX_RESULTS):
                            self._results.append(one)
                            self._lock.notify_all()
                        continue
                    self._prepared.append(one)
                    self._lock.notify_all()
                    self._wait(lambda: not self._prepared)
        finally:
            with self._lock:
                self._all_prepared = True
                self._lock.notify_all()

    # The readers

    def _read(self) -> None:
        while (place := self._next_block()) is not None:
            job = place.batch.job
            readable = np.zeros(len(place.rows), bool)
            if not (job.cancelled or job.broken):
                try:
                    readable = read_patches(
                        job.slide, job.grid, place.rows, place.pixels()
                    )
                # A slide can be broken in ways that no library foresaw; the others
                # are not to suffer for it.
                except Exception as error:
                    log.exception("%s cannot be read", job.task.path)
                    job.broken = f"{type(error).__name__}: {error}"
            with self._lock:
                place.batch.readable[place.index] = readable
                place.batch.reading -= 1
                self._queue_batch(place.batch)

    def _next_block(self) -> BlockPlace | None:
        """Take the next block and its place in a batch; None at the end."""
        with self._turn, self._lock:
            while not self._stopped:
                job = self._job
                if job is None:
                    if not self._wait(lambda: self._prepared or self._all_prepared):
                        return None
                    if not self._prepared:
                        return None
                    self._job = job = self._prepared.popleft()
                    self._capacity = capacity(job, self.batch_size)
                    if job.is_done is not None:
                        job.blocks = same_batches(
                            job.blocks, job.is_done, self._capacity
                        )
                    self._results.append(job)
                    self._lock.notify_all()
                rows = self._take(job)
                if self._batch is not None and not (
                    rows is not None and len(rows) and self._batch.has_room(rows)
                ):
                    self._batch.is_closed = True
                    self._queue_batch(self._batch)
                    self._batch = None
                if rows is None:
                    self._job = None
                    self._lock.notify_all()
                    continue
                if not len(rows):  # the end of a batch
                    continue
                if self._batch is None:
                    # Waiting here, not in the lanes: one of them must be free for the
                    # batch that all others wait for.
                    if not self._wait(
                        lambda: self._free and self._begun - self._given < _MAX_RESULTS
                    ):
                        return None
                    self._batch = PatchBatch.begin(
                        job, self._begun, self._free.pop(), self._capacity, self.device
                    )
                    self._begun += 1
                return self._batch.place(rows)
        return None

    def _take(self, job: SlideJob) -> NDArray[np.int64] | None:
        """The next block of a slide, no larger than a batch of it."""
        if job.cancelled or job.broken:
            return None
        rows = job.rest if job.rest is not None else next(job.blocks, None)
        job.rest = None
        if rows is not None and len(rows) > self._capacity:
            rows, job.rest = rows[: self._capacity], rows[self._capacity :]
        return rows

    def _queue_batch(self, batch: PatchBatch) -> None:
        if batch.is_full:
            self._full.append(batch)
            self._lock.notify_all()

    # The lanes

    def _encode(self) -> None:
        with devices.own_stream(self.device), torch.inference_mode():
            devices.use_threads(self.device, self.threads)
            while (batch := self._next_batch()) is not None:
                encoded = self._encode_batch(batch)
                with self._lock:
                    self._deliver(batch.number, encoded)
                    self._free.append(batch.slot)
                    self._lock.notify_all()

    def _deliver(self, number: int, encoded: Encoded) -> None:
        """Hand over what is due, in turn."""
        self._wait(lambda: len(self._results) < _MAX_RESULTS)
        self._early[number] = encoded
        while (due := self._early.pop(self._given, None)) is not None:
            self._results.append(due)
            self._given += 1

    def _next_batch(self) -> PatchBatch | None:
        with self._lock:
            if not self._wait(lambda: self._full or self._is_idle()):
                return None
            return self._full.popleft() if self._full else None

    def _encode_batch(self, batch: PatchBatch) -> Encoded:
        job = batch.job
        rows = np.concatenate(batch.blocks)
        readable = np.concatenate(batch.readable)
        pixels = batch.pixels[: batch.count]
        if not readable.all():
            pixels = pixels[torch.from_numpy(readable)]
        if len(pixels) and not job.cancelled:
            x = self._features(pixels, job)
            if not x.isfinite().all():
                job.broken = "its encoder makes NaN or infinity of some patches"
                return Encoded(job, rows[:0], x[:0].numpy(), rows[:0])
        else:
            x = torch.empty(0, self.encoder.card.dim)
            readable = readable & False
        return Encoded(job, rows[readable], x.numpy(), rows[~readable])

    def _features(self, pixels: torch.Tensor, job: SlideJob) -> torch.Tensor:
        precision = self.precision  # another lane may change it meanwhile

        def attempt(size: int) -> torch.Tensor:
            with devices.cast_to(self.device, precision):
                parts = [
                    self.encoder(
                        devices.copy_to(part, self.device),
                        job.size,
                        job.stain,
                        job.way,
                    )
                    for part in pixels.split(size)
                ]
            return torch.cat(parts).float().cpu()

        x, self.micro_batch = devices.with_back_off(
            attempt, self.micro_batch, on_smaller=self._tell_smaller
        )
        if precision is torch.float16 and not x.isfinite().all():
            log.warning(
                "The encoder %s leaves the range of float16: it runs in float32 now.",
                self.encoder.card.name,
            )
            self.precision = precision = None
            x, self.micro_batch = devices.with_back_off(
                attempt, self.micro_batch, on_smaller=self._tell_smaller
            )
        job.extra[writing.PRECISION] = devices.precision_name(precision)
        return x

    def _tell_smaller(self) -> None:
        with self._lock:
            if not self._is_smaller:
                self._is_smaller = True
                self._results.append(_SMALLER)
                self._lock.notify_all()
