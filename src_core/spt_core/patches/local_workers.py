"""Encoding in processes of this computer, over private pipes: no port is opened.

A slide that takes its process down, as damaged files do to the libraries that decode
them, or of which a part is not read in minutes, is tried once more by itself; then it
has failed and the others go on.
"""

import multiprocessing
import os
import queue
import signal
import threading
import time
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from typing import Any

from spt_core import devices, proving
from spt_core.errors import InputError
from spt_core.events import Note, Progress
from spt_core.patches.encode import Event, encode_slides
from spt_core.patches.registry import load_encoder
from spt_core.patches.settings import (
    EncodeSettings,
    SlideResult,
    SlideStarted,
    SlideTask,
)
from spt_core.patches.totals import Totals
from spt_core.quiet import quiet_readers
from spt_core.slides.openslide_file import longest_asked

# A slide with which so many processes died is given up.
_DEATHS = 2
_FALSE_STARTS = 3
# For so long a worker that is told to stop may keep what it has encoded.
_GRACE_SECONDS = 10.0
_REPORT_SECONDS = 0.2
# A part of a slide that is not read by then, over however slow a network, never is.
_READ_SECONDS = 300
_ENDLESS = 75  # the exit code of a worker in which one was not


def encode_in_processes(
    tasks: Sequence[SlideTask], settings: EncodeSettings, *, workers: int = 1
) -> Generator[Event, None, list[SlideResult]]:
    """Encode slides in ``workers`` processes; 1 prepares a slide while one runs.

    Closing the generator stops the work within a batch and keeps what is done.
    """
    if not tasks:
        return []
    yield from shared_gpus(settings.device, workers)
    if workers > 1:
        settings = share_of_this_computer(settings, workers)
    crew = _Crew(tasks, settings, min(workers, len(tasks)))
    try:
        return (yield from crew.work())
    finally:
        crew.close()


def shared_gpus(wanted: str, workers: int) -> Iterator[Note]:
    """Say so where several workers use one GPU."""
    if workers < 2:
        return
    used = {devices.own_gpu(wanted, worker) for worker in range(workers)}
    if len(used) < workers and devices.choose_device(wanted).type == "cuda":
        count = "one GPU" if len(used) == 1 else f"{len(used)} GPUs"
        yield Note(f"{workers} workers share {count}; one worker per GPU is enough.")


