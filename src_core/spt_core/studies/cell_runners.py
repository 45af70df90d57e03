"""Where cells are done: in this process, in several of this computer, on a cluster."""

import multiprocessing
import os
import shutil
import threading
import time
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from spt_core.devices import GIB, choose_device
from spt_core.errors import InputError
from spt_core.events import Note, Progress
from spt_core.memory import memory_bytes
from spt_core.patches.scheduler import connect, lost, trust
from spt_core.studies.bench import Bench, open_bench
from spt_core.studies.benchmark_settings import BenchmarkSettings
from spt_core.studies.cell_work import FAILURES, do_cell, why_of
from spt_core.studies.cells import Cell, CellFolder
from spt_core.studies.told import Told, tell
from spt_core.training.alarms import Collapsed, NotLearning

# What a process takes before it opens a slide: torch, and room to train.
PROCESS_BYTES = int(1.5 * GIB)
_LOST = (
    "The process that did it ended without a word, perhaps for want of memory. Use "
    "fewer --workers."
)
_CHANGED = (
    "Slides or labels were changed since this was begun. Put them back to go on with "
    "what is done."
)


@dataclass(frozen=True)
class CellDone:
    """A cell has ended; ``why`` it failed, where it did."""

    cell: str
    seconds: float
    why: str | None = None


Events = Generator[Any, None, None]


def run_cells(bench: Bench, cells: Sequence[Cell]) -> Events:
    """Do those cells that have no result yet."""
    left = [cell for cell in cells if not bench.folder.is_done(cell)]
    for cell in set(cells).difference(left):  # what a kill may have left of a run
        shutil.rmtree(bench.folder.run(cell), ignore_errors=True)
    if not left:
        return
    clock = _Clock(len(cells), len(left))
    settings = bench.settings
    if settings.scheduler:
        if said := trust(settings.scheduler):
            yield Note(said)
        ended: Generator[Any, None, None] = _on_cluster(bench, left, settings.scheduler)
    else:
        workers = settings.workers or usual_workers(bench)
        workers = min(workers, len(left))
        if workers > 1:
            yield Note(f"{workers} trainings at the same time.")
            ended = _in_processes(bench, left, workers)
        else:
            ended = _here(bench, left)
    for event in ended:
        if not isinstance(event, CellDone):
            yield event
            continue
        yield event
        if event.why:
            yield Note(f"Failed: {event.cell}. {event.why}")
        yield clock.after_one()


