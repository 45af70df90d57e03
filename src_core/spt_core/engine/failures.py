"""Every error that ends a request, as its kind and its facts."""

import logging
import os
from pathlib import Path

from spt_core.devices import lacks_memory
from spt_core.engine.protocol import Analyse, Failed, FailureKind, Request
from spt_core.errors import InputError
from spt_core.insight.faithfulness import NoClassError
from spt_core.patches.job import NotWrittenError
from spt_core.slides import UnreadableRegionError
from spt_core.slides.grid import MissingPixelSizeError, TooCoarseError
from spt_core.slides.slide_errors import UnreadableSlideError
from spt_core.tokens.writing import SlideInUseError

log = logging.getLogger(__name__)


class RequestError(Exception):
    """A request cannot be answered, as ``failed`` says."""

    def __init__(self, failed: Failed) -> None:
        super().__init__(failed.kind)
        self.failed = failed


def title_of(request: Request) -> str:
    """What the person who asks calls the slide; an empty title is none."""
    file = request.slide if isinstance(request, Analyse) else request.features
    return request.title.strip() or file.name


def failed_by(error: BaseException, request: Request) -> Failed:
    """What an error means for the request that it ended."""
    if isinstance(error, RequestError):
        return error.failed
    if lacks_memory(error):
        log.warning("Out of memory: %s", error)
        # A traceback holds what the failed work held.
        error.__traceback__ = None
        return Failed(FailureKind.OUT_OF_MEMORY)
    match error:
        case MissingPixelSizeError():
            return Failed(FailureKind.NO_PIXEL_SIZE)
        case TooCoarseError():
            values = {"mpp": error.mpp, "target_mpp": error.target_mpp}
            return Failed(FailureKind.TOO_COARSE, values=values)
        case UnreadableSlideError():
            return Failed(FailureKind.DAMAGED)
        case UnreadableRegionError():
            reason = error.sentence(title_of(request))
            return Failed(FailureKind.UNREADABLE, reason)
        case SlideInUseError():
            return Failed(FailureKind.IN_USE)
        case NotWrittenError():
            return Failed(FailureKind.FILE_REFUSED, error.reason)
        case NoClassError():
            return Failed(FailureKind.NO_CLASS)
        case InputError():
            return Failed(FailureKind.INPUT, str(error))
    log.error("A request failed", exc_info=error)
    if isinstance(error, OSError):
        return Failed(FailureKind.FILE_REFUSED, _refusal(error, request))
    return Failed(FailureKind.DEFECT, f"{type(error).__name__}: {error}")


def _refusal(error: OSError, request: Request) -> str:
    """Which file, and what the system says; the slide by its title."""
    said = error.strerror or str(error)
    if error.filename is None:
        return said
    file = Path(os.fsdecode(error.filename))
    is_slide = isinstance(request, Analyse) and file == request.slide
    return f"{title_of(request) if is_slide else file}: {said}"
