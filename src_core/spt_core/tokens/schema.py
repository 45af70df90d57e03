"""What a feature file must be before anything of it is used.

The file may come from anywhere: nothing is read that lies in another file, nothing is
believed that needs more memory than the file itself accounts for.
"""

import math
from collections.abc import Mapping
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from spt_core.errors import InputError
from spt_core.tokens import layout

# A longer token, or farther pixel, is nobody's.
_LONGEST_TOKEN = 2**17
_FARTHEST = 2**40
# Cells of a slide's lattice: maps have so many pixels. A large slide of small patches
# has some ten million.
_CELLS, _CELLS_PER_TOKEN = 2**26, 4096
# What deflate can make of a byte, and what a file may leave to its fill value.
_MOST_PACKED, _FREE_BYTES = 1100, 2**20
_LONGEST_ATTRIBUTE = 2**16

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
}
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


def check_datasets(name: str, file: h5py.File) -> None:
    """Refuse a file whose datasets are not its own, or not of the right kind."""
    for one in (layout.FEATURES, layout.COORDS, layout.GRID):
        key = one.encode()
        if key not in file.id:
            continue
        if file.id.links.get_info(key).type != h5py.h5l.TYPE_HARD:
            raise InputError(f"{name}: '{one}' is a link. {_USE_A_WHOLE_FILE}")
        if file.get(one, getclass=True) is not h5py.Dataset:
            raise InputError(f"{name}: '{one}' is no table of numbers.")
        dataset = h5py.h5d.open(file.id, key)
        plan = dataset.get_create_plist()
        is_virtual = plan.get_layout() == h5py.h5d.VIRTUAL
        if is_virtual or plan.get_external_count():
            raise InputError(
                f"{name}: '{one}' lies in another file. {_USE_A_WHOLE_FILE}"
            )
        _check_size(name, one, dataset)
    features = h5py.h5d.open(file.id, layout.FEATURES.encode())
    if features.dtype.kind != "f" or features.dtype.itemsize not in (2, 4, 8):
        raise InputError(f"{name}: 'features' are not floating-point numbers.")
    if not 0 < features.shape[-1] <= _LONGEST_TOKEN:
        raise InputError(f"{name}: tokens of {features.shape[-1]} numbers are none.")
    for one in (layout.COORDS, layout.GRID):
        if one.encode() not in file.id:
            continue
        pairs = h5py.h5d.open(file.id, one.encode())
        if pairs.dtype.kind not in "iuf":
            raise InputError(f"{name}: '{one}' are not numbers.")
        if len(pairs.shape) < 2 or pairs.shape[-1] != 2:
            raise InputError(f"{name}: '{one}' is {pairs.shape}, not (n, 2).")


_USE_A_WHOLE_FILE = "Use a file that holds its numbers itself."


def _check_size(name: str, one: str, dataset: h5py.h5d.DatasetID) -> None:
    """Refuse numbers that the file has no bytes for."""
    stated = math.prod(dataset.shape) * dataset.dtype.itemsize
    stored = dataset.get_storage_size()
    if stated > stored * _MOST_PACKED + _FREE_BYTES:
        raise InputError(
            f"{name}: '{one}' should be {dataset.shape}, but most of it is missing. "
            "Encode this slide again."
        )


def check_attributes(name: str, said: Mapping[str, Any]) -> None:
    """Refuse facts that no slide has."""
    for one, (least, most) in _PLAUSIBLE.items():
        if one not in said:
            continue
        try:
            value = float(np.ravel(said[one])[0])
        except (TypeError, ValueError, IndexError, OverflowError):
            value = math.nan
        if not least <= value <= most:
            raise InputError(
                f"{name}: its {one} is {_short(said[one])}, which no slide has. Encode "
                "this slide again."
            )
    for one in _TEXTS:
        if one in said and not isinstance(said[one], str | bytes):
            raise InputError(f"{name}: its {one} is {_short(said[one])}, not text.")
    origin = said.get(layout.GRID_ORIGIN)
    if origin is not None:
        origin = np.ravel(origin)
        if len(origin) != 2 or origin.dtype.kind not in "iu":
            raise InputError(f"{name}: its {layout.GRID_ORIGIN} is no (row, col).")


def is_short(attribute: h5py.h5a.AttrID) -> bool:
    """Whether an attribute is as small as ours are; others are not read."""
    return attribute.get_storage_size() <= _LONGEST_ATTRIBUTE


def check_places(name: str, what: str, pairs: NDArray) -> None:
    """Refuse places (n, 2) that are not on any slide."""
    if not len(pairs):
        return
    if pairs.dtype.kind == "f" and not np.isfinite(pairs).all():
        raise InputError(f"{name}: '{what}' hold NaN or infinity. {_AGAIN}")
    if max(abs(float(pairs.min())), abs(float(pairs.max()))) > _FARTHEST:
        raise InputError(f"{name}: '{what}' lie on no slide. {_AGAIN}")


_AGAIN = "Encode this slide again."


def check_lattice(name: str, p: NDArray[np.int64]) -> None:
    """Refuse cells (n, 2) that are spread over a lattice too large for any slide."""
    if not len(p):
        return
    rows, cols = (int(n) + 1 for n in p.max(axis=0) - p.min(axis=0))
    if int(p.min()) < 0 or rows * cols > max(_CELLS, _CELLS_PER_TOKEN * len(p)):
        raise InputError(
            f"{name}: its {len(p)} patches lie on a grid of {rows} × {cols}, which is "
            "larger than any slide's. If the file does not state the size of a patch, "
            "add patch_size_level0; else encode this slide again."
        )


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:40]}…"
