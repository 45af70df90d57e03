"""Encoding on several processes or machines, with dask.distributed.

Slides are independent, so each is one task. The scheduler gives a lost worker's slides
to others, which continue from what that worker had written; a lock per slide makes sure
that it has one writer.
"""

import logging
import os
import queue
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Any

from spt_core import devices
from spt_core.errors import InputError
from spt_core.events import Note, Progress
from spt_core.patches.encode import Event, encode_slides
from spt_core.patches.encoder import TorchEncoder
from spt_core.patches.registry import load_encoder
from spt_core.patches.settings import (
    EncodeSettings,
    SlideResult,
    SlideStarted,
    SlideTask,
)

# A slide during which this many workers died is given up.
_LOST_WORKERS = 3
# A lost worker that is still alive may hold its slide's lock for a while.
_LOCK_SECONDS = 30.0
_REPORT_SECONDS = 1.0
_CONNECT_SECONDS = 10.0

# A worker loads an encoder once, not once per slide.
_encoders: dict[tuple[Any, ...], TorchEncoder] = {}


def encode_on_cluster(
    tasks: Sequence[SlideTask],
    settings: EncodeSettings,
    *,
    workers: int = 0,
    scheduler: str | None = None,
) -> Generator[Event, None, list[SlideResult]]:
    """Encode slides on ``workers`` local processes, or on a running scheduler's.

    Closing the generator cancels what has not begun; slides in progress stop at their
    next report and keep what is done.
    """
    from distributed import Client, LocalCluster

    # An encoder that cannot be loaded is reported once, not once per slide.
    load_encoder(settings.encoder, settings.weights)
    local = scheduler is None
    if local:
        yield from _shared_gpus(settings.device, workers)
    with ExitStack() as stack:
        if local:
            import dask

            stack.enter_context(
                dask.config.set(
                    {"distributed.scheduler.allowed-failures": _LOST_WORKERS}
                )
            )
            settings = _share_of_this_computer(settings, workers)
            cluster = LocalCluster(
                n_workers=workers,
                threads_per_worker=1,
                processes=True,
                dashboard_address=None,
                silence_logs=logging.CRITICAL,
            )
            client = Client(stack.enter_context(cluster))
        else:
            try:
                client = Client(scheduler, timeout=_CONNECT_SECONDS)
            except (OSError, ValueError) as error:
                raise InputError(
                    f"There is no scheduler at {scheduler} ({error}). Start one with "
                    "'dask scheduler', or use --workers N on this computer."
                ) from error
        client = stack.enter_context(client)
        return (yield from _run(client, tasks, settings, own_gpus=local))


def _shared_gpus(wanted: str, workers: int) -> Iterator[Note]:
    used = {devices.own_gpu(wanted, worker) for worker in range(workers)}
    if len(used) < workers and devices.choose_device(wanted).type == "cuda":
        count = "one GPU" if len(used) == 1 else f"{len(used)} GPUs"
        yield Note(f"{workers} workers share {count}; one worker per GPU is enough.")


