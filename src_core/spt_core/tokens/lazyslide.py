"""LazySlide's tables of features in a folder of SpatialData, by zarr alone.

LazySlide itself, and what it stands on, would bring other versions of dask and pandas.

Such a folder may come from anywhere: every file of a table must be its own, and no
more is unpacked than its numbers take.
"""

import math
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from spt_core.errors import InputError
from spt_core.slides.zarr_chunks import SIZES, SPARE_BYTES
from spt_core.tokens.foreign import ForeignFile
from spt_core.tokens.lattice import likely_step
from spt_core.tokens.lazyslide_tiles import read_tiles, tile_spec
from spt_core.tokens.rows import ZarrRows
from spt_core.tokens.schema import check_matrix, check_places, check_size
from spt_core.tokens.tokens import TokenFacts

ZARR, TABLES = ".zarr", "tables"
_METADATA = (".zarray", "zarr.json")
_LONGEST_METADATA = 2**20


def is_lazyslide(path: Path) -> bool:
    return path.is_dir() and (
        (path.name.endswith(ZARR) and (path / TABLES).is_dir())
        or (path.parent.name == TABLES and path.parent.parent.name.endswith(ZARR))
    )


def read_lazyslide(path: Path) -> ForeignFile:
    """A table of LazySlide's: the one there is, or the one that ``path`` names."""
    if path.parent.name == TABLES:
        table, slide = path, path.parent.parent
    else:
        tables = sorted(p for p in (path / TABLES).iterdir() if (p / "X").exists())
        tiles = [p for p in tables if p.name.endswith("_tiles")] or tables
        if len(tiles) != 1:
            names = ", ".join(p.name for p in tiles) or "none"
            raise InputError(
                f"{path.name} holds these tables of features: {names}. Give the one "
                f"that you mean, such as {path.name}/{TABLES}/NAME."
            )
        table, slide = tiles[0], path
    name = f"{slide.name}/{TABLES}/{table.name}"
    for folder in (slide / TABLES, table, table / "obsm"):
        if folder.is_symlink():
            raise InputError(f"{name}: {folder.name} is a link. {_USE_A_WHOLE_FOLDER}")
    x = open_checked(name, table / "X")
    check_matrix(name, x.shape, x.dtype, "X")
    count, dim = x.shape
    rows = ZarrRows(table / "X", (count, dim), np.dtype(x.dtype))
    facts = TokenFacts(
        name=slide.name.removesuffix(ZARR),
        encoder=table.name.removesuffix("_tiles") or None,
        source="LazySlide",
        has_positions=False,
    )
    l0_xy = np.zeros((count, 2), np.int64)
    if (table / "obsm" / "spatial").exists():
        l0_xy = _places(name, open_checked(name, table / "obsm" / "spatial"), count)
        step = likely_step(l0_xy)
        facts = replace(facts, has_positions=True, l0_patch_xy=step, l0_step_xy=step)
        return ForeignFile(l0_xy, facts, rows)
    return _by_tiles(name, slide, table, ForeignFile(l0_xy, facts, rows))


def _by_tiles(name: str, slide: Path, table: Path, held: ForeignFile) -> ForeignFile:
    """The same with places and sizes, where the slide's tiles are there to be read."""
    region, numbers = "tiles", table / "obs" / "tile_id"
    tiles = read_tiles(slide, region) if numbers.exists() else None
    if tiles is None:
        return held
    wanted = np.asarray(open_checked(name, numbers)[:])
    order = np.argsort(tiles.ids)
    at = np.searchsorted(tiles.ids, wanted, sorter=order)
    rows = order[np.minimum(at, len(order) - 1)] if len(order) else order
    if len(wanted) != len(held.l0_xy) or not np.array_equal(tiles.ids[rows], wanted):
        raise InputError(f"{name}: its tiles are not those of its features.")
    spec = tile_spec(slide, region)
    side, stride, mpp = (spec.get(k) for k in ("width", "stride_width", "mpp"))
    facts = replace(
        held.facts,
        has_positions=True,
        l0_patch_xy=tiles.l0_size_xy,
        l0_step_xy=tiles.l0_size_xy,
    )
    if _is_size(side):
        facts = replace(facts, patch_size=round(side))
        if _is_size(stride):
            step_xy = (round(one * stride / side) for one in tiles.l0_size_xy)
            x, y = (max(1, one) for one in step_xy)
            facts = replace(facts, l0_step_xy=(x, y))
        if _is_size(mpp):
            facts = replace(facts, mpp=float(mpp), patch_um=float(mpp * side))
    return ForeignFile(tiles.l0_xy[rows], facts, held.rows)


