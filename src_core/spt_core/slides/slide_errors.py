"""Why a slide cannot be opened: one classification for commands, docks and readers."""

import logging
from enum import StrEnum
from pathlib import Path

import tifffile

from spt_core.errors import InputError
from spt_core.slides.names import SLIDE_ENDINGS

_log = logging.getLogger(__name__)

AGAIN = "copy it again from where it came from."
_TIFF = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")


class Reason(StrEnum):
    """What is the matter with a file that is no slide for us."""

    MISSING = "missing"
    NO_PERMISSION = "no permission"
    NOT_A_SLIDE = "not a slide"
    UNSUPPORTED = "not supported"
    DAMAGED = "damaged"


class SlideError(InputError):
    """A slide that cannot be opened; ``reason`` says of which kind the trouble is."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class UnreadableSlideError(InputError):
    """No part of its tissue can be decoded."""


def missing(title: str) -> SlideError:
    return SlideError(
        Reason.MISSING, f"There is no file {title}. Was it moved or renamed?"
    )


def not_allowed(title: str, error: OSError) -> SlideError:
    why = error.strerror or str(error)
    return SlideError(
        Reason.NO_PERMISSION,
        f"{title} may not be read ({why}): ask whoever owns it for permission.",
    )


def without_pixels(title: str, width: int, height: int) -> SlideError:
    return SlideError(
        Reason.DAMAGED,
        f"{title} states a size of {width} × {height} pixels, so there is nothing to "
        f"see: {AGAIN}",
    )


def too_large(title: str, width: int, height: int) -> SlideError:
    return SlideError(
        Reason.DAMAGED,
        f"{title} states a size of {width:,} × {height:,} pixels, which no slide has: "
        f"{AGAIN}",
    )


def unsupported(title: str, why: str) -> SlideError:
    return SlideError(
        Reason.UNSUPPORTED,
        f"{title} is intact as far as can be seen, but this kind is not supported: "
        f"{why}.",
    )


def damaged(title: str, kind: str = "", beside: str = "") -> SlideError:
    what = (
        f"a {kind} that is damaged or incomplete" if kind else "damaged or incomplete"
    )
    if not kind:
        what += ", or a file that belongs to it is missing"
    return SlideError(
        Reason.DAMAGED, f"{title} is {what}.{beside} {AGAIN[0].upper()}{AGAIN[1:]}"
    )


def wrong_inside(title: str, why: str) -> SlideError:
    return SlideError(
        Reason.DAMAGED, f"{title} is damaged: {why}. {AGAIN[0].upper()}{AGAIN[1:]}"
    )


def no_file(title: str) -> SlideError:
    return SlideError(
        Reason.NOT_A_SLIDE,
        f"{title} is neither a file nor a folder (but a pipe, a device or the like).",
    )


def pipe_beside(title: str, pipe: Path) -> SlideError:
    return SlideError(
        Reason.NOT_A_SLIDE,
        f"{title} cannot be read together with {pipe.name}, which lies among its files "
        "and is neither a file nor a folder (but a pipe, a device or the like): move "
        "that away.",
    )


def why_not(path: Path, title: str, error: Exception) -> SlideError:
    """What is wrong with a file that neither openslide nor tifffile opens."""
    if isinstance(error, PermissionError):
        return not_allowed(title, error)
    try:
        with path.open("rb") as file:
            start = file.read(512)
    except PermissionError as refused:
        return not_allowed(title, refused)
    if not start:
        return SlideError(Reason.DAMAGED, f"{title} is empty (0 bytes): {AGAIN}")
    if start.startswith(b"PK\x03\x04"):
        return SlideError(
            Reason.NOT_A_SLIDE,
            f"{title} is a zip archive: unpack it and open the slide in it.",
        )
    if start[:4] in _TIFF:
        _log.debug("%s: %s", path, error)
        return damaged(title, "TIFF")
    kind = "a text file" if _looks_like_text(start) else "in a format that is not known"
    return SlideError(
        Reason.NOT_A_SLIDE,
        f"{title} is not a slide: it is {kind}. "
        f"Slides end in {', '.join(SLIDE_ENDINGS)}.",
    )


def missing_codec(page: tifffile.TiffPage) -> str:
    """Why the pixels of a TIFF's page cannot be decoded here; empty where they can."""
    code = int(page.compression)
    try:
        name = tifffile.COMPRESSION(code).name
    except ValueError:
        name = "unknown"
    try:
        decode = tifffile.TIFF.DECOMPRESSORS[code]
    # A codec that is not installed, or that nobody has written.
    except Exception:  # noqa: BLE001
        decode = None
    if decode is None or getattr(decode, "__name__", "").startswith("stub"):
        return f"its pixels are compressed by {name} ({code}), which nothing here reads"
    return ""


def _looks_like_text(start: bytes) -> bool:
    try:
        text = start.decode()
    except UnicodeDecodeError as error:
        if error.start < len(start) - 4:
            return False
        text = start[: error.start].decode()
    return all(c.isprintable() or c.isspace() for c in text)
