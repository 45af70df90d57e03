"""Reading a ``.pt`` of tensors and plain data without torch, and without running it.

Such a file is an uncompressed zip: a pickle of what it holds, and each tensor's numbers
as plain bytes, so that rows can be read where they lie.
"""

import pickle
import zipfile
from collections import OrderedDict
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from spt_core.errors import InputError

_DTYPES = {
    "FloatStorage": "<f4",
    "DoubleStorage": "<f8",
    "HalfStorage": "<f2",
    "LongStorage": "<i8",
    "IntStorage": "<i4",
    "ShortStorage": "<i2",
    "CharStorage": "i1",
    "ByteStorage": "u1",
    "BoolStorage": "?",
}


@dataclass(frozen=True)
class StoredTensor:
    """Where a contiguous tensor lies in its file."""

    path: Path
    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype

    def read(self) -> np.ndarray:
        count = int(np.prod(self.shape, dtype=np.int64))
        whole = np.fromfile(self.path, self.dtype, count, offset=self.offset)
        return whole.reshape(self.shape)


def read_torch_file(path: Path) -> Any:
    """What a ``.pt`` holds, with a :class:`StoredTensor` for each tensor.

    Raises
    ------
    InputError
        Where it is of another form, damaged, or holds more than plain data.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            inside = next(n for n in archive.namelist() if n.endswith("/data.pkl"))
            places = _places(path, archive, inside.removesuffix("data.pkl"))
            return _Reader(BytesIO(archive.read(inside)), path, places).load()
    except FileNotFoundError:
        raise InputError(f"There is no file {path}.") from None
    except InputError:
        raise
    # A pickle can be wrong in any way.
    except Exception as error:
        raise InputError(
            f"{path.name} cannot be read as tensors ({error}). A .pt is read where "
            "torch 1.6 or newer wrote it and it holds tensors and plain data alone."
        ) from error


def _places(path: Path, archive: zipfile.ZipFile, folder: str) -> dict[str, int]:
    """The byte at which each tensor's numbers begin."""
    found = {}
    with path.open("rb") as file:
        for entry in archive.infolist():
            if not entry.filename.startswith(f"{folder}data/"):
                continue
            if entry.compress_type != zipfile.ZIP_STORED:
                raise ValueError("its tensors are compressed")
            file.seek(entry.header_offset + 26)
            lengths = np.frombuffer(file.read(4), "<u2")
            start = entry.header_offset + 30 + int(lengths.sum())
            found[entry.filename.removeprefix(f"{folder}data/")] = start
    return found


class _Reader(pickle.Unpickler):
    """Knows tensors, lists, tables and numbers; nothing else is ever called."""

    def __init__(self, content: BytesIO, path: Path, places: dict[str, int]) -> None:
        super().__init__(content, encoding="utf-8")
        self._path, self._places = path, places

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return self._tensor
        if (module, name) == ("torch._utils", "_rebuild_parameter"):
            return lambda tensor, *rest: tensor
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if module == "torch" and name.endswith("Storage"):
            return name
        raise pickle.UnpicklingError(f"it holds {module}.{name}, which is not data")

    def persistent_load(self, pid: Any) -> tuple[np.dtype, int]:
        _, kind, key, *_ = pid
        if kind not in _DTYPES:
            raise pickle.UnpicklingError(f"{kind} is not read: save it as float32")
        return np.dtype(_DTYPES[kind]), self._places[str(key)]

    def _tensor(
        self,
        storage: tuple[np.dtype, int],
        first: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        *rest: Any,
    ) -> StoredTensor:
        dtype, offset = storage
        tight, run = [], 1
        for side in reversed(shape):
            tight.append(run)
            run *= side
        if run > 1 and any(
            have != want and side > 1
            for have, want, side in zip(strides, reversed(tight), shape, strict=True)
        ):
            raise pickle.UnpicklingError("a tensor in it is not contiguous")
        return StoredTensor(
            self._path, offset + first * dtype.itemsize, tuple(shape), dtype
        )
