"""Every error as a sentence for the person in front of the window."""

import logging

from spt_core.devices import is_out_of_memory
from spt_core.engine.messages import (
    MAGNIFICATION,
    MEMORY,
    NO_PIXEL_SIZE,
    NO_TISSUE,
    OTHER,
    UNREADABLE,
    Failure,
    Request,
)
from spt_core.engine.titles import given_title, in_words, slide_title
from spt_core.errors import InputError
from spt_core.slides import UnreadableRegionError
from spt_core.slides.grid import MissingPixelSizeError
from spt_core.slides.tissue import Tissue

log = logging.getLogger(__name__)


def explain(error: BaseException, request: Request) -> Failure:
    """What to say of an error that ended a request."""
    if isinstance(error, Failure):
        return error
    if lacks_memory(error):
        log.warning("Out of memory: %s", error)
        # A traceback holds what the failed work held.
        error.__traceback__ = None
        return Failure(
            MEMORY,
            "There was not enough memory to go on. What was found so far is kept. "
            "Close other programs, then start again: the work goes on from there.",
        )
    if isinstance(error, MissingPixelSizeError):
        return no_pixel_size(slide_title(request))
    kind = UNREADABLE if isinstance(error, UnreadableRegionError) else OTHER
    return Failure(
        kind, in_words(_sentence(error), given_title(request), *_of(request))
    )


def _of(request: Request) -> list[str]:
    return [str(request["slide"])] if request.get("slide") else []


def _sentence(error: BaseException) -> str:
    if isinstance(error, InputError | UnreadableRegionError):
        return str(error)
    log.error("A request failed", exc_info=error)
    if isinstance(error, OSError):
        place = f" ({error.filename})" if error.filename else ""
        return (
            f"The computer refused to read or write a file{place}: "
            f"{error.strerror or error}. What was found so far is kept."
        )
    return (
        f"Something went wrong that should not have: {type(error).__name__}: {error}. "
        "What was found so far is kept; please report this."
    )


def lacks_memory(error: BaseException) -> bool:
    """Whether an error comes of too little memory."""
    if is_out_of_memory(error):
        return True
    if isinstance(error, OSError):
        return error.errno == 12  # ENOMEM
    if isinstance(error, SystemError):
        # Python itself: there was no room for the error either.
        return "without setting an exception" in str(error) or (
            "without exception set" in str(error)
        )
    return isinstance(error, RuntimeError) and "start new thread" in str(error)


def no_pixel_size(title: str) -> Failure:
    return Failure(
        NO_PIXEL_SIZE,
        f"{title} does not say how large its pixels are. What is its pixel size in "
        "micrometres? Scanned at 20x it is about 0.5, at 40x about 0.25.",
    )


def too_coarse(title: str, mpp: float, target_mpp: float) -> Failure:
    return Failure(
        MAGNIFICATION,
        f"{title} has pixels of {mpp:.2g} µm, too coarse for this model, which "
        f"learned from pixels of {target_mpp:.2g} µm. Choose a model for "
        "such slides, or map the tissue without one.",
    )


def no_tissue(title: str, tissue: Tissue) -> Failure:
    share = (
        f"only {tissue.share:.1%} of it looks like tissue, in pieces too small to use"
        if tissue.mask.any()
        else "none of it looks like tissue"
    )
    return Failure(
        NO_TISSUE,
        f"No tissue was found on {title}: {share}. Is this the right slide, "
        "and is its pixel size right?",
        {"downsample": list(tissue.l0_scale_xy)},
        {"mask": tissue.mask},
    )


def too_small(title: str, tissue: Tissue) -> Failure:
    return Failure(
        NO_TISSUE,
        f"{title} is too small to be analysed: it shows less than one field "
        "that the model looks at. Is its pixel size right?",
        {"downsample": list(tissue.l0_scale_xy)},
        {"mask": tissue.mask},
    )
