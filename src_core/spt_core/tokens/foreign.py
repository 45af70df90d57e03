"""Feature files that other tools write in a form of their own.

STAMP's HDF5, and ``.pt`` of CLAM, Slideflow and the SPT paper's group. TRIDENT's and
CLAM's HDF5 is the form of our own files.
"""

import math
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from spt_core.errors import InputError
from spt_core.plain_data import from_json
from spt_core.tokens import layout
from spt_core.tokens.h5_reading import opened_h5
from spt_core.tokens.lattice import cells_of, likely_step
from spt_core.tokens.rows import RowSource, locate_rows
from spt_core.tokens.schema import (
    check_attributes,
    check_datasets,
    check_matrix,
    check_places,
    check_size,
    short_attributes,
    text_of,
)
from spt_core.tokens.tokens import TokenFacts
from spt_core.tokens.torch_file import StoredTensor, read_torch_file

PT = ".pt"
STAMP_FEATURES = "feats"
# The oldest of STAMP's files: coordinates count pixels of tiles of 224 on 256 µm.
_OLD_STAMP_PX, _OLD_STAMP_UM = 224, 256.0
_LONGEST_CONFIG = 2**20


@dataclass(frozen=True, eq=False)
class ForeignFile:
    """What another tool's file says: as far as its form goes, our own terms."""

    l0_xy: NDArray[np.int64]
    facts: TokenFacts
    rows: RowSource
    g_rc: NDArray[np.int64] | None = None

    def cells(self) -> tuple[NDArray[np.int64], bool]:
        """Grid cells (n, 2), and whether the patches fit no single grid."""
        if self.g_rc is not None:
            first = self.g_rc.min(axis=0) if len(self.g_rc) else 0
            return self.g_rc - first, False
        if not self.facts.has_positions:
            return np.zeros((len(self.l0_xy), 2), np.int64), False
        return cells_of(self.l0_xy, self.facts.l0_step_xy or (1, 1))


def read_other_h5(path: Path, file: h5py.File) -> ForeignFile | None:
    """HDF5 in another form than TRIDENT's, CLAM's and ours; None where it is theirs."""
    if STAMP_FEATURES in file and layout.COORDS in file:
        return read_stamp(path, file)
    # Without its places a file of ours has lost most of what it states.
    is_ours = layout.SPT_VERSION in file.attrs
    if layout.FEATURES in file and layout.COORDS not in file and not is_ours:
        check_datasets(path.name, file)
        rows = locate_rows(path, file[layout.FEATURES])
        name = path.name.removesuffix(layout.ENDING)
        coords, facts = coordinates_beside(path, name, rows.shape[0])
        if coords is None:
            coords = np.zeros((rows.shape[0], 2), np.int64)
            facts = replace(facts, has_positions=False)
        return ForeignFile(coords, facts, rows)
    return None


def read_pt(path: Path) -> ForeignFile:
    """A ``.pt``: a bare matrix of CLAM or Slideflow, or the paper's group's table."""
    held = read_torch_file(path)
    name = path.name.removesuffix(PT)
    if isinstance(held, dict):
        return _of_the_group(path, name, held)
    if not isinstance(held, StoredTensor):
        raise InputError(f"{path.name} holds neither a matrix nor a table of features.")
    rows = _rows(path, held)
    beside = path.with_name(f"{name}.index.npz")
    if beside.is_file():
        return _of_slideflow(path, name, rows, beside)
    coords, facts = coordinates_beside(path, name, rows.shape[0])
    if coords is None:
        facts = TokenFacts(name=name, source="CLAM", has_positions=False)
        coords = np.zeros((rows.shape[0], 2), np.int64)
    return ForeignFile(coords, facts, rows)


def read_stamp(path: Path, file: h5py.File) -> ForeignFile:
    """STAMP's three generations, and the files that look like them and hold pixels."""
    check_datasets(path.name, file, STAMP_FEATURES)
    attributes = short_attributes(file.id)
    check_attributes(path.name, attributes)
    rows = locate_rows(path, file[STAMP_FEATURES])
    coords = np.asarray(file[layout.COORDS][:], float).reshape(-1, 2)
    check_places(path.name, layout.COORDS, coords)
    name = path.name.removesuffix(layout.ENDING)
    stride = likely_step(np.rint(coords).astype(np.int64))[0] if len(coords) else 0
    tile_um, tile_px = attributes.get("tile_size_um"), attributes.get("tile_size_px")
    unit = text_of(attributes.get("unit"))
    if tile_um is None and "tile_size" in attributes:
        tile_um = attributes["tile_size"]
    if tile_um is None and unit not in ("um", "µm"):
        if attributes or stride == _OLD_STAMP_PX:
            coords = coords / _OLD_STAMP_PX * _OLD_STAMP_UM
            tile_um, tile_px = _OLD_STAMP_UM, _OLD_STAMP_PX
        else:  # level-0 pixels, whoever wrote them
            l0_xy = np.rint(coords).astype(np.int64)
            step = likely_step(l0_xy)
            facts = TokenFacts(
                name=name, l0_patch_xy=step, l0_step_xy=step,
                assumed=("l0_patch_xy",), source="STAMP's names, in pixels",
            )  # fmt: skip
            return ForeignFile(l0_xy, facts, rows)
    return ForeignFile(*_from_um(name, coords, tile_um, tile_px, attributes), rows)


