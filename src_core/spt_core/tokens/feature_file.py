"""The feature file, one per slide: TRIDENT's and CLAM's format, with additions."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from spt_core._version import __version__
from spt_core.errors import InputError
from spt_core.files import refuse_no_file
from spt_core.tokens import foreign, layout
from spt_core.tokens.h5_reading import opened_h5
from spt_core.tokens.h5_writing import written_h5
from spt_core.tokens.lattice import cells_of, likely_step
from spt_core.tokens.lazyslide import is_lazyslide, read_lazyslide
from spt_core.tokens.rows import RowSource, locate_rows
from spt_core.tokens.schema import (
    check_agreement,
    check_attributes,
    check_datasets,
    check_facts,
    check_lattice,
    check_matrix,
    check_patch,
    check_places,
    short_attributes,
    text_of,
)
from spt_core.tokens.tokens import TokenFacts, Tokens

# TRIDENT's folders: magnification, side and overlap of patches.
_TRIDENTS = re.compile(
    r"([0-9]{1,4}(?:\.[0-9]{1,4})?)x_([0-9]{1,7})px_([0-9]{1,7})px_overlap"
)
# A microscope's "20x" is 0.5 micrometres per pixel.
UM_AT_1X = 10.0


@dataclass(frozen=True, eq=False)
class TokenIndex:
    """A feature file without its features: positions, facts, and where rows lie."""

    p: NDArray[np.int64]
    xy: NDArray[np.int64]
    facts: TokenFacts
    rows: RowSource


def read_tokens(
    path: str | os.PathLike[str],
    *,
    encoder: str | None = None,
    mpp: float | None = None,
    patch_size: int | None = None,
    dtype: type | np.dtype | None = np.float32,
    title: str | None = None,
) -> Tokens:
    """Read one slide's tokens from our own, TRIDENT's or CLAM's file.

    Parameters
    ----------
    encoder, mpp, patch_size
        Used where the file does not state them.
    dtype
        Of ``x``; None keeps what is stored.
    title
        What sentences call the file, where not by its name.
    """
    index = read_index(
        path, encoder=encoder, mpp=mpp, patch_size=patch_size, title=title
    )
    try:
        x = index.rows.read_all()
    # Whatever HDF5, zarr and their codecs raise, by where the file is wrong.
    except Exception as error:
        raise InputError(
            f"{title or Path(path).name}: its features cannot be read ({error}). "
            "Encode this slide again."
        ) from error
    if dtype is not None:
        with np.errstate(over="ignore"):  # infinity is refused below
            x = x.astype(dtype, copy=False)
    if not np.isfinite(x).all():
        bad = int((~np.isfinite(x)).any(axis=1).sum())
        raise InputError(
            f"{title or Path(path).name}: {bad} of {len(x)} tokens hold NaN or "
            "infinity. Encode this slide again."
        )
    return Tokens(x, index.p, index.xy, index.facts)


def read_index(
    path: str | os.PathLike[str],
    *,
    encoder: str | None = None,
    mpp: float | None = None,
    patch_size: int | None = None,
    title: str | None = None,
) -> TokenIndex:
    """Read everything in a feature file except the features."""
    path = Path(path)
    name = title or path.name
    given = {"encoder": encoder, "mpp": mpp, "patch_size": patch_size}
    refuse_no_file(path)
    try:
        if path.suffix == foreign.PT:
            return _of_foreign(name, foreign.read_pt(path), given)
        if is_lazyslide(path):
            return _of_foreign(name, read_lazyslide(path), given)
        with opened_h5(path) as file:
            if (
                layout.FEATURES.encode() not in file.id
                or layout.COORDS.encode() not in file.id
            ):
                other = foreign.read_other_h5(path, file)
                if other is not None:
                    return _of_foreign(name, other, given)
            _check_layout(name, file)
            check_datasets(name, file)
            # By h5py's lower layer: opening ten thousand slides takes a third as long.
            coords = h5py.h5d.open(file.id, layout.COORDS.encode())
            attributes = {**short_attributes(coords), **short_attributes(file.id)}
            l0_xy, g_rc = _pairs(name, layout.COORDS, coords), None
            if layout.GRID.encode() in file.id:
                grid = h5py.h5d.open(file.id, layout.GRID.encode())
                g_rc = _pairs(name, layout.GRID, grid)
            rows = locate_rows(path, file[layout.FEATURES])
    except FileNotFoundError as error:
        raise InputError(f"There is no feature file {title or path}.") from error
    except InputError:
        raise
    # Whatever h5py and zarr raise, by where the file is wrong.
    except Exception as error:
        raise InputError(
            f"{name} cannot be read as a feature file ({error}). If a run that "
            "wrote it was stopped, encode this slide again."
        ) from error
    check_attributes(name, attributes)
    if rows.shape[0] != len(l0_xy) or (g_rc is not None and len(g_rc) != len(l0_xy)):
        raise InputError(
            f"{name} holds {rows.shape[0]} features but {len(l0_xy)} coordinates. "
            "Encode this slide again."
        )
    facts = _facts(path, attributes, l0_xy)
    check_facts(name, facts)
    check_patch(name, facts)
    if "l0_patch_xy" in facts.assumed:
        facts = _with_patch_file(path, facts, len(l0_xy))
    facts = _complete(facts, **given)
    if g_rc is None:
        p, off = cells_of(l0_xy, facts.l0_step_xy or (1, 1))
        facts = replace(facts, off_lattice=off)
    else:
        check_agreement(name, facts, l0_xy, g_rc)
        p = g_rc - np.asarray(facts.g_origin)
    check_lattice(name, p)
    return TokenIndex(p, l0_xy, facts, rows)


def _of_foreign(
    name: str, other: foreign.ForeignFile, given: dict[str, Any]
) -> TokenIndex:
    """Another tool's file, by the same rules as our own."""
    check_matrix(name, other.rows.shape, other.rows.dtype)
    if len(other.l0_xy) != other.rows.shape[0]:
        raise InputError(
            f"{name} holds {other.rows.shape[0]} features but {len(other.l0_xy)} "
            "coordinates."
        )
    check_places(name, layout.COORDS, other.l0_xy)
    check_facts(name, other.facts)
    facts = _complete(_with_folder(other), **given)
    p, off = other.cells()
    check_lattice(name, p)
    return TokenIndex(p, other.l0_xy, replace(facts, off_lattice=off), other.rows)


