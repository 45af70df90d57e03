"""Making a slide ready to be encoded: opened, its patches known, its file locked."""

import hashlib
import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from spt_core.devices import precision_name
from spt_core.errors import InputError
from spt_core.events import Note, NoticeKind
from spt_core.memory import give_back
from spt_core.patches.encoder import TORCH, PatchEncoder
from spt_core.patches.order import coarse_to_fine
from spt_core.patches.settings import EncodeSettings, SlideResult, SlideTask
from spt_core.patches.stain_step import StainStep, stain_step
from spt_core.slides import Slide, open_slide
from spt_core.slides.folders import dicom_files
from spt_core.slides.grid import PatchGrid, lay_grid, patch_step
from spt_core.slides.properties import scanner_of
from spt_core.slides.recipe import RGB_RECIPE, asked_recipe, to_ask_for
from spt_core.slides.slide_errors import UnreadableSlideError
from spt_core.slides.tissue import find_tissue
from spt_core.tokens import layout, writing
from spt_core.tokens.feature_file import UM_AT_1X, text_of
from spt_core.tokens.h5_reading import opened_h5
from spt_core.tokens.schema import check_attributes, check_datasets, short_attributes
from spt_core.tokens.tokens import TokenFacts, Tokens
from spt_core.tokens.writing import PartialFeatures, SlideInUseError, differences

log = logging.getLogger(__name__)

# Pixels: below this, returning memory takes longer than finding the tissue.
_LARGE_MASK = 2**20

Order = Callable[[PatchGrid, NDArray[np.int64]], Iterator[NDArray[np.int64]]]


class NoTissueError(InputError):
    """A slide shows no tissue, or too little for a single patch."""


class NotWrittenError(InputError):
    """Features cannot be written; ``reason`` says where, and what the system says."""

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(eq=False)
class SlideJob:
    """A slide that is ready: what to read, in which order, and where to write it."""

    task: SlideTask
    slide: Slide
    grid: PatchGrid
    facts: TokenFacts
    partial: PartialFeatures
    extra: dict[str, Any]
    size: int  # side of a patch in pixels, as the encoder sees it
    blocks: Iterator[NDArray[np.int64]]
    todo: int
    notes: list[Note]
    way: str  # in which the encoder computes all of it
    stain: StainStep | None = None  # what makes the slide's stains the reference's
    is_done: NDArray[np.bool_] | None = None  # rows of an earlier run, if any
    started: float = field(default_factory=time.perf_counter)
    cancelled: bool = False
    broken: str = ""  # an error that concerns more than single patches
    unreadable: int = 0
    finished: int = 0  # rows of this run that are done or could not be read
    rest: NDArray[np.int64] | None = None  # of a block larger than a batch

    @property
    def name(self) -> str:
        return self.task.name

    @property
    def title(self) -> str:
        """What sentences call the slide."""
        return self.task.title

    @property
    def patch_shape(self) -> tuple[int, int]:
        """Height and width in which patches are handed to the encoder."""
        if self.grid.is_whole:
            width, height = self.grid.lv_size_xy
            return round(height), round(width)
        return self.size, self.size

    def tokens(self, rows: NDArray[np.int64], x: NDArray[np.float32]) -> Tokens:
        origin = np.asarray(self.grid.g_origin)
        return Tokens(
            x, self.grid.g_rc[rows] - origin, self.grid.l0_xy[rows], self.facts
        )

    def finish(self) -> SlideResult:
        """Write the feature file."""
        if self.unreadable:
            sentence = (
                f"{self.title}: {self.unreadable} of {len(self.grid)} patches cannot "
                "be decoded and are left out."
            )
            values = {"patches": self.unreadable}
            self.notes.append(Note(sentence, NoticeKind.UNREADABLE_PARTS, values))
        if len(self.partial.done) == 0:
            self.partial.close()
            reason = "none of its patches can be decoded."
            return self.failed(UnreadableSlideError(reason))
        count = self.partial.finish(
            self.grid.g_rc, self.grid.l0_xy, self.facts, self.extra
        )
        seconds = time.perf_counter() - self.started
        return SlideResult(
            self.name, "done", self.task.out, count, seconds, notes=self._sentences
        )

    def failed(self, error: InputError) -> SlideResult:
        self.cancelled = True
        seconds = time.perf_counter() - self.started
        return SlideResult(
            self.name,
            "failed",
            seconds=seconds,
            reason=str(error),
            notes=self._sentences,
            error=error,
        )

    @property
    def _sentences(self) -> tuple[str, ...]:
        return tuple(note.message for note in self.notes)


