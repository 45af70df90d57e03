"""From a slide to a reading that grows: the engine's main work."""

import logging
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from spt_core.devices import choose_device
from spt_core.engine import failures
from spt_core.engine.cache import Entry, entry_for
from spt_core.engine.desk import Desk
from spt_core.engine.messages import (
    MODEL,
    OTHER,
    UNREADABLE,
    Failure,
    Request,
    Say,
    Work,
)
from spt_core.engine.steering import Steering
from spt_core.errors import InputError
from spt_core.events import Note, Progress
from spt_core.insight.class_map import class_map
from spt_core.insight.growing import Grown, grow_tokens, settings_for
from spt_core.insight.predicting import predict
from spt_core.insight.results import (
    ANSWERED,
    EMPTY,
    NO_CLASSES,
    ClassMap,
    Prediction,
)
from spt_core.learning.model_file import SlideModel
from spt_core.patches import EncodeSettings, PatchEncoder, SlideStarted
from spt_core.slides import Slide, open_slide
from spt_core.slides.grid import MissingPixelSizeError, PatchGrid, lay_grid, patch_step
from spt_core.slides.tissue import Tissue, find_tissue
from spt_core.tokens import Tokens

# Between two looks at what has been encoded so far, in seconds.
LOOK_SECONDS = 4.0
# Windows of a slide of which less is seen hold too few patches to say anything, and
# maps in between may take such a share of the time.
MAP_FROM, MAP_SHARE = 0.2, 0.15
# A long slide takes seconds; so many of its patches answer at once.
FIRST_GLANCE = 1024


@dataclass(frozen=True, eq=False)
class Task:
    """All that an analysis needs, opened and checked."""

    slide: Slide
    model: SlideModel | None
    encoder: PatchEncoder
    settings: EncodeSettings
    entry: Entry
    wants_map: bool

    @property
    def maps_classes(self) -> bool:
        return self.wants_map and self.model is not None and bool(self.model.classes)

    def in_words(self, text: str) -> str:
        """A sentence of the core, which knows the slide by its key alone."""
        return text.replace(self.entry.key, self.slide.path.name)


def analyse(request: Request, desk: Desk, steering: Steering) -> Work:
    """Encode a slide, or take its kept features, and say what the model says of it."""
    began = time.perf_counter()
    yield Say.step("opening the slide")
    slide = _open(request)
    yield Say.step("loading the model")
    task = _task(request, desk, slide)
    reused = task.entry.is_finished
    if reused:
        yield from _begin_again(task, desk)
    else:
        yield from _encode(task, request, steering)
    task.entry.touch()
    tokens = desk.tokens(task.entry.features, task.model)
    yield Say.step("reading the whole slide", len(tokens), len(tokens))
    if reused and task.model is not None and len(tokens) > 2 * FIRST_GLANCE:
        every = len(tokens) / FIRST_GLANCE
        few = tokens.take((np.arange(FIRST_GLANCE) * every).astype(int))
        yield said_of(predict(task.model, few, total=len(tokens)))
    prediction = _prediction(task.model, tokens, len(tokens))
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


def _open(request: Request) -> Slide:
    mpp = request.get("slide_mpp")
    try:
        return open_slide(request["slide"], None if mpp is None else float(mpp))
    except InputError as error:
        raise Failure(UNREADABLE, str(error)) from error


def _task(request: Request, desk: Desk, slide: Slide) -> Task:
    device = request.get("device") or "auto"
    settings = EncodeSettings(
        slide_mpp=request.get("slide_mpp"),
        device=device,
        batch_size=request.get("batch_size"),
        stain=request.get("stain") or "none",
    )
    asked = request.get("encoder")
    model = None
    if request.get("model"):
        model = desk.model(request["model"], device)
        try:
            settings = settings_for(model, settings)
        except InputError as error:
            raise Failure(MODEL, str(error)) from error
        if asked and asked != settings.encoder:
            settings = replace(settings, weights=Path(asked))
    elif asked:
        settings = replace(settings, encoder=str(asked))
    encoder = desk.encoder(settings.encoder, settings.weights)
    patch_size, target_mpp = settings.patch(encoder.card)
    settings = replace(settings, patch_size=patch_size, target_mpp=target_mpp)
    _refuse_unlike(model, encoder)
    try:
        patch_step(slide, patch_size=patch_size, target_mpp=target_mpp)
    except MissingPixelSizeError:
        raise failures.no_pixel_size(slide.path.name) from None
    except InputError:
        raise failures.too_coarse(slide, target_mpp) from None
    identity = {
        **settings.identity(encoder.card, encoder.sha256),
        "slide": slide.fingerprint,
        "slide_mpp": slide.mpp_xy,
    }
    folder = Path(request["features"])
    entry = entry_for(folder, identity)
    wants_map = bool(request.get("class_map", True))
    return Task(slide, model, encoder, settings, entry, wants_map)