def _from_um(
    name: str, um_xy: NDArray, tile_um: Any, tile_px: Any, attributes: dict[str, Any]
) -> tuple[NDArray[np.int64], TokenFacts]:
    """Micrometres as pixels of the tiles: what a level-0 pixel is, no file says."""
    side_um = float(np.ravel(tile_um)[0]) if tile_um is not None else 256.0
    side_px = round(float(np.ravel(tile_px)[0])) if tile_px is not None else 224
    mpp = side_um / side_px
    extractor = text_of(attributes.get("extractor")) or None
    facts = TokenFacts(
        name=name,
        encoder=extractor,
        mpp=mpp,
        patch_size=side_px,
        patch_um=side_um,
        l0_patch_xy=(side_px, side_px),
        l0_step_xy=(side_px, side_px),
        assumed=("xy", *(() if tile_px is not None else ("patch_size", "mpp"))),
        source="STAMP",
    )
    return np.rint(um_xy / mpp).astype(np.int64), facts


def coordinates_beside(
    path: Path, name: str, count: int
) -> tuple[NDArray[np.int64] | None, TokenFacts]:
    """Coordinates, and how large patches are, of TRIDENT's or CLAM's patch file.

    It lies in ``patches`` (or CLAM's ``h5_files``) beside or above the features.
    """
    for folder in list(path.absolute().parents)[:3]:
        for inside in ("patches", "h5_files"):
            for file in (f"{name}_patches.h5", f"{name}.h5"):
                candidate = folder / inside / file
                if candidate == path.absolute() or not candidate.is_file():
                    continue
                found = _patches_in(candidate, name, count)
                if found is not None:
                    return found
    return None, TokenFacts(name=name)


def _patches_in(
    path: Path, name: str, count: int
) -> tuple[NDArray[np.int64], TokenFacts] | None:
    try:
        with opened_h5(path) as opened:
            if layout.COORDS.encode() not in opened.id:
                return None
            check_datasets(path.name, opened, None, [layout.COORDS])
            coords = opened[layout.COORDS]
            said = short_attributes(coords.id)
            check_attributes(path.name, said)
            pairs = coords[:].reshape(-1, 2)
    except InputError:
        raise
    # Whatever h5py raises, by where the file is wrong.
    except Exception as error:
        raise InputError(
            f"{path} cannot be read as {name}'s patches ({error})."
        ) from error
    if len(pairs) != count:
        return None
    check_places(path.name, layout.COORDS, pairs)
    return _patches(name, pairs.astype(np.int64), said)


def _patches(
    name: str, l0_xy: NDArray[np.int64], said: dict[str, Any]
) -> tuple[NDArray[np.int64], TokenFacts]:
    trident = layout.PATCH_SIZE_L0 in said
    step = likely_step(l0_xy)
    facts = TokenFacts(name=name, source="TRIDENT" if trident else "CLAM")
    side = said.get(layout.PATCH_SIZE_L0)
    if side is None and "downsample" in said and layout.PATCH_SIZE in said:
        # CLAM's: pixels of a level, perhaps made smaller once more.
        more = float(np.ravel(said.get("custom_downsample", 1))[0])
        across = np.ravel(said["downsample"]) * float(np.ravel(said["patch_size"])[0])
        side = across[0] * max(1.0, more)
    if side is None:
        return l0_xy, replace(
            facts, l0_patch_xy=step, l0_step_xy=step, assumed=("l0_patch_xy",)
        )
    footprint = round(float(np.ravel(side)[0]))
    step = step if step != (1, 1) else (footprint, footprint)
    known: dict[str, Any] = {"l0_patch_xy": (footprint,) * 2, "l0_step_xy": step}
    if trident and layout.PATCH_SIZE in said:
        known["patch_size"] = round(float(np.ravel(said[layout.PATCH_SIZE])[0]))
        target = _number(said.get(layout.TARGET_MAGNIFICATION))
        if target:
            known |= {"mpp": 10 / target, "target_magnification": target}
            known["assumed"] = ("mpp",)
    return l0_xy, replace(facts, **known)


