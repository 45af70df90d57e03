"""DICOM files that openslide refuses, such as those of 16 bits or of channels."""

import logging
from pathlib import Path

import pydicom

from spt_core.slides.array_source import ArrayLevel, ArraySource, fitting
from spt_core.slides.dicom_frames import DicomFrames, NoPictureError, pixel_size
from spt_core.slides.folders import is_dicom
from spt_core.slides.slide_errors import Reason, SlideError

_log = logging.getLogger(__name__)

_PICTURES_OF_THE_GLASS = {"LABEL", "OVERVIEW", "THUMBNAIL", "LOCALIZER"}


def open_dicom(path: Path, recipe: str | None = None) -> ArraySource:
    """Open a DICOM file, with the levels of its series that lie beside it.

    Raises
    ------
    SlideError
        Where it is intact, and yet of a kind that is not read.
    """
    try:
        frames = [DicomFrames(path)]
    except NoPictureError as error:
        raise SlideError(
            Reason.NOT_A_SLIDE,
            f"{path.name} is a DICOM file without a picture ({error}): choose the file "
            "of the picture, or the folder.",
        ) from error
    if frames[0].is_tiled:
        frames += _smaller(path, frames[0])
        frames.sort(key=lambda one: one.width, reverse=True)
    largest = frames[0]
    levels = [ArrayLevel(one, one.axes) for one in frames]
    return ArraySource(
        largest.path,
        "pydicom",
        levels,
        pixel_size(largest.data),
        channels=fitting(largest.channels, levels[0], is_rgb=largest.axes == "YXS"),
        properties=_properties(largest.data),
        asked=recipe,
    )


def series_of(path: Path) -> str | None:
    """The series that a DICOM picture belongs to; None of other files."""
    try:
        wanted = ["SeriesInstanceUID", "Rows"]
        data = pydicom.dcmread(path, stop_before_pixels=True, specific_tags=wanted)
    # Damaged in whatever way.
    except Exception as error:  # noqa: BLE001
        _log.debug("%s: %s", path, error)
        return None
    return str(data.SeriesInstanceUID) if "Rows" in data else None


def _smaller(path: Path, found: DicomFrames) -> list[DicomFrames]:
    """The other levels of a series, of the same axes, in the same folder."""
    others = []
    series = found.data.get("SeriesInstanceUID")
    for other in sorted(path.parent.iterdir()):
        if other == path or not other.is_file() or not is_dicom(other):
            continue
        try:
            if series_of(other) != series:
                continue
            level = DicomFrames(other)
            if _PICTURES_OF_THE_GLASS & set(level.data.get("ImageType", ())):
                continue
        # Damaged, or of another kind: the slide has a level less.
        except Exception as error:  # noqa: BLE001
            _log.warning("%s is left out: %s", other, error)
            continue
        is_like = level.axes == found.axes and len(level.channels) == len(
            found.channels
        )
        if level.is_tiled and is_like and level.dtype == found.dtype:
            others.append(level)
    return others


def _properties(data: pydicom.Dataset) -> dict[str, str]:
    """What the file states, by the names that openslide gives it."""
    found: dict[str, str] = {}
    for element in data:
        name = element.keyword
        if not name or element.VR in ("SQ", "OB", "OW", "UN", "OD", "OF"):
            continue
        if element.VM > 1:
            found |= {f"dicom.{name}[{i}]": str(v) for i, v in enumerate(element.value)}
        else:
            found[f"dicom.{name}"] = str(element.value)
    return found