def _with_folder(other: foreign.ForeignFile) -> TokenFacts:
    """What TRIDENT's folders say, where its file does not."""
    facts, folder = other.facts, _folder_facts(other.rows.path)
    if facts.encoder is None and "encoder" in folder:
        assumed = (*facts.assumed, "encoder")
        facts = replace(facts, encoder=folder["encoder"], assumed=assumed)
    return facts


def _with_patch_file(path: Path, facts: TokenFacts, count: int) -> TokenFacts:
    """How large patches are, from the file of patches that CLAM keeps elsewhere."""
    coords, found = foreign.coordinates_beside(path, facts.name, count)
    if coords is None or "l0_patch_xy" in found.assumed:
        return facts
    rest = tuple(one for one in facts.assumed if one != "l0_patch_xy")
    return replace(
        facts,
        l0_patch_xy=found.l0_patch_xy,
        l0_step_xy=found.l0_step_xy,
        source=found.source,
        assumed=rest,
    )


def write_tokens(path: str | os.PathLike[str], tokens: Tokens) -> None:
    """Write one slide's tokens at once, rows sorted by (row, col).

    The precision of ``tokens.x`` (float32 or float16) is what is stored.
    """
    order = np.lexsort((tokens.p[:, 1], tokens.p[:, 0]))
    x = np.ascontiguousarray(tokens.x[order])
    if x.dtype not in (np.float16, np.float32):
        x = x.astype(np.float32)
    with written_h5(Path(path), x.nbytes + 32 * len(x)) as file:
        # Contiguous and unfiltered: rows can be read through a memory map.
        file.create_dataset(layout.FEATURES, data=x)
        coords = file.create_dataset(layout.COORDS, data=tokens.xy[order])
        file.create_dataset(layout.GRID, data=tokens.g_rc[order])
        coords.attrs.update(coords_attributes(tokens.facts))
        file.attrs.update(file_attributes(tokens.facts))