def prepare(
    task: SlideTask,
    settings: EncodeSettings,
    encoder: PatchEncoder,
    precision: torch.dtype | None = None,
    order: Order | None = None,
) -> SlideJob | SlideResult:
    """Make a slide ready, or say why there is nothing to do.

    Never raises: whatever is wrong with one slide must not stop the others.
    """
    started = time.perf_counter()
    status, why = "failed", InputError()
    try:
        return _prepare(task, settings, encoder, precision, order)
    except SlideInUseError as error:
        status, why = "busy", error
    except InputError as error:
        why = error
    except OSError as error:
        why = InputError(str(error))
    # A file can be broken in ways that no library foresaw.
    except Exception as error:
        log.exception("%s cannot be prepared", task.path)
        why = InputError(f"{type(error).__name__}: {error}")
    # What its traceback holds, the open slide above all, is not kept with the result.
    why.__cause__ = why.__context__ = why.__traceback__ = None
    seconds = time.perf_counter() - started
    return SlideResult(task.name, status, seconds=seconds, reason=str(why), error=why)


def _prepare(
    task: SlideTask,
    settings: EncodeSettings,
    encoder: PatchEncoder,
    precision: torch.dtype | None,
    order: Order | None,
) -> SlideJob | SlideResult:
    card = encoder.card
    identity = settings.identity(card, encoder.sha256)
    finished_as = dict(identity)
    if settings.redo:
        writing.discard_unfinished(task.out)
    else:
        ended = _finished(task, settings, identity)
        if ended is not None:
            # A cut may come after the file has its name and before its log is gone.
            with suppress(SlideInUseError, OSError):
                writing.discard_unfinished(task.out)
            return ended
    slide = _opened(task, settings)
    patch_size, target_mpp = settings.patch(card)
    patch: dict[str, Any] = {
        "patch_size": patch_size,
        "target_mpp": target_mpp,
        "allow_upsampling": settings.allow_upsampling,
    }
    if task.grid is None:
        patch_step(slide, **patch)  # what is wrong with the pixel size is said at once
    tissue = task.tissue or find_tissue(slide)
    if tissue.mask.size > _LARGE_MASK:
        give_back()
    grid = task.grid
    if grid is None:
        grid = lay_grid(slide, tissue, min_tissue=settings.min_tissue, **patch)
    if len(grid) == 0:
        raise NoTissueError(
            f"{slide.title}: no tissue was found ({tissue.share:.1%} of the slide, no "
            f"patch with {settings.min_tissue:.0%} or more). If there is some, try a "
            "smaller --min-tissue or --patch-size."
        )
    stain, said, stain_done = stain_step(
        settings.stain, task.title, slide, tissue, grid
    )
    enlarged = {"slide_mpp": slide.mpp or 0.0, "target_mpp": target_mpp}
    notes = [
        *(Note(sentence) for sentence in (*slide.notes, *tissue.notes)),
        *(Note(sentence, NoticeKind.UPSAMPLED, enlarged) for sentence in grid.notes),
        *(Note(sentence) for sentence in said),
    ]
    identity["slide_fingerprint"] = slide.fingerprint
    identity["slide_mpp"] = slide.mpp_xy
    if slide.recipe != RGB_RECIPE:
        identity["channels"] = slide.recipe
    identity["grid"] = hashlib.sha256(grid.g_rc.tobytes()).hexdigest()[:16]
    way = _way(encoder, precision, len(grid))
    try:
        partial = PartialFeatures(task.out, identity, card.dim, way)
    except OSError as error:
        reason = f"{task.out.parent}: {error.strerror or error}"
        raise NotWrittenError(
            f"The folder {task.out.parent} cannot be written to: "
            f"{error.strerror or error}. Choose another --out.",
            reason,
        ) from error
    # Another process may have finished the slide while this one looked for tissue.
    ended = None if settings.redo else _finished(task, settings, finished_as)
    if ended is not None:
        partial.discard()
        return ended
    if partial.way != way and not (precision is None and encoder.knows(partial.way)):
        log.warning(
            "%s was begun by %s, which is not what runs here: it is begun again.",
            task.name,
            partial.way or "an older version",
        )
        partial.begin_again(way)
    done = partial.done
    todo = np.setdiff1d(np.arange(len(grid)), done, assume_unique=True)
    is_done = None
    if order is None and len(done):
        is_done = np.zeros(len(grid), bool)
        is_done[done] = True
        blocks = _coarse_to_fine(grid, np.arange(len(grid)))
    else:
        blocks = (order or _coarse_to_fine)(grid, todo)
    state = slide.path.stat()
    return SlideJob(
        task,
        slide,
        grid,
        replace(_facts(task, slide, grid, identity), stain_done=stain_done),
        partial,
        {
            writing.SLIDE_BYTES: state.st_size,
            writing.SLIDE_MTIME: state.st_mtime_ns,
            writing.SLIDE_MPP: slide.mpp_xy,
            writing.MIN_TISSUE: settings.min_tissue,
            # Also of a slide of which a killed run left no patch to encode.
            writing.PRECISION: precision_name(precision),
        },
        card.seen_size(patch_size),
        blocks,
        len(todo),
        notes,
        partial.way,
        stain,
        is_done,
    )


