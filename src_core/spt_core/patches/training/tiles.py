"""Which tiles and slides there are, and whose: folders and tables read whole."""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from spt_core.errors import InputError
from spt_core.slides.array_source import is_ome_zarr
from spt_core.slides.folders import slides_in
from spt_core.slides.names import is_slide_name, slide_name
from spt_core.tokens.labels import (
    SPLIT_WORDS,
    SPLITS,
    patients_in_two_splits,
)
from spt_core.tokens.tables import read_table

TILE_ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".webp")
_SHOWN = 5


@dataclass(frozen=True)
class Origin:
    """A tile, or a slide to take patches from, and what is known of it.

    Attributes
    ----------
    slide, patient
        Whose it is; a tile that nobody knows is a slide and a patient of its own.
    known
        Whether somebody said whose it is.
    patient_stated
        Whether ``patient`` is a patient's name, and not the slide's in place of one.
    """

    path: Path
    is_slide: bool
    slide: str
    patient: str
    known: bool
    mpp: float | None = None
    label: str | None = None
    patient_stated: bool = False


def find_origins(sources: Sequence[str], tables: Sequence[str]) -> list[Origin]:
    """Tiles and slides among files and folders, with what the tables say of them."""
    tiles, slides = _find_files(Path(source) for source in sources)
    rows = [row for table in tables for row in _read_table(Path(table))]
    _refuse_split_patients(rows)
    by_slide = {slide_name(row.slide): row for row in rows if row.file is None}
    found = [
        _slide_origin(path, by_slide.get(slide_name(path)))
        for path in slides
        if _is_wanted(by_slide.get(slide_name(path)))
    ]
    found += _tile_origins(tiles, [row for row in rows if row.file is not None])
    if not found:
        raise InputError(
            "There is nothing to learn from: no slide and no tile (PNG, JPEG, BMP, "
            f"WebP) in {', '.join(map(str, sources))}, or the tables keep none."
        )
    return found


@dataclass(frozen=True)
class _Row:
    file: str | None
    slide: str
    patient: str | None
    mpp: float | None
    split: str | None
    label: str | None


def _find_files(sources: Iterable[Path]) -> tuple[list[Path], list[Path]]:
    tiles: dict[Path, None] = {}
    slides: dict[Path, None] = {}
    for source in sources:
        if not source.exists():
            raise InputError(f"There is no file or folder {source}.")
        if source.is_dir():
            own = [path for path in slides_in(source) if _is_tissue(path)]
            slides |= dict.fromkeys(p for p in own if not _is_tile(p))
            tiles |= dict.fromkeys(_tiles_in(source))
        elif _is_tile(source):
            tiles[source] = None
        elif is_slide_name(source):
            slides[source] = None
        else:
            raise InputError(f"{source.name} is neither a slide nor an image.")
    return list(tiles), list(slides)


def _tiles_in(folder: Path) -> Iterator[Path]:
    """The tiles of a folder, searched whole; an OME-Zarr holds none."""
    if is_ome_zarr(folder):
        return
    with os.scandir(folder) as entries:
        found = sorted(entries, key=lambda entry: entry.name)
    for entry in found:
        path = Path(entry.path)
        if entry.name.startswith(".") or not _is_tissue(path):
            continue
        if _is_tile(path):
            if entry.is_file():
                yield path
        elif entry.is_dir():
            yield from _tiles_in(path)


def _is_tile(path: Path) -> bool:
    return path.suffix.lower() in TILE_ENDINGS


def _is_tissue(path: Path) -> bool:
    """Truth masks lie beside sample slides and are none."""
    return ".truth." not in path.name


def _read_table(path: Path) -> Iterator[_Row]:
    header, reader = read_table(path, "table", "file or slide")
    if "file" not in header and "slide" not in header:
        raise InputError(
            f"{path.name} has neither a column file nor a column slide. Its first line "
            "must name the columns: file,slide,patient,mpp,split,label (of tiles), or "
            "the same without file (of slides)."
        )
    for line, values in enumerate(reader, start=2):
        cells = {name: (values.get(name) or "").strip() for name in header}
        if not any(cells.values()):
            continue
        split = cells.get("split", "").lower() or None
        split = SPLIT_WORDS.get(split or "", split)
        if split not in (None, *SPLITS):
            raise InputError(f"{path.name}, line {line}: there is no split {split!r}.")
        try:
            mpp = float(cells["mpp"]) if cells.get("mpp") else None
        except ValueError:
            raise InputError(
                f"{path.name}, line {line}: mpp {cells['mpp']!r} is not a number."
            ) from None
        file = cells.get("file") or None
        yield _Row(
            file,
            cells.get("slide") or file or "",
            cells.get("patient") or None,
            mpp,
            split,
            cells.get("label") or None,
        )


def _refuse_split_patients(rows: Sequence[_Row]) -> None:
    """A patient, or a slide of an unknown one, is on one side of a split."""
    wrong = patients_in_two_splits(
        (row.patient or f"of slide {row.slide}", row.split) for row in rows
    )
    if wrong:
        more = f" And {len(wrong) - _SHOWN} more." if len(wrong) > _SHOWN else ""
        raise InputError(f"The tables: {'; '.join(wrong[:_SHOWN])}.{more}")


def _is_wanted(row: _Row | None) -> bool:
    """What is kept for validation and test is never learned from."""
    return row is None or row.split in (None, "train")


def _slide_origin(path: Path, row: _Row | None) -> Origin:
    name = slide_name(path)
    patient = row.patient if row else None
    mpp, label = (row.mpp, row.label) if row else (None, None)
    return Origin(
        path, True, name, patient or name, True, mpp, label, patient is not None
    )


def _tile_origins(tiles: Sequence[Path], rows: Sequence[_Row]) -> Iterator[Origin]:
    named = _by_ending(tiles)
    wanted: dict[Path, _Row] = {}
    folders: set[Path] = set()
    missing = []
    for row in rows:
        path = named.get(Path(row.file or "").as_posix())
        if path is None:
            missing.append(row.file or "")
            continue
        wanted[path] = row
        folders.add(path.parent)
    if missing:
        raise InputError(
            f"{len(missing)} files of the tables are not among the tiles: "
            f"{', '.join(missing[:_SHOWN])}{' ...' if len(missing) > _SHOWN else ''}."
        )
    for path in tiles:
        row_of = wanted.get(path)
        if row_of is None:
            if path.parent not in folders:
                yield Origin(path, False, str(path), str(path), False)
        elif _is_wanted(row_of):
            known = bool(row_of.patient) or row_of.slide != row_of.file
            yield Origin(
                path,
                False,
                row_of.slide,
                row_of.patient or row_of.slide,
                known,
                row_of.mpp,
                row_of.label,
                row_of.patient is not None,
            )


def _by_ending(tiles: Sequence[Path]) -> dict[str, Path]:
    """Tiles by their name and by every longer piece of the end of their path."""
    found: dict[str, Path] = {}
    twice = set()
    for path in tiles:
        parts = path.parts
        for start in range(len(parts)):
            name = Path(*parts[start:]).as_posix()
            if name in found and found[name] != path:
                twice.add(name)
            found[name] = path
    return {name: path for name, path in found.items() if name not in twice}