def coords_attributes(facts: TokenFacts) -> dict[str, Any]:
    """The attributes of ``coords``, as TRIDENT's readers expect them."""
    known: dict[str, Any] = {
        layout.PATCH_SIZE: facts.patch_size,
        layout.L0_MAGNIFICATION: facts.l0_magnification,
        layout.TARGET_MAGNIFICATION: facts.target_magnification,
        layout.OVERLAP: facts.overlap,
        layout.NAME: facts.name,
    }
    if facts.l0_patch_xy is not None:
        l0_x, l0_y = facts.l0_patch_xy
        known[layout.PATCH_SIZE_L0] = l0_x
        if l0_x != l0_y:
            known[layout.PATCH_SIZE_L0_X] = l0_x
            known[layout.PATCH_SIZE_L0_Y] = l0_y
    if facts.l0_size_xy is not None:
        known[layout.L0_WIDTH], known[layout.L0_HEIGHT] = facts.l0_size_xy
    return {name: value for name, value in known.items() if value is not None}


def file_attributes(facts: TokenFacts) -> dict[str, Any]:
    """The attributes of the file itself, which are our additions."""
    known = {
        layout.SPT_VERSION: __version__,
        layout.ENCODER: facts.encoder,
        layout.ENCODER_SHA256: facts.encoder_sha256,
        layout.MPP: facts.mpp,
        layout.PATCH_UM: facts.patch_um,
        layout.STAIN: facts.stain,
        layout.STAIN_DONE: facts.stain_done,
        layout.CHANNELS: facts.channels,
        layout.CHANNELS_DONE: facts.channels_done,
        layout.SLIDE_FINGERPRINT: facts.slide_fingerprint,
        layout.SCANNER: facts.scanner,
        layout.GRID_ORIGIN: np.asarray(facts.g_origin, np.int64),
        layout.HAS_POSITIONS: None if facts.has_positions else False,
    }
    return {name: value for name, value in known.items() if value is not None}


def _check_layout(name: str, file: h5py.File) -> None:
    needed = (layout.FEATURES, layout.COORDS)
    missing = [one for one in needed if one.encode() not in file.id]
    if missing:
        found = ", ".join(sorted(file)) or "nothing"
        raise InputError(
            f"{name} has no {' and no '.join(missing)} (it holds {found}). A "
            "feature file holds 'features' (n, d) and 'coords' (n, 2), as TRIDENT, "
            "CLAM and 'spt encode' write them."
        )


def _pairs(name: str, what: str, dataset: h5py.h5d.DatasetID) -> NDArray[np.int64]:
    values = np.empty(dataset.shape, dataset.dtype)
    if values.size:
        dataset.read(h5py.h5s.ALL, h5py.h5s.ALL, values)
    values = values.reshape(-1, 2)
    check_places(name, what, values)
    return values.astype(np.int64, copy=False)