def _is_size(value: Any) -> TypeGuard[int | float]:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and 0 < value < 2**20
    )


def _places(name: str, spatial: Any, count: int) -> NDArray[np.int64]:
    if spatial.ndim != 2 or spatial.shape[0] != count or spatial.shape[1] not in (2, 3):
        raise InputError(
            f"{name}: its places are {spatial.shape}, its features {count}."
        )
    if spatial.dtype.kind not in "iuf":
        raise InputError(f"{name}: its places are not numbers.")
    pairs = np.asarray(spatial[:], float)[:, :2]
    check_places(name, "spatial", pairs)
    return np.rint(pairs).astype(np.int64)


_USE_A_WHOLE_FOLDER = "Use a folder that holds its numbers itself."


def open_checked(name: str, folder: Path) -> Any:
    """A zarr array, once its files are seen to be its own and enough for its size."""
    from spt_core.slides.zarr_folder import open_zarr  # half a second

    what = folder.name
    files = dict(_files(name, folder))
    for one in _METADATA:
        if files.get(folder / one, 0) > _LONGEST_METADATA:
            raise InputError(f"{name}: the facts of '{what}' are too long.")
    try:
        array = open_zarr(folder)
        pack = _packing(array)
    # zarr raises many kinds of error on a damaged folder.
    except Exception as error:
        raise InputError(f"{name}: '{what}' cannot be read ({error}).") from error
    chunks = {p: n for p, n in files.items() if not p.name.startswith((".z", "zarr."))}
    size = math.prod(array.shape) * array.dtype.itemsize
    chunk = math.prod(array.chunks) * array.dtype.itemsize
    check_size(name, what, array.shape, size, sum(chunks.values()))
    expected = math.prod(
        -(-side // part) for side, part in zip(array.shape, array.chunks, strict=True)
    )
    if expected > 2 * len(chunks) + 16:
        raise InputError(f"{name}: most of '{what}' is missing. Make it again.")
    if chunk > max(size, SPARE_BYTES):
        raise InputError(f"{name}: a chunk of '{what}' is larger than all of it.")
    for path, stored in chunks.items():
        if _unpacked(path, stored, pack, chunk) > chunk:
            raise InputError(f"{name}: '{what}' is packed wrongly in {path.name}.")
    return array


def _files(name: str, folder: Path) -> Iterator[tuple[Path, int]]:
    """Each file below a folder with its size; links and devices are refused."""
    if folder.is_symlink():
        raise InputError(f"{name}: '{folder.name}' is a link. {_USE_A_WHOLE_FOLDER}")
    with os.scandir(folder) as entries:
        for entry in entries:
            found = entry.stat(follow_symlinks=False)
            if stat.S_ISDIR(found.st_mode):
                yield from _files(name, Path(entry.path))
            elif stat.S_ISREG(found.st_mode):
                yield Path(entry.path), found.st_size
            else:
                raise InputError(
                    f"{name}: {entry.name} in '{folder.name}' is a link or no file. "
                    f"{_USE_A_WHOLE_FOLDER}"
                )


def _packing(array: Any) -> str | None:
    """How chunks are packed, by the codec's name; None where they are not."""
    found = []
    for codec in (*array.filters, *array.compressors):
        said: Mapping[str, Any] = (
            codec.to_dict() if hasattr(codec, "to_dict") else codec.get_config()
        )
        found.append(str(said.get("name") or said.get("id")).removeprefix("numcodecs."))
    serializer = type(array.serializer).__name__
    if len(found) > 1 or (found and found[0] not in SIZES) or "Shard" in serializer:
        raise ValueError(f"it is packed by {', '.join([serializer, *found])}")
    return found[0] if found else None


def _unpacked(path: Path, stored: int, pack: str | None, most: int) -> int:
    """Bytes that a chunk says, or is seen, to unpack to."""
    if pack is None:
        return stored
    with path.open("rb") as file:
        return SIZES[pack](file, most)
