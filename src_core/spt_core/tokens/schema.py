"""What a feature file must be before anything of it is used.

The file may come from anywhere: nothing is read that lies in another file, nothing is
believed that needs more memory than the file itself accounts for.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from spt_core.errors import InputError
from spt_core.tokens import layout
from spt_core.tokens.tokens import TokenFacts

# A longer token, or farther pixel, is nobody's.
_LONGEST_TOKEN = 2**17
_FARTHEST = 2**40
# Cells of a slide's lattice: maps have so many pixels. A large slide of small patches
# has some ten million.
_CELLS, _CELLS_PER_TOKEN = 2**26, 4096
# What deflate can make of a byte, and what a file may leave to its fill value.
_MOST_PACKED, _FREE_BYTES = 1100, 2**20
_LONGEST_ATTRIBUTE = 2**16
_LONGEST_TEXT = 1000
# Places in other tools' files lie up to half a step from their cells.
_OFF_BY = 1.01
# How far two statements of one size may be apart.
_ALIKE = 1.05
_AGAIN = "Encode this slide again."

# attribute: least and most
_PLAUSIBLE: dict[str, tuple[float, float]] = {
    layout.MPP: (1e-3, 1e3),
    layout.PATCH_UM: (1e-3, 1e7),
    layout.PATCH_SIZE: (1, 2**20),
    layout.PATCH_SIZE_L0: (1, 2**24),
    layout.PATCH_SIZE_L0_X: (1, 2**24),
    layout.PATCH_SIZE_L0_Y: (1, 2**24),
    layout.L0_MAGNIFICATION: (1e-3, 1e4),
    layout.TARGET_MAGNIFICATION: (1e-3, 1e4),
    layout.OVERLAP: (0, 2**20),
    layout.L0_WIDTH: (1, _FARTHEST),
    layout.L0_HEIGHT: (1, _FARTHEST),
    # STAMP's and CLAM's
    "tile_size": (1e-3, 1e7),
    "tile_size_um": (1e-3, 1e7),
    "tile_size_px": (1, 2**20),
    "downsample": (1e-3, 1e4),
    "custom_downsample": (0, 1e4),
}
_PAIRS = ("downsample",)  # CLAM's, of x and y
_TEXTS = (
    layout.ENCODER,
    layout.ENCODER_SHA256,
    layout.STAIN,
    layout.STAIN_DONE,
    layout.CHANNELS,
    layout.CHANNELS_DONE,
    layout.SLIDE_FINGERPRINT,
    layout.SCANNER,
    layout.SPT_VERSION,
)


def check_datasets(
    name: str,
    file: h5py.File,
    features: str | None = layout.FEATURES,
    places: Sequence[str] = (layout.COORDS, layout.GRID),
) -> None:
    """Refuse a file whose datasets are not its own, or not of the right kind."""
    places = [one for one in places if one.encode() in file.id]
    for one in (features, *places):
        if one is None:
            continue
        key = one.encode()
        if file.id.links.get_info(key).type != h5py.h5l.TYPE_HARD:
            raise InputError(f"{name}: '{one}' is a link. {_USE_A_WHOLE_FILE}")
        if file.get(one, getclass=True) is not h5py.Dataset:
            raise InputError(f"{name}: '{one}' is no table of numbers.")
        dataset = h5py.h5d.open(file.id, key)
        if dataset.shape is None:
            raise InputError(f"{name}: '{one}' holds nothing. {_AGAIN}")
        plan = dataset.get_create_plist()
        is_virtual = plan.get_layout() == h5py.h5d.VIRTUAL
        if is_virtual or plan.get_external_count():
            raise InputError(
                f"{name}: '{one}' lies in another file. {_USE_A_WHOLE_FILE}"
            )
        if _holds_less(dataset, plan):
            raise InputError(f"{name}: numbers of '{one}' are missing. {_AGAIN}")
        check_size(
            name,
            one,
            dataset.shape,
            math.prod(dataset.shape) * dataset.dtype.itemsize,
            dataset.get_storage_size(),
        )
    if features is not None:
        matrix = h5py.h5d.open(file.id, features.encode())
        shape = matrix.shape
        if len(shape) == 3 and shape[0] == 1:
            shape = shape[1:]
        check_matrix(name, shape, matrix.dtype, features)
    for one in places:
        pairs = h5py.h5d.open(file.id, one.encode())
        if pairs.dtype.kind not in "iuf":
            raise InputError(f"{name}: '{one}' are not numbers.")
        if len(pairs.shape) < 2 or pairs.shape[-1] != 2:
            raise InputError(f"{name}: '{one}' is {pairs.shape}, not (n, 2).")


def _holds_less(dataset: h5py.h5d.DatasetID, plan: h5py.h5p.PropDCID) -> bool:
    """Whether a part was never written: HDF5 reads zeros there."""
    if not math.prod(dataset.shape):
        return False
    if plan.get_layout() != h5py.h5d.CHUNKED:
        return dataset.get_storage_size() == 0
    chunks = zip(dataset.shape, plan.get_chunk(), strict=True)
    wanted = math.prod(-(-side // chunk) for side, chunk in chunks)
    return dataset.get_num_chunks() < wanted


def check_matrix(
    name: str, shape: Sequence[int], dtype: np.dtype, what: str = layout.FEATURES
) -> None:
    """Refuse features that are no matrix (n, d) of floating-point numbers."""
    if len(shape) != 2:
        raise InputError(f"{name}: '{what}' is {tuple(shape)}, not (n, d).")
    if dtype.kind != "f" or dtype.itemsize not in (2, 4, 8):
        raise InputError(f"{name}: '{what}' are not floating-point numbers.")
    if not 0 < shape[1] <= _LONGEST_TOKEN:
        raise InputError(f"{name}: tokens of {shape[1]} numbers are none.")


_USE_A_WHOLE_FILE = "Use a file that holds its numbers itself."


def check_size(
    name: str, one: str, shape: Sequence[int], stated: int, stored: int
) -> None:
    """Refuse numbers that the file has no bytes for."""
    if stated > stored * _MOST_PACKED + _FREE_BYTES:
        raise InputError(
            f"{name}: '{one}' should be {tuple(shape)}, but most of it is missing. "
            "Encode this slide again."
        )


def check_attributes(name: str, said: Mapping[str, Any]) -> None:
    """Refuse facts that no slide has."""
    for one, (least, most) in _PLAUSIBLE.items():
        if one not in said:
            continue
        try:
            first, *more = np.ravel(said[one])
            is_number = not ((more and one not in _PAIRS) or np.iscomplexobj(first))
            value = float(first) if is_number else math.nan
        except (TypeError, ValueError, OverflowError):
            value = math.nan
        if not least <= value <= most:
            raise InputError(
                f"{name}: its {one} is {_short(said[one])}, which no slide has. Encode "
                "this slide again."
            )
    for one in _TEXTS:
        if one not in said:
            continue
        if not isinstance(said[one], str | bytes):
            raise InputError(f"{name}: its {one} is {_short(said[one])}, not text.")
        if len(said[one]) > _LONGEST_TEXT:
            raise InputError(f"{name}: its {one} is longer than any.")
    placed = said.get(layout.HAS_POSITIONS, True)
    if np.shape(placed) or not isinstance(placed, bool | np.bool_ | np.integer):
        raise InputError(
            f"{name}: its {layout.HAS_POSITIONS} is {_short(placed)}, not yes or no."
        )
    origin = said.get(layout.GRID_ORIGIN)
    if origin is not None:
        origin = np.ravel(origin)
        if len(origin) != 2 or origin.dtype.kind not in "iu":
            raise InputError(f"{name}: its {layout.GRID_ORIGIN} is no (row, col).")


def check_facts(name: str, facts: TokenFacts) -> None:
    """The same of what was derived from another tool's file, or from its folders."""
    said = {
        layout.MPP: facts.mpp,
        layout.PATCH_UM: facts.patch_um,
        layout.PATCH_SIZE: facts.patch_size,
        layout.PATCH_SIZE_L0_X: (facts.l0_patch_xy or (None, None))[0],
        layout.PATCH_SIZE_L0_Y: (facts.l0_patch_xy or (None, None))[1],
        layout.TARGET_MAGNIFICATION: facts.target_magnification,
    }
    check_attributes(name, {k: v for k, v in said.items() if v is not None})


