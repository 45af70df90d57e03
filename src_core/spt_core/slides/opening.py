"""Opening a slide of any format, or telling the user why it cannot be opened."""

import logging
from math import prod
from pathlib import Path
from threading import Lock
from weakref import WeakKeyDictionary, WeakSet, WeakValueDictionary

import openslide
import tifffile

from spt_core.errors import InputError
from spt_core.slides import slide_errors
from spt_core.slides.array_source import is_ome_zarr, open_ome_zarr, open_tiff
from spt_core.slides.folders import dicom_files, is_dicom, pipe_among, slides_in
from spt_core.slides.guarded_file import ReaderLostError
from spt_core.slides.openslide_source import OpenSlideSource
from spt_core.slides.recipe import RecipeError, asked_recipe
from spt_core.slides.slide import Slide
from spt_core.slides.slide_errors import SlideError
from spt_core.slides.source import PixelSource
from spt_core.slides.tiff_checks import wrong_with

_log = logging.getLogger(__name__)

# One handle per file and process: the slides of many dask tasks share it.
_open_sources: "WeakValueDictionary[tuple[str, int, int, str | None], PixelSource]" = (
    WeakValueDictionary()
)
_users: "WeakKeyDictionary[PixelSource, WeakSet[Slide]]" = WeakKeyDictionary()
_lock = Lock()
# Uncompressed, LZW, JPEG (old and new), deflate, packed bits, Zstandard; of others
# openslide opens the file and reads nothing.
_OPENSLIDES_CODECS = {1, 5, 6, 7, 8, 32773, 32946, 50000}
# Two metres of the finest scanners, and a hundred times the largest slides: what is
# larger takes minutes to be laid out before anything is read.
_LARGEST_SIDE, _LARGEST_AREA = 2**23, 2**38
_NAMED = 4  # slides that a message names


def open_slide(
    path: str | Path,
    mpp: float | None = None,
    *,
    channels: str | None = None,
    title: str | None = None,
) -> Slide:
    """Open a slide file (or an OME-Zarr or DICOM folder), reading next to nothing.

    Parameters
    ----------
    path
        What openslide reads (svs, tif, ndpi, mrxs, scn, bif, czi, dcm, ...), any other
        TIFF, or an OME-Zarr folder.
    mpp
        Micrometres per pixel, used where the file does not say it.
    channels
        What becomes red, green and blue: one to three names or numbers of channels
        (``"DAPI,FITC,TRITC"``), or ``"srh"``; None leaves it to the file.
    title
        What sentences call the slide, where not by its file.

    Raises
    ------
    InputError
        The message says what is wrong with the file and what to do.
    """
    path = Path(path).expanduser().absolute()
    try:
        path = _file_of(path, title or str(path))
        state = path.stat()
    except InputError:
        raise
    except PermissionError as error:
        raise slide_errors.not_allowed(title or str(path), error) from error
    except (OSError, ValueError) as error:  # too long a name, or one with a zero in it
        raise slide_errors.missing(title or str(path)) from error
    recipe = asked_recipe(channels)
    key = (str(path), state.st_mtime_ns, state.st_size, recipe)
    with _lock:
        source = _open_sources.get(key)
        if source is None:
            _refuse_dangerous(path, title or str(path))
            source = _open_source(path, title or str(path), recipe)
            for size in source.level_dimensions:
                if min(size) < 1:
                    source.close()
                    raise slide_errors.without_pixels(title or str(path), *size)
                if max(size) > _LARGEST_SIDE or prod(size) > _LARGEST_AREA:
                    source.close()
                    raise slide_errors.too_large(title or str(path), *size)
            _open_sources[key] = source
        slide = Slide(source, mpp=mpp, channels=recipe, title=title, release=_release)
        _users.setdefault(source, WeakSet()).add(slide)
    return slide


def _file_of(path: Path, title: str) -> Path:
    """What is to be opened: the file, the zarr folder, or one of a DICOM folder's."""
    if not path.exists():
        raise slide_errors.missing(title)
    if not (path.is_file() or path.is_dir()):
        raise slide_errors.no_file(title)
    if path.is_dir() and not is_ome_zarr(path):
        return _slide_in_folder(path, title)
    return path


def _refuse_dangerous(path: Path, title: str) -> None:
    """Refuse a file that would take its reader down, or never end."""
    if path.is_dir():
        return
    if wrong := wrong_with(path):
        raise slide_errors.wrong_inside(title, wrong)
    if pipe := _pipe_beside(path):
        raise slide_errors.pipe_beside(title, pipe)


def _pipe_beside(path: Path) -> Path | None:
    """A pipe or the like among the files of a slide that is kept in several."""
    if path.suffix.lower() == ".mrxs":
        folder = path.with_suffix("")
    elif path.suffix.lower() in (".vms", ".vmu") or is_dicom(path):
        folder = path.parent
    else:
        return None
    return pipe_among(folder)


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


