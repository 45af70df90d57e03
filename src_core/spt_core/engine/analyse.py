"""From a slide to a reading that grows: the engine's main work."""

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import numpy as np

from spt_core.devices import choose_device
from spt_core.engine import failures
from spt_core.engine.desk import Desk
from spt_core.engine.memory_notes import MemoryNotes
from spt_core.engine.messages import OTHER, UNREADABLE, Failure, Request, Say, Work
from spt_core.engine.steering import Steering
from spt_core.engine.task import Task, open_asked, task_of
from spt_core.engine.telling import facts_of, map_of, prediction_of, said_of
from spt_core.errors import InputError
from spt_core.events import Note, Progress
from spt_core.insight.growing import Grown, grow_tokens
from spt_core.insight.predicting import predict
from spt_core.patches import EncodeSettings, SlideStarted
from spt_core.patches.job import UnreadableSlideError
from spt_core.slides.grid import PatchGrid, lay_grid
from spt_core.slides.tissue import Tissue, find_tissue
from spt_core.tokens.writing import OtherWorkError, SlideInUseError

# Between two looks at what has been encoded so far, in seconds.
LOOK_SECONDS = 4.0
# Windows of a slide of which less is seen hold too few patches to say anything, and
# maps in between may take such a share of the time.
MAP_FROM, MAP_SHARE = 0.2, 0.15
# A long slide takes seconds; so many of its patches answer at once.
FIRST_GLANCE = 1024


def analyse(request: Request, desk: Desk, steering: Steering) -> Work:
    """Encode a slide, or take its kept features, and say what the model says of it."""
    began = time.perf_counter()
    yield Say.step("opening the slide")
    slide = open_asked(request)
    yield Say.step("loading the model")
    task = task_of(request, desk, slide)
    reused = task.entry.is_finished
    if reused:
        yield from _begin_again(task, desk)
    else:
        yield from _encode(task, request, steering)
    task.entry.touch()
    tokens = desk.tokens(task.entry.features, task.model, task.title)
    yield Say.step("reading the whole slide", len(tokens), len(tokens))
    if reused and task.model is not None and len(tokens) > 2 * FIRST_GLANCE:
        every = len(tokens) / FIRST_GLANCE
        few = tokens.take((np.arange(FIRST_GLANCE) * every).astype(int))
        yield said_of(predict(task.model, few, total=len(tokens)))
    prediction = prediction_of(task.model, tokens, len(tokens))
    yield said_of(prediction)
    if task.maps_classes:
        yield from map_of(task.model, tokens)
    return Say(
        "done",
        {
            **facts_of(prediction),
            "features": task.entry.features,
            "reused": reused,
            "seconds": time.perf_counter() - began,
        },
    )


def _begin_again(task: Task, desk: Desk) -> Iterator[Say]:
    """What is known of a slide whose features were kept."""
    tokens = desk.tokens(task.entry.features, task.model, task.title)
    tissue = task.entry.tissue()
    if tissue is None:
        tissue = find_tissue(task.slide)
        task.entry.keep_tissue(tissue)
    step = tokens.facts.l0_patch_xy or (1, 1)
    yield _started(task, len(tokens), len(tokens), step, tissue)


def _encode(task: Task, request: Request, steering: Steering) -> Iterator[Say]:
    yield Say.step("finding the tissue")
    tissue = task.entry.tissue()
    if tissue is None:
        tissue = find_tissue(task.slide)
        task.entry.keep_tissue(tissue)
    grid = _grid(task, tissue)
    l0_from = request.get("l0_from")
    steering.l0_xy = None if l0_from is None else (float(l0_from[0]), float(l0_from[1]))
    try:
        yield from _grow(task, tissue, grid, steering, task.settings)
    except OtherWorkError:
        # It does not fit any more, such as that of another version.
        again = replace(task.settings, redo=True)
        yield from _grow(task, tissue, grid, steering, again)
    except InputError as error:
        raise _in_words(task, error) from error


def _in_words(task: Task, error: InputError) -> Failure:
    if isinstance(error, UnreadableSlideError):
        return Failure(
            UNREADABLE,
            f"{task.title} is damaged: no part of its tissue can be read. "
            "Copy it again from where it came from.",
        )
    if isinstance(error, SlideInUseError):
        return Failure(
            OTHER,
            f"{task.title} is being analysed in another window. Wait until "
            "that one is done, or close it.",
        )
    return Failure(OTHER, task.in_words(str(error)))


def _grid(task: Task, tissue: Tissue) -> PatchGrid:
    settings = task.settings
    try:
        grid = lay_grid(
            task.slide,
            tissue,
            patch_size=settings.patch_size or 1,
            target_mpp=settings.target_mpp or 1.0,
            min_tissue=settings.min_tissue,
        )
    except InputError as error:  # smaller than one patch
        raise failures.too_small(task.title, tissue) from error
    if len(grid) == 0:
        raise failures.no_tissue(task.title, tissue)
    return grid


def _grow(
    task: Task,
    tissue: Tissue,
    grid: PatchGrid,
    steering: Steering,
    settings: EncodeSettings,
) -> Iterator[Say]:
    before, total = 0, len(grid)
    progress = Say.step("looking at the tissue", 0, total)
    next_map = time.perf_counter()
    memory = MemoryNotes()
    events = grow_tokens(
        task.slide.path,
        task.entry.folder,
        settings,
        every=LOOK_SECONDS,
        encoder=task.encoder,
        order=steering,
        name=task.entry.key,
        tissue=tissue,
    )
    with closing(events), memory:
        for event in events:
            yield from memory.new()
            if isinstance(event, SlideStarted):
                before, total = event.done, event.total
                yield _started(task, total, before, grid.l0_step_xy, tissue)
            elif isinstance(event, Note):
                yield Say.note(task.in_words(event.message))
            elif isinstance(event, Progress):
                event = replace(event, message="looking at the tissue")
                progress = Say.progress(event, before=before)
                yield progress
            elif isinstance(event, Grown):
                yield said_of(prediction_of(task.model, event.tokens, total))
                share = len(event.tokens) / total
                if (
                    task.maps_classes
                    and share >= MAP_FROM
                    and time.perf_counter() > next_map
                ):
                    # Others may be served at a yield: that time is not the map's.
                    spent, began = 0.0, time.perf_counter()
                    for say in map_of(task.model, event.tokens, progress):
                        spent += time.perf_counter() - began
                        yield say
                        began = time.perf_counter()
                    next_map = began + spent / MAP_SHARE


def _started(
    task: Task, patches: int, done: int, l0_patch: tuple[int, int], tissue: Tissue
) -> Say:
    return Say(
        "started",
        {
            "patches": patches,
            "done": done,
            "patch_l0": list(l0_patch),
            "mpp": task.slide.mpp,
            "mpp_xy": task.slide.mpp_xy,
            "downsample": list(tissue.l0_scale_xy),
            "device": str(choose_device(task.settings.device)),
            "encoder": task.encoder.card.name,
        },
        {"mask": tissue.mask},
    )
