"""Opening a slide of any format, or telling the user why it cannot be opened."""

import logging
from pathlib import Path
from threading import Lock
from weakref import WeakKeyDictionary, WeakSet, WeakValueDictionary

import openslide
import tifffile

from spt_core.errors import InputError
from spt_core.slides.array_source import is_ome_zarr, open_ome_zarr, open_tiff
from spt_core.slides.folders import dicom_files, slides_in
from spt_core.slides.names import SLIDE_ENDINGS
from spt_core.slides.openslide_source import OpenSlideSource
from spt_core.slides.slide import Slide
from spt_core.slides.source import PixelSource

_log = logging.getLogger(__name__)

# One handle per file and process: the slides of many dask tasks share it.
_open_sources: "WeakValueDictionary[tuple[str, int, int], PixelSource]" = (
    WeakValueDictionary()
)
_users: "WeakKeyDictionary[PixelSource, WeakSet[Slide]]" = WeakKeyDictionary()
_lock = Lock()
_NAMED = 4  # slides that a message names


def open_slide(
    path: str | Path, mpp: float | None = None, *, title: str | None = None
) -> Slide:
    """Open a slide file (or an OME-Zarr or DICOM folder), reading next to nothing.

    Parameters
    ----------
    path
        What openslide reads (svs, tif, ndpi, mrxs, scn, bif, czi, dcm, ...), any other
        TIFF, or an OME-Zarr folder.
    mpp
        Micrometres per pixel, used where the file does not say it.
    title
        What sentences call the slide, where not by its file.

    Raises
    ------
    InputError
        The message says what is wrong with the file and what to do.
    """
    path = Path(path).expanduser().absolute()
    if not path.exists():
        raise InputError(f"There is no file {title or path}. Was it moved or renamed?")
    if path.is_dir() and not is_ome_zarr(path):
        path = _slide_in_folder(path, title or str(path))
    state = path.stat()
    key = (str(path), state.st_mtime_ns, state.st_size)
    with _lock:
        source = _open_sources.get(key)
        if source is None:
            source = _open_source(path, title or str(path))
            _open_sources[key] = source
        slide = Slide(source, mpp=mpp, title=title, release=_release)
        _users.setdefault(source, WeakSet()).add(slide)
    return slide


def _release(slide: Slide, source: PixelSource) -> None:
    """Close a file once the last slide that reads it is closed."""
    with _lock:
        users = _users.get(source, WeakSet())
        users.discard(slide)
        if users:
            return
        for key, other in list(_open_sources.items()):
            if other is source:
                del _open_sources[key]
        source.close()


def _slide_in_folder(folder: Path, title: str) -> Path:
    """Find the slide that a folder *is* (DICOM); a folder of slides is not one."""
    dicom = dicom_files(folder)
    if dicom:
        slides = list(slides_in(folder))
        if slides == [folder]:
            return dicom[0]
        names = ", ".join(path.name for path in slides[:_NAMED])
        more = ", …" if len(slides) > _NAMED else ""
        raise InputError(
            f"{title} holds {len(slides)} slides, not the DICOM files of one alone: "
            f"choose one of them ({names}{more})."
        )
    if not any(folder.iterdir()):
        raise InputError(f"The folder {title} is empty: choose a slide file.")
    raise InputError(
        f"{title} is a folder, not a slide: choose one of the files in it."
    )


def _open_source(path: Path, title: str) -> PixelSource:
    if path.is_dir():
        try:
            return open_ome_zarr(path)
        except InputError as error:
            raise InputError(f"{title} {error}") from error
        # zarr raises many kinds of error on a damaged folder.
        except Exception as error:
            _log.debug("%s: %s", path, error)
            raise InputError(
                f"{title} cannot be read as OME-Zarr: it is damaged or incomplete. "
                "Copy it again from where it came from."
            ) from error
    try:
        source = OpenSlideSource.try_open(path)
    except (openslide.OpenSlideError, OSError) as error:
        _log.debug("%s: %s", path, error)
        raise InputError(
            f"{title} is damaged or incomplete, or a file that belongs to it is "
            f"missing.{_companions(path)} Copy it again from where it came from."
        ) from error
    if source is not None and not _is_better_read_by_tifffile(source):
        return source
    try:
        return open_tiff(path)
    # tifffile raises whatever the damage leads it to.
    except Exception as error:
        if source is not None:
            _log.debug("%s stays with openslide: %s", path, error)
            return source
        raise InputError(_why_not(path, title, error)) from error


def _is_better_read_by_tifffile(source: OpenSlideSource) -> bool:
    """Whether openslide's generic reader would show the wrong thing.

    It sees neither the pyramid nor the channels of an OME-TIFF, and cuts 16 bits.
    """
    if source.vendor != "generic-tiff":
        return False
    with tifffile.TiffFile(source.path) as tiff:
        page = tiff.pages[0]
        return bool(
            tiff.is_ome or page.dtype != "uint8" or page.samplesperpixel not in (3, 4)
        )


def _why_not(path: Path, title: str, error: Exception) -> str:
    with path.open("rb") as file:
        start = file.read(512)
    if not start:
        return f"{title} is empty (0 bytes): copy it again from where it came from."
    if start.startswith(b"PK\x03\x04"):
        return f"{title} is a zip archive: unpack it and open the slide in it."
    if start[:4] in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"):
        _log.debug("%s: %s", path, error)
        return (
            f"{title} is a TIFF that is damaged or incomplete: copy it again from "
            "where it came from."
        )
    kind = "a text file" if _looks_like_text(start) else "in a format that is not known"
    return (
        f"{title} is not a slide: it is {kind}. "
        f"Slides end in {', '.join(SLIDE_ENDINGS)}."
    )


def _looks_like_text(start: bytes) -> bool:
    try:
        text = start.decode()
    except UnicodeDecodeError as error:
        if error.start < len(start) - 4:
            return False
        text = start[: error.start].decode()
    return all(c.isprintable() or c.isspace() for c in text)


def _companions(path: Path) -> str:
    """What has to lie beside a file of its kind."""
    match path.suffix.lower():
        case ".mrxs":
            return f" Beside it belongs a folder called {path.stem}."
        case ".vms" | ".vmu":
            return " Beside it belong the image files that it names."
        case _:
            return ""
