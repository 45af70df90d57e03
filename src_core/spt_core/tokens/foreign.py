"""Feature files that other tools write in a form of their own.

STAMP's HDF5, ``.pt`` of CLAM, Slideflow and the SPT paper's group, and LazySlide's
tables. TRIDENT's and CLAM's HDF5 is the form of our own files.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from spt_core.errors import InputError
from spt_core.tokens import layout
from spt_core.tokens.lattice import cells_of, likely_step
from spt_core.tokens.rows import RowSource, ZarrRows, locate_rows
from spt_core.tokens.tokens import TokenFacts
from spt_core.tokens.torch_file import StoredTensor, read_torch_file

PT, ZARR = ".pt", ".zarr"
TABLES = "tables"
STAMP_FEATURES = "feats"
# The oldest of STAMP's files: coordinates count pixels of tiles of 224 on 256 µm.
_OLD_STAMP_PX, _OLD_STAMP_UM = 224, 256.0


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


def is_lazyslide(path: Path) -> bool:
    return path.is_dir() and (
        (path.name.endswith(ZARR) and (path / TABLES).is_dir())
        or (path.parent.name == TABLES and path.parent.parent.name.endswith(ZARR))
    )


def read_other_h5(path: Path, file: h5py.File) -> ForeignFile | None:
    """HDF5 in another form than TRIDENT's, CLAM's and ours; None where it is theirs."""
    if STAMP_FEATURES in file and layout.COORDS in file:
        return read_stamp(path, file)
    if layout.FEATURES in file and layout.COORDS not in file:
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
    attributes = dict(file.attrs)
    rows = locate_rows(path, file[STAMP_FEATURES])
    coords = np.asarray(file[layout.COORDS][:], float).reshape(-1, 2)
    name = path.name.removesuffix(layout.ENDING)
    stride = likely_step(np.rint(coords).astype(np.int64))[0] if len(coords) else 0
    tile_um, tile_px = attributes.get("tile_size_um"), attributes.get("tile_size_px")
    unit = _text(attributes.get("unit", ""))
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
                assumed=("l0_patch_xy",), source="feats in level-0 pixels",
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
    extractor = _text(attributes.get("extractor", "")) or None
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


def read_lazyslide(path: Path) -> ForeignFile:
    """A table of LazySlide's SpatialData, by zarr alone."""
    import zarr

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
    try:
        group = zarr.open_group(table, mode="r")
        x = group["X"]
        if not isinstance(x, zarr.Array) or x.ndim != 2:
            raise ValueError("X is not a matrix")
        spatial = group["obsm/spatial"][:] if "obsm/spatial" in group else None
    except (KeyError, ValueError, OSError) as error:
        raise InputError(f"{table} cannot be read as features ({error}).") from error
    count, dim = x.shape
    rows = ZarrRows(table / "X", (count, dim), np.dtype(x.dtype))
    facts = TokenFacts(
        name=slide.name.removesuffix(ZARR),
        encoder=table.name.removesuffix("_tiles") or None,
        source="LazySlide",
        has_positions=spatial is not None,
    )
    l0_xy = np.zeros((count, 2), np.int64)
    if spatial is not None:
        l0_xy = np.rint(np.asarray(spatial, float)[:, :2]).astype(np.int64)
        step = likely_step(l0_xy)
        facts = replace(facts, l0_patch_xy=step, l0_step_xy=step)
    return ForeignFile(l0_xy, facts, rows)


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
                with h5py.File(candidate, "r") as opened:
                    if layout.COORDS not in opened:
                        continue
                    coords = opened[layout.COORDS]
                    if len(coords) == count:
                        return _patches(name, coords)
    return None, TokenFacts(name=name)


def _patches(name: str, coords: h5py.Dataset) -> tuple[NDArray, TokenFacts]:
    said = dict(coords.attrs)
    l0_xy = np.asarray(coords[:]).reshape(-1, 2).astype(np.int64)
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
    with np.load(index, allow_pickle=False) as held:
        centres = np.asarray(held[held.files[0]], float).reshape(-1, 2)
    if len(centres) != rows.shape[0]:
        raise InputError(
            f"{path.name} holds {rows.shape[0]} features, {index.name} "
            f"{len(centres)} places."
        )
    config: dict[str, Any] = {}
    for folder in list(path.absolute().parents)[:2]:
        stated = folder / "bags_config.json"
        if stated.is_file():
            config = json.loads(stated.read_text("utf-8"))
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


def _of_the_group(path: Path, name: str, held: dict[str, Any]) -> ForeignFile:
    features = held.get("embeddings")
    if not isinstance(features, StoredTensor):
        found = ", ".join(str(key) for key in held) or "nothing"
        raise InputError(
            f"{path.name} has no tensor 'embeddings' (it holds {found}). A .pt of "
            "features is a matrix, or a table with 'embeddings' and 'coords'."
        )
    rows = _rows(path, features)
    places = held.get("coords")
    if isinstance(places, StoredTensor):
        places = places.read()
    elif isinstance(places, list):
        places = [p.read() if isinstance(p, StoredTensor) else p for p in places]
    facts = TokenFacts(name=name, source="the SPT paper's group", has_positions=False)
    if places is None:
        return ForeignFile(np.zeros((rows.shape[0], 2), np.int64), facts, rows)
    g_rc = np.asarray(places, np.int64).reshape(-1, 2)
    if len(g_rc) != rows.shape[0]:
        raise InputError(
            f"{path.name} holds {rows.shape[0]} features but {len(g_rc)} coordinates."
        )
    facts = replace(
        facts, has_positions=True, l0_step_xy=(1, 1), l0_patch_xy=(1, 1),
        assumed=("xy",),
    )  # fmt: skip
    return ForeignFile(g_rc[:, ::-1].copy(), facts, rows, g_rc)


def _rows(path: Path, tensor: StoredTensor) -> RowSource:
    if len(tensor.shape) != 2 or tensor.dtype.kind != "f":
        raise InputError(f"{path.name}: its features are {tensor.shape}, not (n, d).")
    shape = (tensor.shape[0], tensor.shape[1])
    return RowSource(path, shape, tensor.dtype, offset=tensor.offset)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value or "")


def _number(value: Any) -> float | None:
    try:
        return float(np.ravel(value)[0]) if value is not None else None
    except (TypeError, ValueError):
        return None