def share_of_this_computer(settings: EncodeSettings, workers: int) -> EncodeSettings:
    """Divide the cores among the workers, unless the settings say otherwise."""
    cores = max(1, (os.cpu_count() or 1) // workers)
    lanes, _ = devices.usual_lanes(devices.choose_device(settings.device))
    return replace(
        settings,
        lanes=settings.lanes or min(lanes, cores),
        threads=settings.threads or 1,
        readers=settings.readers or min(8, cores),
    )


@dataclass(eq=False)
class _Worker:
    """One process, as the one that started it sees it."""

    number: int
    process: Any
    pipe: Connection
    given: list[SlideTask] = field(default_factory=list)  # and not ended
    begun: set[str] = field(default_factory=set)
    base: int = 0  # patches of its slide that were there before


class _Crew:
    """Hands slides out to processes and takes what they say."""

    def __init__(
        self, tasks: Sequence[SlideTask], settings: EncodeSettings, workers: int
    ) -> None:
        self.settings = settings
        self.total = len(tasks)
        self.together = workers == 1
        # Lists of slides that one process takes at once.
        self.waiting: deque[list[SlideTask]] = deque(
            [list(tasks)] if self.together else ([task] for task in tasks)
        )
        self.deaths: dict[str, int] = {}
        self.false_starts = 0
        self.results: list[SlideResult] = []
        self.totals = Totals(len(tasks))
        self.workers = {n: self._start(n) for n in range(workers)}

    def work(self) -> Generator[Event, None, list[SlideResult]]:
        for worker in self.workers.values():
            self._hand_out(worker)
        while len(self.results) < self.total:
            pipes = {worker.pipe: worker for worker in self.workers.values()}
            for pipe in wait(list(pipes), timeout=0.5):
                worker = pipes[pipe]  # type: ignore[index]
                try:
                    said = worker.pipe.recv()
                except (EOFError, OSError):
                    yield from self._lost(worker)
                    continue
                yield from self._heard(worker, said)
        return self.results

    def _heard(self, worker: _Worker, said: Any) -> Iterator[Event]:
        if isinstance(said, InputError):  # the encoder cannot be loaded
            raise said
        if said is None:
            self._hand_out(worker)
            return
        if isinstance(said, str):
            worker.begun.add(said)
            return
        if isinstance(said, SlideResult):
            worker.given = [task for task in worker.given if task.name != said.name]
            worker.begun.discard(said.name)
            self.results.append(said)
        if self.together or isinstance(said, Note):
            yield said
        else:
            yield from self._added_up(worker, said)

    def _added_up(self, worker: _Worker, said: Any) -> Iterator[Event]:
        if isinstance(said, SlideResult):
            self.totals.ended += 1
            yield from self.totals.heard({"name": said.name, "done": said.patches})
            yield said
        elif isinstance(said, SlideStarted):
            worker.base = said.done
            report = {"name": said.name, "started": (said.total, said.done)}
            yield from self.totals.heard(report)
        elif worker.given:
            done = worker.base + said.done
            yield from self.totals.heard({"name": worker.given[0].name, "done": done})

    def _lost(self, worker: _Worker) -> Iterator[Event]:
        """Another process for one that died, and what it had begun by itself."""
        worker.pipe.close()
        worker.process.join(_GRACE_SECONDS)
        is_alone = len(worker.given) == 1
        blamed = [task for task in worker.given if task.name in worker.begun]
        rest = [task for task in worker.given if task.name not in worker.begun]
        if not blamed:
            self.false_starts += 1
            if self.false_starts > _FALSE_STARTS:
                raise InputError(
                    f"Processes that encode end at their start ({_why(worker.process)})"
                    ". Run 'spt doctor' to see what is wrong."
                )
        for task in blamed:
            # Of several that were open at once it may have been another.
            self.deaths[task.name] = self.deaths.get(task.name, 0) + 1
            if not is_alone or self.deaths[task.name] < _DEATHS:
                self.waiting.appendleft([task])
                continue
            error = InputError(
                f"{task.title}: the process that read it ended "
                f"({_why(worker.process)}). The file may be damaged: see whether it "
                "is whole. What was encoded before is kept."
            )
            result = SlideResult(task.name, "failed", reason=str(error), error=error)
            self.results.append(result)
            self.totals.ended += 1
            yield result
        if rest:
            self.waiting.append(rest)
        worker.process.close()
        if len(self.results) < self.total:
            fresh = self.workers[worker.number] = self._start(worker.number)
            self._hand_out(fresh)
        else:
            del self.workers[worker.number]

    def _hand_out(self, worker: _Worker) -> None:
        if self.waiting:
            worker.given = self.waiting.popleft()
            with suppress(OSError):  # its end is noticed by the pipe
                worker.pipe.send(worker.given)

    def _start(self, number: int) -> _Worker:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(
            target=_work,
            args=(theirs, self.settings_of(number)),
            name=f"spt encode {number}",
            daemon=True,
        )
        process.start()
        theirs.close()
        return _Worker(number, process, ours)

    def settings_of(self, number: int) -> EncodeSettings:
        """A worker's own: several take a GPU each."""
        if self.together:
            return self.settings
        device = devices.own_gpu(self.settings.device, number)
        return replace(self.settings, device=device)

    def close(self) -> None:
        for worker in self.workers.values():
            worker.pipe.close()
        until = time.monotonic() + _GRACE_SECONDS
        for worker in self.workers.values():
            worker.process.join(max(0.1, until - time.monotonic()))
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
            worker.process.close()


def _why(process: Any) -> str:
    code = process.exitcode
    if code == _ENDLESS:
        return f"a part of it was not read in {_READ_SECONDS // 60} minutes"
    if code is None or code >= 0:
        return f"exit code {code}"
    if -code == getattr(signal, "SIGKILL", 9):
        return "killed, perhaps for want of memory"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


# In the worker's process


class _Told(Sequence[SlideTask]):
    """Slides whose names are told as soon as they are taken."""

    def __init__(self, tasks: list[SlideTask], pipe: "_Pipe") -> None:
        self.tasks, self.pipe = tasks, pipe

    def __len__(self) -> int:
        return len(self.tasks)

    def __getitem__(self, place: Any) -> Any:
        return self.tasks[place]

    def __iter__(self) -> Iterator[SlideTask]:
        for task in self.tasks:
            self.pipe.send(task.name)
            yield task


class _Pipe:
    """The worker's end: threads share it, and its end is the end of all work."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe, self._lock = pipe, threading.Lock()
        self.lists: queue.SimpleQueue[list[SlideTask] | None] = queue.SimpleQueue()
        self.is_over = threading.Event()
        threading.Thread(target=self._listen, daemon=True).start()

    def send(self, said: Any) -> None:
        with self._lock, suppress(OSError):
            self._pipe.send(said)

    def _listen(self) -> None:
        with suppress(EOFError, OSError):
            while True:
                self.lists.put(self._pipe.recv())
        self.is_over.set()
        self.lists.put(None)
        time.sleep(_GRACE_SECONDS)
        os._exit(1)  # whatever hangs, nobody listens any more


def _watch() -> None:
    """End this process where openslide comes to no end with what it is asked."""
    asked, seconds = None, 0
    while seconds < _READ_SECONDS:
        # Counted, so that the time in which a computer sleeps is none.
        time.sleep(1.0)
        before, asked = asked, longest_asked()
        seconds = seconds + 1 if asked is not None and asked == before else 0
    os._exit(_ENDLESS)


def _since(moment: float) -> float:
    return time.monotonic() - moment


def _work(connection: Connection, settings: EncodeSettings) -> None:
    # Ctrl-C in a terminal is for the process that started this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    proving.switch_off()  # this process may be lost
    threading.Thread(target=_watch, daemon=True).start()
    quiet_readers()
    pipe = _Pipe(connection)
    try:
        encoder = load_encoder(settings.encoder, settings.weights)
        while (tasks := pipe.lists.get()) is not None:
            events = encode_slides(_Told(tasks, pipe), settings, encoder=encoder)
            with closing(events):
                reported = 0.0
                for event in events:
                    if pipe.is_over.is_set():
                        return
                    if isinstance(event, Progress):
                        is_last = event.done >= event.total
                        if not is_last and _since(reported) < _REPORT_SECONDS:
                            continue
                        reported = time.monotonic()
                    if isinstance(event, Note | Progress | SlideStarted | SlideResult):
                        pipe.send(event)
            pipe.send(None)
    except InputError as error:
        pipe.send(error)