def usual_workers(bench: Bench) -> int:
    """As many as cores and memory allow; a GPU is shared by none."""
    if choose_device(bench.settings.device).type != "cpu":
        return 1
    free = memory_bytes()[1]
    tokens = sum(
        slide.x.nbytes
        for cohort in bench.cohorts.values()
        for slide in cohort
        if slide.x is not None
    )
    most = os.cpu_count() or 1
    if free is not None:
        most = min(most, int(free // (PROCESS_BYTES + 2 * tokens)))
    return max(1, most)


class _Clock:
    """How far it is, and how long it will take by the cells done so far."""

    def __init__(self, total: int, left: int) -> None:
        self.total, self.done = total, total - left
        self.began, self.first = time.monotonic(), self.done

    def after_one(self) -> Progress:
        self.done += 1
        seconds = time.monotonic() - self.began
        rate = (self.done - self.first) / max(seconds, 1e-6)
        left = (self.total - self.done) / rate
        words = f"about {_duration(left)} left" if self.done < self.total else "done"
        return Progress(self.done, self.total, rate, words)


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def _here(bench: Bench, cells: Iterable[Cell]) -> Generator[Any, None, None]:
    for cell in cells:
        began = time.monotonic()
        why = None
        try:
            for event in do_cell(bench, cell):
                if isinstance(event, Progress):
                    yield Beat(str(cell), event.done, event.total)
                elif is_told(event):
                    yield CellEvent(str(cell), event)
        except FAILURES as error:
            why = why_of(error)
            bench.folder.write_failure(cell, why)
        yield CellDone(str(cell), time.monotonic() - began, why)


@dataclass(frozen=True)
class Beat:
    """A cell is at work; in processes of their own several are, and 0 of 0 is known."""

    cell: str
    done: int
    total: int


@dataclass(frozen=True)
class CellEvent:
    """What the training of a cell says; out of another process as plain data."""

    cell: str
    event: Any


def is_told(event: Any) -> bool:
    """Epochs, what is seen of them, and alarms; not every remark of every cell."""
    if isinstance(event, Progress):
        return False
    return not isinstance(event, Note) or isinstance(event, NotLearning | Collapsed)


def _in_processes(
    bench: Bench, cells: Sequence[Cell], workers: int
) -> Generator[CellDone | CellEvent | Beat, None, None]:
    """Do cells in processes of their own, a lost one's once more by itself."""
    waiting, tried = list(cells), set[Cell]()
    while waiting:
        dropped: list[Cell] = []
        yield from _pool(bench, waiting, workers, dropped)
        for cell in dropped:
            if cell in tried:
                bench.folder.write_failure(cell, _LOST)
                yield CellDone(str(cell), 0.0, _LOST)
            else:
                waiting.insert(0, cell)
        tried |= set(dropped)
        workers = 1


def _pool(
    bench: Bench, left: list[Cell], workers: int, dropped: list[Cell]
) -> Generator[CellDone | CellEvent | Beat, None, None]:
    """Do what is ``left``, up to the loss of a process and what it ``dropped``."""
    threads = max(1, (os.cpu_count() or 1) // workers)
    plain = bench.settings.plain()
    told = Told()
    pool = ProcessPoolExecutor(
        workers,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_begin_worker,
        initargs=(threads,),
    )
    futures: dict[Future, Cell] = {}
    try:
        while left or futures:
            while left and len(futures) < workers and not dropped:
                cell = left.pop(0)
                try:
                    future = pool.submit(
                        _do_in_worker, plain, bench.folder, cell, told.folder
                    )
                except BrokenProcessPool:  # one that was waiting for work
                    dropped.append(cell)
                else:
                    futures[future] = cell
            ended, _ = wait(futures, timeout=0.5, return_when=FIRST_COMPLETED)
            for name, record in told.read():
                yield CellEvent(name, record)
            if not ended:  # so that whoever listens may stop
                yield Beat("; ".join(map(str, futures.values())), 0, 0)
            for future in ended:
                cell = futures.pop(future)
                try:
                    yield future.result()
                except BrokenProcessPool:
                    dropped.append(cell)
            if dropped:
                dropped += futures.values()
                return
    finally:
        for process in list((pool._processes or {}).values()):
            process.terminate()
        pool.shutdown(wait=True, cancel_futures=True)
        told.close()


def _begin_worker(threads: int) -> None:
    import torch

    torch.set_num_threads(threads)
    parent = multiprocessing.parent_process()
    if parent is not None:

        def end_with_it() -> None:
            parent.join()
            os._exit(1)

        threading.Thread(target=end_with_it, daemon=True).start()


def _do_in_worker(
    plain: dict[str, Any], folder: CellFolder, cell: Cell, told: str | None = None
) -> CellDone:
    began = time.monotonic()
    why = None
    try:
        bench = _opened(_Frozen(plain))
        if bench.folder.recipe != folder.recipe:
            raise InputError(_CHANGED)
        for event in do_cell(bench, cell):
            if told and is_told(event):
                tell(told, str(cell), event)
    except FAILURES as error:
        why = why_of(error)
        folder.write_failure(cell, why)
    return CellDone(str(cell), time.monotonic() - began, why)


class _Frozen:
    """Settings as a key: a process opens the slides once, not once per cell."""

    def __init__(self, plain: dict[str, Any]) -> None:
        self.plain, self.text = plain, repr(plain)

    def __hash__(self) -> int:
        return hash(self.text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Frozen) and self.text == other.text


@cache
def _opened(frozen: _Frozen) -> Bench:
    return open_bench(BenchmarkSettings.from_plain(frozen.plain))


def _on_cluster(
    bench: Bench, cells: Sequence[Cell], address: str
) -> Generator[CellDone, None, None]:
    """Cells as tasks of a dask cluster, whose machines see the same folders."""
    from distributed import as_completed

    client = connect(address, bench.settings.tls)
    settings = bench.settings
    plain = replace(
        settings,
        features=tuple(
            f"{name}={Path(path).absolute()}"
            for name, path in settings.named_features()
        ),
        labels=str(Path(settings.labels).absolute()),
        out=str(Path(settings.out).absolute()),
    ).plain()
    folder = replace(bench.folder, path=bench.folder.path.absolute())
    futures = {
        client.submit(_do_in_worker, plain, folder, cell, pure=False): cell
        for cell in cells
    }
    try:
        for future in as_completed(futures):
            cell = futures[future]
            if future.status == "finished":
                yield future.result()
            elif client.status != "running":
                raise lost(address)
            else:
                bench.folder.write_failure(cell, _LOST)
                yield CellDone(str(cell), 0.0, _LOST)
    except OSError as error:
        if client.status == "running":  # it is no matter of the connection
            raise
        raise lost(address) from error
    finally:
        # Asked of the scheduler, which may be what was lost.
        with suppress(OSError):
            client.cancel(list(futures))
        with suppress(OSError):
            client.close()
