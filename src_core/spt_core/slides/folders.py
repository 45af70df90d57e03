"""Which slides a folder holds, and whether it is one itself."""

import logging
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

import openslide

from spt_core import proving
from spt_core.slides.array_source import is_ome_zarr
from spt_core.slides.guarded_file import ReaderLostError
from spt_core.slides.guarded_file import series_of as series_by_helper
from spt_core.slides.names import is_slide_name

_log = logging.getLogger(__name__)

_DICOM = ".dcm"
# Of folders in one another: nobody sorts slides so, and Python counts its calls.
_DEEPEST = 100
_Seen = set[tuple[int, int]]
_MAGIC_AT, _MAGIC = 128, b"DICM"


def slides_in(folder: Path) -> Iterator[Path]:
    """The slides of a folder and of all folders in it, in order.

    An OME-Zarr folder is one slide, and so is a folder that holds the DICOM files of
    one series and no other slide. Elsewhere a series is represented by its first file.
    A folder inside that may not be read is left out, with a warning, and each is looked
    into once, however many links lead to it.
    """
    return _slides_in(folder, set(), 0)


def _slides_in(folder: Path, seen: _Seen, depth: int) -> Iterator[Path]:
    state = folder.stat()
    here = (state.st_dev, state.st_ino)
    if here in seen:
        return
    seen.add(here)
    if is_ome_zarr(folder):
        yield folder
        return
    dicom = _first_of_each_series(dicom_files(folder))
    if dicom and _is_one_series(dicom) and not _has_others(folder, seen, depth):
        yield folder
        return
    for path in _visible(folder):
        if path.is_dir():
            yield from _below(path, seen, depth)
        elif path in dicom or (is_slide_name(path) and not _is_dicom(path)):
            yield path


def _below(folder: Path, seen: _Seen, depth: int) -> Iterator[Path]:
    if depth >= _DEEPEST:
        _log.warning("%s lies too deep to be looked into", folder)
        return
    try:
        yield from _slides_in(folder, seen, depth + 1)
    except OSError as error:
        _log.warning("%s cannot be looked into: %s", folder, error.strerror or error)


def dicom_files(folder: Path) -> list[Path]:
    """The DICOM files that lie in a folder, sorted."""
    return [path for path in _visible(folder) if _is_dicom(path)]


def pipe_among(folder: Path) -> Path | None:
    """A pipe or the like in a folder, where openslide would wait for ever.

    It opens all that lies beside a DICOM file, and what other slides name.
    """
    try:
        return next((one for one in sorted(folder.iterdir()) if is_pipe(one)), None)
    except OSError:
        return None  # who reads it says what is missing


def is_pipe(path: Path) -> bool:
    """Whether it is neither a file nor a folder, so that reading may never end."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def is_dicom(path: Path) -> bool:
    """Whether a file begins as DICOM files do."""
    try:
        with path.open("rb") as file:
            return file.read(_MAGIC_AT + len(_MAGIC))[_MAGIC_AT:] == _MAGIC
    except OSError:
        return False


def _first_of_each_series(files: Iterable[Path]) -> dict[Path, str | None]:
    """The first file of each series; a file that cannot be read represents itself."""
    found: dict[str, Path] = {}
    firsts: dict[Path, str | None] = {}
    has_pipe: dict[Path, bool] = {}
    for path in files:
        folder = path.parent
        if folder not in has_pipe:
            has_pipe[folder] = pipe_among(folder) is not None
        series = _series(path, by_openslide=not has_pipe[folder])
        if series is None or found.setdefault(series, path) == path:
            firsts[path] = series
    return firsts


def _is_one_series(firsts: dict[Path, str | None]) -> bool:
    # Files that are not images, such as annotations, may lie beside a slide's.
    return sum(series is not None for series in firsts.values()) <= 1


def _series(path: Path, *, by_openslide: bool) -> str | None:
    found: str | None = None
    if not by_openslide:
        pass
    elif proving.is_on():
        try:
            found = series_by_helper(path)
        except ReaderLostError:
            return None
    else:
        try:
            with openslide.OpenSlide(path) as slide:
                found = slide.properties.get("dicom.SeriesInstanceUID")
        except (openslide.OpenSlideError, OSError):
            found = None
    if found or not is_dicom(path):
        return found
    from spt_core.slides.dicom_source import series_of

    return series_of(path)


def _has_others(folder: Path, seen: _Seen, depth: int) -> bool:
    """Whether there are slides beside a folder's DICOM files, or below."""
    seen = set(seen)  # what is only looked at here is still to be found
    return any(
        any(_below(path, seen, depth))
        if path.is_dir()
        else is_slide_name(path) and not _is_dicom(path)
        for path in _visible(folder)
    )


def _is_dicom(path: Path) -> bool:
    return path.suffix.lower() == _DICOM and path.is_file()


def _visible(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.name[0] != ".")