def _facts(path: Path, said: Mapping[str, Any], l0_xy: NDArray) -> TokenFacts:
    def number(name: str) -> float | None:
        return float(np.ravel(said[name])[0]) if name in said else None

    def whole(name: str) -> int | None:
        value = number(name)
        return None if value is None else round(value)

    def text(name: str) -> str | None:
        return text_of(said[name]) if name in said else None

    assumed = []
    patch_size, overlap = whole(layout.PATCH_SIZE), whole(layout.OVERLAP) or 0
    l0_mag = number(layout.L0_MAGNIFICATION)
    target_mag = number(layout.TARGET_MAGNIFICATION)
    folder = _folder_facts(path)
    if target_mag is None and "magnification" in folder:
        target_mag = float(folder["magnification"])
    if patch_size is None and "patch_size" in folder:
        patch_size = int(folder["patch_size"])
        overlap = int(folder["overlap"])
        assumed.append("patch_size")
    mpp = number(layout.MPP)
    if mpp is None and target_mag:
        mpp = UM_AT_1X / target_mag
        assumed.append("mpp")
    encoder = text(layout.ENCODER)
    if encoder is None and "encoder" in folder:
        encoder = folder["encoder"]
        assumed.append("encoder")

    l0_patch = whole(layout.PATCH_SIZE_L0)
    l0_patch_xy = None if l0_patch is None else (l0_patch, l0_patch)
    if layout.PATCH_SIZE_L0_X in said:
        l0_patch_xy = (
            whole(layout.PATCH_SIZE_L0_X) or 1,
            whole(layout.PATCH_SIZE_L0_Y) or 1,
        )
    if l0_patch_xy is None:  # CLAM's feature files say nothing at all
        l0_step_xy = likely_step(l0_xy)
        l0_patch_xy = l0_step_xy
        assumed.append("l0_patch_xy")
    else:
        scale = (
            l0_mag / target_mag
            if l0_mag and target_mag
            else l0_patch_xy[0] / (patch_size or l0_patch_xy[0])
        )
        l0_overlap = round(overlap * scale)
        l0_step_xy = (
            max(1, l0_patch_xy[0] - l0_overlap),
            max(1, l0_patch_xy[1] - l0_overlap),
        )
    l0_width, l0_height = whole(layout.L0_WIDTH), whole(layout.L0_HEIGHT)
    origin = np.ravel(said.get(layout.GRID_ORIGIN, (0, 0)))
    ours = layout.SPT_VERSION in said
    theirs = "TRIDENT" if layout.PATCH_SIZE_L0 in said else "CLAM"
    return TokenFacts(
        name=path.name.removesuffix(layout.ENDING),
        source=layout.OURS if ours else theirs,
        encoder=encoder,
        encoder_sha256=text(layout.ENCODER_SHA256),
        mpp=mpp,
        patch_size=patch_size,
        patch_um=number(layout.PATCH_UM)
        or (mpp * patch_size if mpp and patch_size else None),
        stain=text(layout.STAIN),
        stain_done=text(layout.STAIN_DONE),
        channels=text(layout.CHANNELS),
        channels_done=text(layout.CHANNELS_DONE),
        l0_patch_xy=l0_patch_xy,
        l0_step_xy=l0_step_xy,
        l0_size_xy=(l0_width, l0_height) if l0_width and l0_height else None,
        l0_magnification=l0_mag,
        target_magnification=target_mag,
        overlap=overlap,
        slide_fingerprint=text(layout.SLIDE_FINGERPRINT),
        scanner=text(layout.SCANNER),
        g_origin=(int(origin[0]), int(origin[1])),
        spt_version=text(layout.SPT_VERSION),
        has_positions=bool(said.get(layout.HAS_POSITIONS, True)),
        assumed=tuple(assumed),
    )


def _folder_facts(path: Path) -> dict[str, str]:
    """What TRIDENT's folder names say: ``20x_256px_0px_overlap/features_uni_v1``."""
    facts: dict[str, str] = {}
    folder = path.absolute().parent
    if match := re.fullmatch(r"(?:slide_)?features_(\w[\w.-]*)", folder.name):
        facts["encoder"] = match[1]
    for name in (folder.name, folder.parent.name):
        match = _TRIDENTS.match(name)
        if match and float(match[1]) and int(match[2]):
            facts["magnification"] = match[1]
            facts["patch_size"] = match[2]
            facts["overlap"] = match[3]
            break
    return facts


def _complete(facts: TokenFacts, **given: Any) -> TokenFacts:
    """Fill in what the file does not state; contradict nothing that it does."""
    for name, value in given.items():
        if value is None:
            continue
        if getattr(facts, name) is None or name in facts.assumed:
            rest = tuple(fact for fact in facts.assumed if fact != name)
            facts = replace(facts, **{name: value}, assumed=rest)
        elif facts.differences(replace(facts, **{name: value})):
            raise InputError(
                f"{facts.name} states {name} {getattr(facts, name)}, not {value}. "
                "Leave the option out, or give the folder it belongs to."
            )
    return facts
