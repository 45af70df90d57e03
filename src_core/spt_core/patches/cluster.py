"""Encoding on several machines, with dask.distributed.

Slides are independent, so each is one task. The scheduler gives a lost worker's slides
to others, which continue from what that worker had written; a lock per slide makes sure
that it has one writer.
"""

import os
import queue
import time
from collections.abc import Generator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any

from spt_core.events import Note, Progress
from spt_core.patches.encode import Event, encode_slides
from spt_core.patches.encoder import TorchEncoder
from spt_core.patches.encoder_file import encoder_file_of
from spt_core.patches.registry import load_encoder
from spt_core.patches.scheduler import TlsFiles, connect, lost, trust
from spt_core.patches.settings import (
    EncodeSettings,
    SlideResult,
    SlideStarted,
    SlideTask,
)
from spt_core.patches.totals import Totals

# A slide during which this many workers died is given up.
_LOST_WORKERS = 3
# A lost worker that is still alive may hold its slide's lock for a while.
_LOCK_SECONDS = 30.0
_REPORT_SECONDS = 1.0

# A worker loads an encoder once, not once per slide.
_encoders: dict[tuple[Any, ...], TorchEncoder] = {}
_loading = Lock()


def encode_on_cluster(
    tasks: Sequence[SlideTask],
    settings: EncodeSettings,
    scheduler: str,
    tls: TlsFiles | None = None,
) -> Generator[Event, None, list[SlideResult]]:
    """Encode slides on the workers of a running scheduler.

    Closing the generator cancels what has not begun; slides in progress stop at their
    next report and keep what is done.
    """
    # An encoder that cannot be loaded is reported once, not once per slide.
    load_encoder(settings.encoder, settings.weights)
    if said := trust(scheduler):
        yield Note(said)
    client = connect(scheduler, tls)
    try:
        return (yield from _run(client, *_for_others(tasks, settings)))
    except OSError as error:
        if client.status == "running":  # it is no matter of the connection
            raise
        raise lost(scheduler) from error
    finally:
        with suppress(OSError):
            client.close()


def _for_others(
    tasks: Sequence[SlideTask], settings: EncodeSettings
) -> tuple[list[SlideTask], EncodeSettings]:
    """The same for processes that work in other folders: no path is relative."""
    whole = [
        replace(task, path=task.path.absolute(), out=task.out.absolute())
        for task in tasks
    ]
    weights = Path(settings.weights).absolute() if settings.weights else None
    encoder = settings.encoder
    if encoder_file_of(encoder) is not None:
        encoder = str(Path(encoder).absolute())
    return whole, replace(settings, encoder=encoder, weights=weights)


def _run(
    client: Any, tasks: Sequence[SlideTask], settings: EncodeSettings
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
            key=f"{topic}-{task.name}",
            pure=False,
        )
        futures[future] = task
        future.add_done_callback(ended.put)
    board = Totals(len(tasks))
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
                if future.status != "finished" and client.status != "running":
                    raise ConnectionError("the scheduler is gone")
                results.append(_result(future, futures[future]))
                board.ended += 1
                yield results[-1]
        return results
    finally:
        # All of it is asked of the scheduler, which may be what was lost.
        with suppress(OSError):
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


def _encode_one(task: SlideTask, settings: EncodeSettings, topic: str) -> SlideResult:
    """Encode one slide in a worker, reporting to whoever listens to the topic."""
    from distributed import Event as Signal
    from distributed import get_worker

    worker = get_worker()
    stop = Signal(topic)
    key = (settings.encoder, settings.weights)
    # A worker of several threads loads it once: random weights are drawn from one seed
    # for the whole process.
    with _loading:
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