def _way(encoder: PatchEncoder, precision: torch.dtype | None, patches: int) -> str:
    """How this computer encodes a slide; lower precisions than float32 are torch's."""
    if precision is None:
        return encoder.way(patches)
    return f"{TORCH} {precision_name(precision)}"


def _coarse_to_fine(
    grid: PatchGrid, todo: NDArray[np.int64]
) -> Iterator[NDArray[np.int64]]:
    for rows in coarse_to_fine(grid.g_rc[todo]):
        yield todo[rows]


def _finished(
    task: SlideTask, settings: EncodeSettings, identity: dict[str, Any]
) -> SlideResult | None:
    """The result of an earlier run, where the feature file exists.

    The slide is opened only if its file was touched or another pixel size is given.
    """
    if not task.out.exists():
        return None
    try:
        with opened_h5(task.out) as file:
            check_datasets(task.out.name, file)
            coords = file[layout.COORDS]
            of_patches = short_attributes(coords.id)
            stored = {k: _plain(v) for k, v in short_attributes(file.id).items()}
            for name in (layout.PATCH_SIZE, layout.PATCH_SIZE_L0):
                stored[name] = _plain(of_patches.get(name))
            count = len(coords)
        check_attributes(task.out.name, stored)
        if writing.SLIDE_MPP in stored:
            _mpp_in_words(stored[writing.SLIDE_MPP])
    # Whatever HDF5 and our own checks raise, by where the file is wrong.
    except Exception as error:
        raise InputError(
            f"{task.out} exists but is not a feature file ({error}). Remove it, or "
            "encode again with --redo."
        ) from error
    have = {name: stored.get(name) for name in identity}
    for name in ("mpp", "min_tissue"):
        value = have[name]
        if isinstance(value, float) and math.isclose(value, identity[name]):
            have[name] = identity[name]
    _refuse_other(task, have, identity)
    _refuse_other_mpp(task, settings, stored, identity)
    _refuse_other_channels(task, settings, text_of(stored.get(layout.CHANNELS)))
    state = _slide_state(task.path)
    if (stored.get(writing.SLIDE_BYTES), stored.get(writing.SLIDE_MTIME)) != state:
        slide = _opened(task, settings)
        if slide.fingerprint != stored.get(layout.SLIDE_FINGERPRINT):
            raise InputError(
                f"{slide.title} is not the slide that {task.out.name} was made "
                "from: the file has changed. Encode it again with --redo."
            )
    return SlideResult(task.name, "skipped", task.out, count, reason="already done")