def short_attributes(place: h5py.h5d.DatasetID | h5py.h5g.GroupID) -> dict[str, Any]:
    """The attributes as small as ours are; others are not read."""
    found = {}
    for index in range(h5py.h5a.get_num_attrs(place)):
        attribute = h5py.h5a.open(place, index=index)
        if attribute.shape is None or 0 in attribute.shape:
            continue
        if attribute.get_storage_size() <= _LONGEST_ATTRIBUTE:
            value = np.empty(attribute.shape, attribute.dtype)
            attribute.read(value)
            found[attribute.name.decode()] = value[()]
    # TRIDENT writes what it does not know as a word.
    return {k: v for k, v in found.items() if text_of(v) != "None"}


def text_of(value: Any) -> str | None:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return None if value is None else str(value)


def check_places(name: str, what: str, pairs: NDArray) -> None:
    """Refuse places (n, 2) that are not on any slide."""
    if not len(pairs):
        return
    if pairs.dtype.kind == "f" and not np.isfinite(pairs).all():
        raise InputError(f"{name}: '{what}' hold NaN or infinity. {_AGAIN}")
    if max(abs(float(pairs.min())), abs(float(pairs.max()))) > _FARTHEST:
        raise InputError(f"{name}: '{what}' lie on no slide. {_AGAIN}")