def _of_slideflow(path: Path, name: str, rows: RowSource, index: Path) -> ForeignFile:
    centres = _centres(index)
    if len(centres) != rows.shape[0]:
        raise InputError(
            f"{path.name} holds {rows.shape[0]} features, {index.name} "
            f"{len(centres)} places."
        )
    config: dict[str, Any] = {}
    for folder in list(path.absolute().parents)[:2]:
        stated = folder / "bags_config.json"
        if stated.is_file():
            config = _config(stated)
            break
    tile_px, tile_um = _number(config.get("tile_px")), _number(config.get("tile_um"))
    extractor = config.get("extractor")
    if isinstance(extractor, dict):
        extractor = extractor.get("class")
    step = likely_step(np.rint(centres).astype(np.int64))
    facts = TokenFacts(
        name=name,
        encoder=str(extractor).rpartition(".")[2] if extractor else None,
        patch_size=round(tile_px) if tile_px else None,
        mpp=tile_um / tile_px if tile_um and tile_px else None,
        patch_um=tile_um,
        l0_patch_xy=step,
        l0_step_xy=step,
        assumed=("l0_patch_xy",),
        source="Slideflow",
    )
    l0_xy = np.rint(centres - np.asarray(step) / 2).astype(np.int64)
    return ForeignFile(l0_xy, facts, rows)


def _centres(index: Path) -> NDArray[np.float64]:
    """The places in Slideflow's index: the first array of an .npz."""
    try:
        with zipfile.ZipFile(index) as archive:
            entry = archive.infolist()[0]
            with archive.open(entry) as held:
                version = np.lib.format.read_magic(held)
                read = {
                    (1, 0): np.lib.format.read_array_header_1_0,
                    (2, 0): np.lib.format.read_array_header_2_0,
                }[version]
                shape, by_columns, dtype = read(held)
                stated = math.prod(shape) * dtype.itemsize
                check_size(index.name, "places", shape, stated, entry.compress_size)
                if dtype.kind not in "iuf" or shape[-1:] != (2,):
                    raise ValueError("no pairs of numbers")
                numbers = np.frombuffer(held.read(stated), dtype)
    except InputError:
        raise
    # A zip and its header can be wrong in any way.
    except Exception as error:
        raise InputError(f"{index.name} cannot be read as places ({error}).") from error
    centres = numbers.reshape(shape, order="F" if by_columns else "C").astype(float)
    check_places(index.name, "places", centres)
    return centres.reshape(-1, 2)


def _config(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            held = from_json(file.read(_LONGEST_CONFIG))
    except ValueError as error:
        raise InputError(f"{path} is no JSON ({error}).") from error
    return held if isinstance(held, dict) else {}


def _of_the_group(path: Path, name: str, held: dict[str, Any]) -> ForeignFile:
    features = held.get("embeddings")
    if not isinstance(features, StoredTensor):
        found = ", ".join(str(key)[:40] for key in [*held][:20]) or "nothing"
        raise InputError(
            f"{path.name} has no tensor 'embeddings' (it holds {found}). A .pt of "
            "features is a matrix, or a table with 'embeddings' and 'coords'."
        )
    rows = _rows(path, features)
    places = held.get("coords")
    facts = TokenFacts(name=name, source="the SPT paper's group", has_positions=False)
    if places is None:
        return ForeignFile(np.zeros((rows.shape[0], 2), np.int64), facts, rows)
    g_rc = _cells(path, places, rows.shape[0])
    facts = replace(
        facts, has_positions=True, l0_step_xy=(1, 1), l0_patch_xy=(1, 1),
        assumed=("xy",),
    )  # fmt: skip
    return ForeignFile(g_rc[:, ::-1].copy(), facts, rows, g_rc)


def _cells(path: Path, places: Any, count: int) -> NDArray[np.int64]:
    """Grid (row, col), (n, 2), of a tensor or of a list of pairs."""
    if isinstance(places, StoredTensor):
        pairs = places.read()
    elif isinstance(places, list) and len(places) == count:
        # One by one: lists that hold one another are small in a file alone.
        pairs = np.array([_pair(place) for place in places]).reshape(-1, 2)
    else:
        pairs = np.zeros((len(places) if isinstance(places, list) else 0, 2))
    if pairs.shape != (count, 2) or pairs.dtype.kind not in "iuf":
        raise InputError(
            f"{path.name} holds {count} features, and its 'coords' are {pairs.shape} "
            f"instead of ({count}, 2) numbers."
        )
    check_places(path.name, layout.COORDS, pairs)
    return pairs.astype(np.int64)


def _pair(place: Any) -> tuple[float, float]:
    """A pair of numbers; what else it may be is on no slide."""
    if isinstance(place, StoredTensor) and place.shape == (2,):
        place = place.read().tolist()
    if isinstance(place, list | tuple) and len(place) == 2:
        first, second = place
        if isinstance(first, int | float) and isinstance(second, int | float):
            return float(first), float(second)
    return math.nan, math.nan


def _rows(path: Path, tensor: StoredTensor) -> RowSource:
    check_matrix(path.name, tensor.shape, tensor.dtype)
    shape = (tensor.shape[0], tensor.shape[1])
    return RowSource(path, shape, tensor.dtype, offset=tensor.offset)


def _number(value: Any) -> float | None:
    try:
        return float(np.ravel(value)[0]) if value is not None else None
    except (TypeError, ValueError):
        return None