def _refuse_unlike(model: SlideModel | None, encoder: PatchEncoder) -> None:
    """Say at once, not after the encoding, that model and encoder do not belong."""
    stated = None if model is None else model.card["tokens"].get("encoder_sha256")
    if stated is not None and stated != encoder.sha256:
        raise Failure(
            MODEL,
            f"This model learned with another version of {encoder.card.name} than the "
            "one on this computer. Give the one that it came with under Advanced.",
        )


def _begin_again(task: Task, desk: Desk) -> Iterator[Say]:
    """What is known of a slide whose features were kept."""
    tokens = desk.tokens(task.entry.features, task.model)
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
    except InputError as error:
        # Unfinished work that does not fit any more, such as that of another version.
        if "unfinished work" not in str(error):
            raise _in_words(task, error) from error
        again = replace(task.settings, redo=True)
        yield from _grow(task, tissue, grid, steering, again)


def _in_words(task: Task, error: InputError) -> Failure:
    text = task.in_words(str(error))
    if "can be decoded" in text:
        return Failure(
            UNREADABLE,
            f"{task.slide.path.name} is damaged: no part of its tissue can be read. "
            "Copy it again from where it came from.",
        )
    if "another process" in text:
        return Failure(
            OTHER,
            f"{task.slide.path.name} is being analysed in another window. Wait until "
            "that one is done, or close it.",
        )
    return Failure(OTHER, text)


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
        raise failures.too_small(task.slide, tissue) from error
    if len(grid) == 0:
        raise failures.no_tissue(task.slide, tissue)
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
                yield said_of(_prediction(task.model, event.tokens, total))
                share = len(event.tokens) / total
                if (
                    task.maps_classes
                    and share >= MAP_FROM
                    and time.perf_counter() > next_map
                ):
                    began = time.perf_counter()
                    yield from map_of(task.model, event.tokens, progress)
                    ended = time.perf_counter()
                    next_map = ended + (ended - began) / MAP_SHARE


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


def _prediction(model: SlideModel | None, tokens: Tokens, total: int) -> Prediction:
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
        verdict=NO_CLASSES if len(tokens) else EMPTY,
    )


def facts_of(prediction: Prediction) -> dict[str, Any]:
    """A prediction without its arrays."""
    shares = prediction.probabilities
    verdict = prediction.verdict
    if verdict == ANSWERED:
        verdict = "seen in training" if prediction.trained_on else "class"
    lead = replace(prediction, remarks=()).sentence
    return {
        "seen": prediction.seen / max(prediction.total, 1),
        "patches": prediction.seen,
        "total": prediction.total,
        "classes": list(prediction.classes),
        "probabilities": None if shares is None else shares.tolist(),
        "calibrated": prediction.calibrated,
        "verdict": verdict,
        "answer": prediction.answer,
        "trained_on": prediction.trained_on,
        "sentences": [lead, *prediction.remarks],
        "patch_l0": list(prediction.facts.l0_patch_xy or (1, 1)),
    }


def said_of(prediction: Prediction) -> Say:
    """A prediction as a message."""
    return Say(
        "prediction",
        facts_of(prediction),
        {
            "l0_xy": prediction.xy,
            "g_rc": prediction.p + np.asarray(prediction.facts.g_origin, np.int64),
            "attention": prediction.attention,
        },
    )


def map_of(
    model: SlideModel | None, tokens: Tokens, meanwhile: Say | None = None
) -> Iterator[Say]:
    """The class map of tokens, with its progress, or saying ``meanwhile`` instead."""
    if model is None:
        return
    work = class_map(model, tokens)
    with closing(work):
        while True:
            try:
                event = replace(next(work), message="mapping the classes")
            except StopIteration as stop:
                found: ClassMap = stop.value
                break
            yield meanwhile or Say.progress(event)
    yield Say(
        "class_map",
        {"classes": list(found.classes), "calibrated": found.calibrated},
        {
            "l0_xy": tokens.xy,
            "g_rc": tokens.g_rc,
            "probabilities": found.probabilities,
            "unsure": found.unsure,
        },
    )


class MemoryNotes(logging.Handler):
    """Hears that work went on in smaller portions, and says so once."""

    SENTENCE = (
        "Memory ran short, so the work goes on in smaller portions. That is slower, "
        "and the result is the same."
    )

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._heard = self._said = False
        self._logger = logging.getLogger("spt_core.devices")

    def __enter__(self) -> "MemoryNotes":
        self._logger.setLevel(logging.INFO)
        self._logger.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._logger.removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self._heard = self._heard or "Out of memory" in record.getMessage()

    def new(self) -> Iterator[Say]:
        if self._heard and not self._said:
            self._said = True
            yield Say.note(self.SENTENCE)