def _refuse_other(task: SlideTask, have: dict[str, Any], want: dict[str, Any]) -> None:
    if have != want:
        raise InputError(
            f"{task.out.name} was made with other settings "
            f"({differences(have, want)}). Choose another --out, or encode again "
            "with --redo."
        )


def _refuse_other_mpp(
    task: SlideTask,
    settings: EncodeSettings,
    stored: dict[str, Any],
    identity: dict[str, Any],
) -> None:
    """Refuse features that were made with another pixel size than the one given now.

    Older files do not state it: there, the size of a patch on the slide tells.
    """
    given = _given_mpp(task, settings)
    if given is None:
        return
    name, have = layout.PATCH_SIZE_L0, stored[layout.PATCH_SIZE_L0]
    patch_um = identity["patch_size"] * identity["mpp"]

    def as_stored(mpp_xy: Sequence[float]) -> Any:
        return max(1, round(patch_um / mpp_xy[0]))

    if writing.SLIDE_MPP in stored:
        as_stored = _mpp_in_words
        name, have = writing.SLIDE_MPP, _mpp_in_words(stored[writing.SLIDE_MPP])
    if have is None or have == as_stored((given, given)):
        return
    # What the slide itself says comes before what is given.
    mpp_xy = _opened(task, settings).mpp_xy or (given, given)
    _refuse_other(task, {name: have}, {name: as_stored(mpp_xy)})


def _refuse_other_channels(
    task: SlideTask, settings: EncodeSettings, have: str | None
) -> None:
    """Refuse features of other channels than those that are asked for now.

    The slide is opened only if nothing is asked for and something was.
    """
    want = asked_recipe(settings.channels)
    if want is None and to_ask_for(have) is not None:
        want = _opened(task, settings).recipe
    if want is not None:
        _refuse_other(task, {"channels": have}, {"channels": want})


def _mpp_in_words(mpp_xy: Sequence[float]) -> str:
    x, y = (f"{n:.6g}" for n in mpp_xy)
    return x if x == y else f"{x} × {y}"


def _opened(task: SlideTask, settings: EncodeSettings) -> Slide:
    if task.slide is not None:
        return task.slide
    mpp = _given_mpp(task, settings)
    return open_slide(task.path, mpp, channels=settings.channels)


def _given_mpp(task: SlideTask, settings: EncodeSettings) -> float | None:
    return task.mpp if task.mpp is not None else settings.slide_mpp


def _slide_state(path: Path) -> tuple[int, int]:
    if path.is_dir():
        path = min(dicom_files(path), default=path)
    state = path.stat()
    return state.st_size, state.st_mtime_ns


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return text_of(value)
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value


def _facts(
    task: SlideTask, slide: Slide, grid: PatchGrid, identity: dict[str, Any]
) -> TokenFacts:
    mpp = slide.mpp or 0.0
    return TokenFacts(
        name=task.name,
        encoder=identity["encoder"],
        encoder_sha256=identity["encoder_sha256"],
        mpp=grid.target_mpp,
        patch_size=grid.patch_size,
        patch_um=grid.patch_size * grid.target_mpp,
        stain=identity["stain"],
        channels=slide.recipe,
        channels_done=slide.scaling,
        l0_patch_xy=grid.l0_step_xy,
        l0_step_xy=grid.l0_step_xy,
        l0_size_xy=slide.dimensions,
        l0_magnification=_magnification(slide.objective_power or UM_AT_1X / mpp),
        target_magnification=_magnification(UM_AT_1X / grid.target_mpp),
        overlap=0,
        slide_fingerprint=identity["slide_fingerprint"],
        scanner=scanner_of(slide.properties, slide.mpp),
        g_origin=grid.g_origin,
    )


def _magnification(value: float) -> float:
    """20 rather than 19.8: readers of these files expect a microscope's numbers."""
    for usual in (5.0, 10.0, 20.0, 40.0, 60.0, 80.0):
        if abs(value / usual - 1) < 0.1:
            return usual
    return round(value, 3)
