"""JSON and arrays that anybody may have written: whatever is wrong is a ValueError."""

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spt_core.files import refuse_no_file

_LONGEST = 2**28


def from_json(text: str | bytes, **options: Any) -> Any:
    """What a JSON text states, once: too deep, or two things of one name, is wrong."""
    try:
        return json.loads(text, object_pairs_hook=_table, **options)
    except RecursionError:
        raise ValueError("it is too deep") from None


def _table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for name, value in pairs:
        if name in table:
            raise ValueError(f"it states {name[:40]!r} twice")
        table[name] = value
    return table


def json_of(path: Path) -> Any:
    """What a JSON file states.

    Raises
    ------
    OSError
        Where it cannot be read.
    ValueError
        Where it is no JSON, or none that we would write.
    """
    refuse_no_file(path)
    with path.open("rb") as file:
        data = file.read(_LONGEST + 1)
    if len(data) > _LONGEST:
        raise ValueError("it is too long")
    return from_json(data.decode("utf-8-sig"))


def arrays_of(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of an ``.npz`` file as we write them: not packed, and no objects.

    Raises
    ------
    OSError
        Where it cannot be read.
    ValueError
        Where it is damaged, or states more than it holds.
    """
    refuse_no_file(path)
    try:
        with zipfile.ZipFile(path) as archive:
            packed = {entry.compress_type for entry in archive.infolist()}
            if packed - {zipfile.ZIP_STORED}:
                raise ValueError("its arrays are packed")
        with np.load(path, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
            if not all(isinstance(one, np.ndarray) for one in arrays.values()):
                raise ValueError("it holds what is no array")
            return arrays
    except OSError:
        raise
    # Zip, numpy and the headers of its arrays have errors of their own.
    except Exception as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error
