"""Encoding slides: the generators that commands, widgets and workers run."""

import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from spt_core import devices
from spt_core.errors import InputError
from spt_core.events import Note, Progress
from spt_core.patches.encoder import PatchEncoder
from spt_core.patches.job import NotWrittenError, Order, SlideJob, prepare
from spt_core.patches.order import outwards
from spt_core.patches.pipeline import Pipeline
from spt_core.patches.registry import load_encoder
from spt_core.patches.ring import Encoded
from spt_core.patches.settings import (
    EncodeSettings,
    PartialTokens,
    SlideResult,
    SlideStarted,
    SlideTask,
)
from spt_core.slides import Slide
from spt_core.slides.grid import PatchGrid
from spt_core.slides.names import slide_name
from spt_core.slides.tissue import Tissue
from spt_core.tokens import layout

Event = Progress | Note | SlideStarted | PartialTokens | SlideResult

# The rate is measured over the last seconds, this many.
_RATE_SECONDS = 20.0


def encode_slide(
    slide: str | Path | Slide,
    out: str | Path,
    settings: EncodeSettings | None = None,
    *,
    encoder: PatchEncoder | None = None,
    l0_from: tuple[float, float] | None = None,
    order: Order | None = None,
    name: str | None = None,
    tissue: Tissue | None = None,
    grid: PatchGrid | None = None,
) -> Generator[Event, None, SlideResult]:
    """Encode one slide into a feature file, showing tokens as they come.

    Closing the generator stops the work within one batch and keeps what is done; the
    same call then continues from there.

    Parameters
    ----------
    slide
        The file, or a slide that is open: its title is what sentences call it.
    out
        The folder of the feature file.
    encoder
        A loaded encoder, where there is one already; otherwise ``settings`` name it.
    l0_from
        Begin at this level-0 (x, y) and go outwards, instead of from coarse to fine.
    order
        Order of encoding, instead of either.
    name
        What to call the slide and its feature file, where not by its own name.
    tissue, grid
        Where the tissue is, and which patches to encode, if that is known already.

    Yields
    ------
    ``SlideStarted``, then ``PartialTokens`` (each token once, first those of an
    earlier run) and ``Progress``, and ``Note`` where the user should know something.

    Raises
    ------
    InputError
        Where the slide cannot be encoded, with the reason.
    """
    opened = slide if isinstance(slide, Slide) else None
    path = slide.path if isinstance(slide, Slide) else Path(slide)
    name = name or slide_name(path)
    task = SlideTask(
        path,
        name,
        Path(out) / f"{name}{layout.ENDING}",
        slide=opened,
        tissue=tissue,
        grid=grid,
    )
    if order is None and l0_from is not None:
        order = partial(_outwards, l0_from)
    events = encode_slides(
        [task], settings, encoder=encoder, order=order, give_tokens=True
    )
    with closing(events):
        for event in events:
            if not isinstance(event, SlideResult):
                yield event
            elif event.status in ("failed", "busy"):
                raise event.error or InputError(event.reason)
            else:
                return event
    raise RuntimeError("the slide neither ended nor failed")


def encode_slides(
    tasks: Sequence[SlideTask],
    settings: EncodeSettings | None = None,
    *,
    encoder: PatchEncoder | None = None,
    order: Order | None = None,
    give_tokens: bool = False,
) -> Generator[Event, None, list[SlideResult]]:
    """Encode slides one after the other, the next made ready while one runs.

    What is wrong with one slide is its ``SlideResult`` and does not stop the others.
    """
    settings = settings or EncodeSettings()
    device = devices.choose_device(settings.device)
    precision = devices.inference_precision(device, settings.precision)
    if encoder is None:
        encoder = load_encoder(settings.encoder, settings.weights)
    slides = (prepare(task, settings, encoder, precision, order) for task in tasks)
    pipeline = Pipeline(
        encoder,
        device,
        precision=precision,
        batch_size=settings.batch_size,
        readers=settings.readers,
        lanes=settings.lanes,
        threads=settings.threads,
    )
    results: list[SlideResult] = []
    meter = _Meter(len(tasks))
    running: list[SlideJob] = []
    work = pipeline.run(slides)
    try:
        for step in work:
            for event in _take(step, running, meter, give_tokens):
                if isinstance(event, SlideResult):
                    results.append(event)
                yield event
    finally:
        # Also when the generator is closed: what is encoded is kept.
        encoded, untaken = pipeline.close()
        for left in encoded:
            with suppress(OSError):
                _keep(left)
        for job in (*running, *untaken):
            job.partial.close()
        work.close()
    return results