def check_lattice(name: str, p: NDArray[np.int64]) -> None:
    """Refuse cells (n, 2) that are spread over a lattice too large for any slide."""
    if not len(p):
        return
    if int(p.min()) < 0:
        raise InputError(f"{name}: its cells lie before its {layout.GRID_ORIGIN}.")
    rows, cols = (int(n) + 1 for n in p.max(axis=0))
    if rows * cols > max(_CELLS, _CELLS_PER_TOKEN * len(p)):
        raise InputError(
            f"{name}: its {len(p)} patches lie on a grid of {rows} × {cols}, which is "
            "larger than any slide's. If the file does not state the size of a patch, "
            "add patch_size_level0; else encode this slide again."
        )


def check_agreement(
    name: str, facts: TokenFacts, l0_xy: NDArray, g_rc: NDArray
) -> None:
    """Refuse places that contradict the cells, the step or the slide's size.

    Whichever of them is wrong, a map would be drawn where nothing was seen.
    """
    if not len(l0_xy) or not facts.has_positions:
        return
    step = np.asarray(facts.l0_step_xy or (1, 1), np.float64)
    if "l0_patch_xy" not in facts.assumed:
        beside = l0_xy - g_rc[:, ::-1] * step
        if (np.ptp(beside, axis=0) > _OFF_BY * step).any():
            raise InputError(
                f"{name}: its '{layout.COORDS}' and '{layout.GRID}' contradict each "
                f"other, or the size of a patch. {_AGAIN}"
            )
    if facts.l0_size_xy is not None:
        patch = np.asarray(facts.l0_patch_xy or (0, 0))
        outside = (l0_xy <= -patch - 1) | (l0_xy >= np.asarray(facts.l0_size_xy))
        if outside.any():
            width, height = facts.l0_size_xy
            raise InputError(
                f"{name}: {int(outside.any(axis=1).sum())} of its {len(l0_xy)} patches "
                f"lie outside of the slide of {width} × {height} px. {_AGAIN}"
            )


def check_patch(name: str, facts: TokenFacts) -> None:
    """Refuse sizes of a patch that cannot all be true."""
    size, mpp = facts.patch_size, facts.mpp
    if size and facts.overlap >= size:
        raise InputError(
            f"{name}: patches of {size} px cannot overlap by {facts.overlap}. {_AGAIN}"
        )
    if size and mpp and facts.patch_um and "mpp" not in facts.assumed:
        ratio = facts.patch_um / (size * mpp)
        if not 1 / _ALIKE <= ratio <= _ALIKE:
            raise InputError(
                f"{name}: a patch of {size} px at {mpp:g} µm is not {facts.patch_um:g} "
                f"µm wide, as it states. {_AGAIN}"
            )


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:40]}…"
