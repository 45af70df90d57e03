"""From a slide to a prediction that grows: the engine's main work."""

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import numpy as np

from spt_core.devices import choose_device
from spt_core.engine.loaded import LoadedModels
from spt_core.engine.protocol import (
    Analyse,
    Analysed,
    ClassesMapped,
    Noticed,
    NoticeKind,
    Predicted,
    Reply,
    Started,
    Step,
    Work,
    Working,
)
from spt_core.engine.steering import Steering
from spt_core.engine.task import Task, open_asked, task_of
from spt_core.events import Note, Progress
from spt_core.insight.class_map import class_map
from spt_core.insight.growing import Grown, grow_tokens
from spt_core.insight.predicting import of_site, predict
from spt_core.insight.results import Prediction, Verdict
from spt_core.learning.model_file import SlideModel
from spt_core.patches import EncodeSettings, SlideStarted
from spt_core.slides.grid import PatchGrid
from spt_core.slides.tissue import Tissue
from spt_core.tokens import Tokens
from spt_core.tokens.writing import OtherWorkError

# Between two looks at what has been encoded so far, in seconds.
LOOK_SECONDS = 4.0
# Windows of a slide of which less is seen hold too few patches to say anything, and
# maps in between may take such a share of the time.
MAP_FROM, MAP_SHARE = 0.2, 0.15
# A long slide takes seconds; so many of its patches answer at once.
FIRST_GLANCE = 1024


def analyse(request: Analyse, loaded: LoadedModels, steering: Steering) -> Work:
    """Encode a slide, or take its kept features, and say what the model says of it."""
    began = time.perf_counter()
    yield Working(Step.OPENING)
    slide = open_asked(request)
    yield Working(Step.LOADING_MODEL)
    task = task_of(request, loaded, slide)
    features = task.entry.features
    reused = task.entry.is_finished
    if reused:
        tokens = loaded.tokens(features, slide.title, task.model, request.site)
        l0_step_xy = tokens.facts.l0_patch_xy or (1, 1)
        yield _started(task, len(tokens), len(tokens), l0_step_xy, task.tissue())
    else:
        yield from _encode(task, steering)
    task.entry.touch()
    tokens = loaded.tokens(features, slide.title, task.model, request.site)
    yield Working(Step.READING_SLIDE, Progress(len(tokens), len(tokens)))
    if reused and task.model is not None and len(tokens) > 2 * FIRST_GLANCE:
        every = len(tokens) / FIRST_GLANCE
        few = tokens.take((np.arange(FIRST_GLANCE) * every).astype(int))
        yield Predicted(predict(task.model, few, total=len(tokens)))
    yield Predicted(_prediction(task.model, tokens, len(tokens)))
    if task.maps_classes:
        yield from map_classes(task.model, tokens)
    return Analysed(features, reused, time.perf_counter() - began)


def _encode(task: Task, steering: Steering) -> Iterator[Reply]:
    yield Working(Step.FINDING_TISSUE)
    tissue = task.tissue()
    grid = task.grid(tissue)
    try:
        yield from _grow(task, tissue, grid, steering, task.settings)
    except OtherWorkError:
        # It does not fit any more, such as that of another version.
        again = replace(task.settings, redo=True)
        yield from _grow(task, tissue, grid, steering, again)


def _grow(
    task: Task,
    tissue: Tissue,
    grid: PatchGrid,
    steering: Steering,
    settings: EncodeSettings,
) -> Iterator[Reply]:
    before, total = 0, len(grid)
    working = Working(Step.LOOKING, Progress(0, total))
    next_map = time.perf_counter()
    events = grow_tokens(
        task.slide,
        task.entry.folder,
        settings,
        every=LOOK_SECONDS,
        encoder=task.encoder,
        order=steering,
        name=task.entry.key,
        tissue=tissue,
        grid=grid,
    )
    with closing(events):
        for event in events:
            if isinstance(event, SlideStarted):
                before, total = event.done, event.total
                yield _started(task, total, before, grid.l0_step_xy, tissue)
            elif isinstance(event, Note):
                yield _noticed(event)
            elif isinstance(event, Progress):
                done, all_in_all = event.done + before, event.total + before
                working = Working(Step.LOOKING, Progress(done, all_in_all, event.rate))
                yield working
            elif isinstance(event, Grown):
                tokens = of_site(event.tokens, task.site)
                yield Predicted(_prediction(task.model, tokens, total))
                share = len(tokens) / total
                if (
                    task.maps_classes
                    and share >= MAP_FROM
                    and time.perf_counter() > next_map
                ):
                    # Others may be served at a yield: that time is not the map's.
                    spent, began = 0.0, time.perf_counter()
                    for reply in map_classes(task.model, tokens, working):
                        spent += time.perf_counter() - began
                        yield reply
                        began = time.perf_counter()
                    next_map = began + spent / MAP_SHARE


def map_classes(
    model: SlideModel | None, tokens: Tokens, meanwhile: Working | None = None
) -> Iterator[Reply]:
    """The class map of tokens, with its progress, or saying ``meanwhile`` instead."""
    if model is None:
        return
    work = class_map(model, tokens)
    with closing(work):
        while True:
            try:
                progress = replace(next(work), message="")
            except StopIteration as stop:
                yield ClassesMapped(stop.value)
                return
            yield meanwhile or Working(Step.MAPPING_CLASSES, progress)


def _prediction(model: SlideModel | None, tokens: Tokens, total: int) -> Prediction:
    """What the model says; without one, which patches were looked at."""
    if model is not None:
        return predict(model, tokens, total=total)
    return Prediction(
        facts=tokens.facts,
        p=tokens.p,
        xy=tokens.xy,
        classes=(),
        probabilities=None,
        calibrated=False,
        embedding=np.zeros(0, np.float32),
        attention=np.zeros((0, len(tokens)), np.float32),
        seen=len(tokens),
        total=total,
        verdict=Verdict.NO_CLASSES if len(tokens) else Verdict.EMPTY,
        fingerprint=tokens.facts.slide_fingerprint or "",
    )


def _noticed(note: Note) -> Noticed:
    if note.kind is None:
        return Noticed(NoticeKind.OF_ENCODING, reason=note.message)
    return Noticed(note.kind, note.values)


def _started(
    task: Task, patches: int, done: int, l0_patch_xy: tuple[int, int], tissue: Tissue
) -> Started:
    return Started(
        patches=patches,
        done=done,
        l0_patch_xy=l0_patch_xy,
        mpp_xy=task.slide.mpp_xy,
        mpp_from_user=task.slide.mpp_from_user,
        tissue=tissue,
        device=str(choose_device(task.settings.device)),
        encoder=task.encoder.card.name,
    )