def _take(
    step: SlideJob | SlideResult | Encoded | Note,
    running: list[SlideJob],
    meter: "_Meter",
    give_tokens: bool,
) -> Iterator[Event]:
    """Deal with one thing that came out of the pipeline."""
    if isinstance(step, Note):
        yield step
        return
    if isinstance(step, SlideResult):
        meter.ended(step)
        yield step
        return
    if isinstance(step, SlideJob):
        job = step
        running.append(job)
        done = len(job.grid) - job.todo
        meter.started(job)
        yield SlideStarted(job.name, len(job.grid), done)
        yield from job.notes
        if give_tokens:
            for rows in job.partial.chunks():
                yield PartialTokens(job.name, job.tokens(rows, job.partial.read(rows)))
    else:
        job = step.job
        if job.cancelled:
            return
        why: InputError | None = None
        try:
            _keep(step)
        except OSError as error:
            why = _not_written(job, error)
        if job.broken and why is None:
            why = InputError(
                f"{job.title} cannot be read ({job.broken}). What was encoded before "
                "is kept: see whether the file is whole, and run the same command "
                "again."
            )
        if why is not None:
            running.remove(job)
            job.partial.close()
            result = job.failed(why)
            meter.ended(result)
            yield result
            return
        if give_tokens and len(step.rows):
            yield PartialTokens(job.name, job.tokens(step.rows, step.x))
        yield meter.moved(job, len(step.rows) + len(step.unreadable))
    if job.finished == job.todo:
        running.remove(job)
        said = len(job.notes)
        try:
            result = job.finish()
        except OSError as error:
            job.partial.close()
            result = job.failed(_not_written(job, error))
        yield from job.notes[said:]
        meter.ended(result)
        yield result


def _keep(encoded: Encoded) -> None:
    job = encoded.job
    if job.cancelled:
        return
    if len(encoded.rows):
        job.partial.append(encoded.rows, encoded.x)
    job.unreadable += len(encoded.unreadable)
    job.finished += len(encoded.rows) + len(encoded.unreadable)


def _not_written(job: SlideJob, error: OSError) -> NotWrittenError:
    folder, cause = job.task.out.parent, error.strerror or str(error)
    return NotWrittenError(
        f"the features of {job.title} cannot be written to {folder}: {cause}. What was "
        "written before is kept: make room or allow writing, and run the same command "
        "again.",
        f"{folder}: {cause}",
    )


def _outwards(
    l0_xy: tuple[float, float], grid: PatchGrid, todo: NDArray[np.int64]
) -> Iterator[NDArray[np.int64]]:
    g_centre = (l0_xy[1] / grid.l0_step_xy[1], l0_xy[0] / grid.l0_step_xy[0])
    for rows in outwards(grid.g_rc[todo], g_centre):
        yield todo[rows]


class _Meter:
    """Progress of a run; the patches of slides not yet opened are estimated."""

    def __init__(self, slides: int) -> None:
        self.slides = slides
        self._known: list[int] = []
        self._ended = 0
        self._done = 0
        self._recent: deque[tuple[float, int]] = deque()

    def started(self, job: SlideJob) -> None:
        self._known.append(job.todo)
        if not self._recent:
            self._recent.append((time.perf_counter(), 0))

    def ended(self, result: SlideResult) -> None:
        self._ended += 1

    def moved(self, job: SlideJob, patches: int) -> Progress:
        self._done += patches
        now = time.perf_counter()
        self._recent.append((now, self._done))
        while len(self._recent) > 2 and now - self._recent[0][0] > _RATE_SECONDS:
            self._recent.popleft()
        since, before = self._recent[0]
        rate = (self._done - before) / max(now - since, 1e-6)
        unknown = self.slides - self._ended - 1
        total = sum(self._known) + round(unknown * np.mean(self._known))
        message = job.name
        if self.slides > 1:
            message = f"slide {self._ended + 1} of {self.slides}, {job.name}"
        return Progress(self._done, max(total, self._done), rate, message)


def slide_tasks(
    paths: Iterable[Path], out: Path, mpp_by_name: dict[str, float] | None = None
) -> list[SlideTask]:
    """One task per slide; two slides of one name stop the run."""
    tasks: dict[str, SlideTask] = {}
    for path in paths:
        name = slide_name(path)
        if name in tasks:
            raise InputError(
                f"Two slides are called {name}: {tasks[name].path} and {path}. Their "
                "features would go to one file: rename one of them."
            )
        mpp = (mpp_by_name or {}).get(name)
        tasks[name] = SlideTask(path, name, out / f"{name}{layout.ENDING}", mpp)
    return list(tasks.values())