def _share_of_this_computer(settings: EncodeSettings, workers: int) -> EncodeSettings:
    """Divide the cores among the workers, unless the settings say otherwise."""
    cores = max(1, (os.cpu_count() or 1) // workers)
    lanes, _ = devices.usual_lanes(devices.choose_device(settings.device))
    return replace(
        settings,
        lanes=settings.lanes or min(lanes, cores),
        threads=settings.threads or 1,
        readers=settings.readers or min(8, cores),
    )


def _run(
    client: Any,
    tasks: Sequence[SlideTask],
    settings: EncodeSettings,
    *,
    own_gpus: bool,
) -> Generator[Event, None, list[SlideResult]]:
    from distributed import Event as Signal

    topic = f"spt-encode-{os.getpid()}-{time.time_ns()}"
    stop = Signal(topic, client=client)
    heard: queue.SimpleQueue[Any] = queue.SimpleQueue()
    ended: queue.SimpleQueue[Any] = queue.SimpleQueue()
    client.subscribe_topic(topic, lambda event: heard.put(event[1]))
    futures = {}
    for task in tasks:
        future = client.submit(
            _encode_one,
            task,
            settings,
            topic,
            own_gpu=own_gpus,
            key=f"{topic}-{task.name}",
            pure=False,
        )
        futures[future] = task
        future.add_done_callback(ended.put)
    board = _Totals(len(tasks))
    results: list[SlideResult] = []
    try:
        while len(results) < len(tasks):
            try:
                future = ended.get(timeout=0.2)
            except queue.Empty:
                future = None
            while not heard.empty():
                yield from board.heard(heard.get())
            if future is not None:
                results.append(_result(future, futures[future]))
                board.ended += 1
                yield results[-1]
        return results
    finally:
        if len(results) < len(tasks):
            stop.set()
            client.cancel(list(futures))
        client.unsubscribe_topic(topic)


def _result(future: Any, task: SlideTask) -> SlideResult:
    if future.status == "finished":
        return future.result()
    error = future.exception() if future.status == "error" else None
    if type(error).__name__ == "KilledWorker":
        reason = (
            f"{_LOST_WORKERS} workers died while they encoded it (out of memory?); "
            "what they wrote is kept."
        )
    else:
        reason = f"{type(error).__name__}: {error}" if error else "it was cancelled."
    return SlideResult(task.name, "failed", reason=reason)


class _Totals:
    """Adds up what the workers report."""

    def __init__(self, slides: int) -> None:
        self.slides = slides
        self.ended = 0
        self._done: dict[str, int] = {}
        self._total: dict[str, int] = {}
        self._first: tuple[float, int] | None = None

    def heard(self, report: dict[str, Any]) -> Iterator[Event]:
        name = report["name"]
        if "note" in report:
            yield Note(report["note"])
        if "started" in report:
            total, done = report["started"]
            yield SlideStarted(name, total, done)
            self._total[name], self._done[name] = total, done
        if "done" in report:
            self._done[name] = report["done"]
        if not self._total:
            return
        now, done = time.perf_counter(), sum(self._done.values())
        if self._first is None:
            self._first = (now, done)
        rate = (done - self._first[1]) / max(now - self._first[0], 1e-6)
        known = sum(self._total.values())
        unknown = max(0, self.slides - max(len(self._total), self.ended))
        total = max(done, known + unknown * known // len(self._total))
        message = f"{self.ended} of {self.slides} slides ended"
        yield Progress(done, total, rate or None, message)


def _encode_one(
    task: SlideTask, settings: EncodeSettings, topic: str, *, own_gpu: bool
) -> SlideResult:
    """Encode one slide in a worker, reporting to whoever listens to the topic."""
    from distributed import Event as Signal
    from distributed import get_worker

    worker = get_worker()
    if own_gpu:  # a local cluster's workers are called 0, 1, 2 ...
        device = devices.own_gpu(settings.device, int(worker.name))
        settings = replace(settings, device=device)
    stop = Signal(topic)
    key = (settings.encoder, settings.weights)
    if key not in _encoders:
        _encoders[key] = load_encoder(*key)
    until = time.monotonic() + _LOCK_SECONDS
    while True:
        result = None
        events = encode_slides([task], settings, encoder=_encoders[key])
        reported = 0.0
        base = 0
        with closing(events):
            for event in events:
                report: dict[str, Any] = {"name": task.name}
                if isinstance(event, SlideResult):
                    result = event
                    report["done"] = event.patches
                elif isinstance(event, SlideStarted):
                    base = event.done
                    report["started"] = (event.total, event.done)
                elif isinstance(event, Note):
                    report["note"] = event.message
                elif isinstance(event, Progress):
                    now = time.monotonic()
                    if now - reported < _REPORT_SECONDS:
                        continue
                    reported = now
                    report["done"] = base + event.done
                    if stop.is_set():
                        return SlideResult(task.name, "failed", reason="stopped")
                worker.log_event(topic, report)
        if result is None:
            return SlideResult(task.name, "failed", reason="it did not end")
        if result.status != "busy" or time.monotonic() > until:
            return result
        time.sleep(1.0)
