"""Where the tiles of LazySlide's tables lie: a table of polygons in Parquet.

Reading it takes pyarrow, which is not among our dependencies: without it features are
read, and their places are not.
"""

import struct
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spt_core.errors import InputError
from spt_core.plain_data import from_json, json_of

# Well-known binary: byte order, the kind (a polygon), one ring, its points.
_HEAD, _POLYGON = struct.Struct("<BIII"), 3
_MOST_BYTES = 512  # of a tile: its polygon of five points takes 93
_LONGEST_FACTS = 2**20


@dataclass(frozen=True)
class Tiles:
    """Tiles by their numbers; sizes are in level-0 pixels, as are places."""

    ids: NDArray[np.int64]
    l0_xy: NDArray[np.int64]
    l0_size_xy: tuple[int, int]


def can_read_tiles() -> bool:
    return find_spec("pyarrow") is not None


def read_tiles(slide: Path, region: str) -> Tiles | None:
    """The tiles of a region of a slide; None where there are none, or no pyarrow."""
    path = slide / "shapes" / region / "shapes.parquet"
    if path.is_symlink() or not path.is_file() or not can_read_tiles():
        return None
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            facts = file.metadata
            groups = [facts.row_group(i) for i in range(facts.num_row_groups)]
            size = sum(one.total_byte_size for one in groups)
            if size > _MOST_BYTES * facts.num_rows + _LONGEST_FACTS:
                raise ValueError("it holds more than tiles")
            table = file.read(columns=["tile_id", "geometry"], use_threads=False)
        ids = table.column("tile_id").to_numpy().astype(np.int64)
        boxes = np.array([_box(one.as_py()) for one in table.column("geometry")])
    # pyarrow raises many kinds of error on a damaged file.
    except Exception as error:
        raise InputError(
            f"{slide.name}: where its tiles lie cannot be read from {path.name} "
            f"({error})."
        ) from error
    boxes = boxes.reshape(-1, 4)
    sizes = np.rint(np.median(boxes[:, 2:] - boxes[:, :2], axis=0)) if len(boxes) else 1
    width, height = np.broadcast_to(sizes, 2).astype(int)
    return Tiles(ids, np.rint(boxes[:, :2]).astype(np.int64), (int(width), int(height)))


def _box(polygon: bytes) -> tuple[float, float, float, float]:
    order, kind, rings, points = _HEAD.unpack_from(polygon)
    if order != 1 or kind != _POLYGON or rings < 1 or not 3 <= points <= 64:
        raise ValueError("a tile is no polygon")
    corners = np.frombuffer(polygon, "<f8", 2 * points, _HEAD.size).reshape(-1, 2)
    if not np.isfinite(corners).all() or np.abs(corners).max() > 2**31:
        raise ValueError("a tile lies nowhere")
    (x0, y0), (x1, y1) = corners.min(axis=0), corners.max(axis=0)
    return x0, y0, x1, y1


def tile_spec(slide: Path, region: str) -> dict[str, Any]:
    """What LazySlide notes of a region's tiles: size, stride, mpp; else nothing."""
    for name in ("zarr.json", ".zattrs"):
        path = slide / name
        if not path.is_file() or path.stat().st_size > _LONGEST_FACTS:
            continue
        try:
            said = json_of(path)
            said = said.get("attributes", said)["tile_spec"]
            said = from_json(said) if isinstance(said, str) else said
            found = said[region]
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            continue
        if isinstance(found, dict):
            return found
    return {}