def _open_source(path: Path, title: str, recipe: str | None) -> PixelSource:
    if path.is_dir():
        try:
            return open_ome_zarr(path, recipe)
        except InputError as error:
            raise InputError(f"{title} {error}") from error
        # zarr raises many kinds of error on a damaged folder.
        except Exception as error:
            _log.debug("%s: %s", path, error)
            raise InputError(
                f"{title} cannot be read as OME-Zarr: it is damaged or incomplete. "
                "Copy it again from where it came from."
            ) from error
    refused: Exception | None = None
    source = None
    try:
        source = OpenSlideSource.try_open(path)
    except ReaderLostError as error:
        _log.debug("%s: %s", path, error)
        raise slide_errors.wrong_inside(title, error.in_words) from error
    except PermissionError as error:
        raise slide_errors.not_allowed(title, error) from error
    except (openslide.OpenSlideError, OSError, ValueError) as error:
        _log.debug("%s: %s", path, error)
        refused = error
        if is_dicom(path):
            return _open_dicom(path, title, recipe)
        if not _is_compressed_otherwise(path):
            if isinstance(_reading_error(path), PermissionError):
                raise slide_errors.why_not(path, title, error) from error
            raise slide_errors.damaged(title, beside=_companions(path)) from error
    if source is not None and not _is_better_read_by_tifffile(source):
        return _choosing(source, recipe, title)
    if source is None and is_dicom(path):
        return _open_dicom(path, title, recipe)
    try:
        return open_tiff(path, recipe)
    except RecipeError as error:
        raise InputError(f"{title} {error}") from error
    except SlideError as error:
        raise SlideError(
            error.reason, str(error).replace(path.name, title, 1)
        ) from error
    # tifffile raises whatever the damage leads it to.
    except Exception as error:
        if source is not None:
            _log.debug("%s stays with openslide: %s", path, error)
            return _choosing(source, recipe, title)
        raise slide_errors.why_not(path, title, refused or error) from error


def _open_dicom(path: Path, title: str, recipe: str | None) -> PixelSource:
    """What openslide refuses of DICOM, or why it cannot be shown."""
    from spt_core.slides.dicom_source import open_dicom  # other formats wait for none

    try:
        return open_dicom(path, recipe)
    except RecipeError as error:
        raise InputError(f"{title} {error}") from error
    except SlideError as error:
        raise SlideError(
            error.reason, str(error).replace(path.name, title, 1)
        ) from error
    # pydicom raises whatever the damage leads it to.
    except Exception as error:
        _log.debug("%s: %s", path, error)
        raise slide_errors.damaged(title, "DICOM file") from error


def _choosing(
    source: OpenSlideSource, recipe: str | None, title: str
) -> OpenSlideSource:
    if recipe is not None:
        try:
            source.choose(recipe)
        except RecipeError as error:
            source.close()
            raise InputError(f"{title} {error}") from error
    return source


def _reading_error(path: Path) -> OSError | None:
    """What the system says against reading a file at all."""
    try:
        with path.open("rb") as file:
            file.read(1)
    except OSError as error:
        return error
    return None


def _is_compressed_otherwise(path: Path) -> bool:
    """Whether a TIFF's pixels are in a form that openslide does not decode."""
    try:
        with tifffile.TiffFile(path) as tiff:
            return int(tiff.pages[0].compression) not in _OPENSLIDES_CODECS
    # Not a TIFF, or damaged.
    except Exception:  # noqa: BLE001
        return False


def _is_better_read_by_tifffile(source: OpenSlideSource) -> bool:
    """Whether openslide's generic reader would show the wrong thing.

    It sees neither the pyramid nor the channels of an OME-TIFF, cuts 16 bits, and turns
    each tile instead of the picture.
    """
    if source.vendor != "generic-tiff":
        return False
    try:
        with tifffile.TiffFile(source.path) as tiff:
            page = tiff.pages[0]
            return bool(
                tiff.is_ome
                or page.dtype != "uint8"
                or page.samplesperpixel not in (3, 4)
                or page.tags.valueof("Orientation", 1) != 1
                or int(page.compression) not in _OPENSLIDES_CODECS
            )
    # tifffile raises whatever damage leads it to, and could not read it either.
    except Exception as error:  # noqa: BLE001
        _log.debug("%s stays with openslide: %s", source.path, error)
        return False


def _companions(path: Path) -> str:
    """What has to lie beside a file of its kind."""
    match path.suffix.lower():
        case ".mrxs":
            return f" Beside it belongs a folder called {path.stem}."
        case ".vms" | ".vmu":
            return " Beside it belong the image files that it names."
        case _:
            return ""
