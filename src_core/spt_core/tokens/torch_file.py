"""Reading a ``.pt`` of tensors and plain data without torch, and without running it.

Such a file is an uncompressed zip: a pickle of what it holds, and each tensor's numbers
as plain bytes, so that rows can be read where they lie.
"""

import pickle
import zipfile
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, ClassVar

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
# Of the pickle alone: some hundred thousand places, each a tensor, take 20 MB.
_MOST_PICKLED = 2**25
_MOST_AXES = 8


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
            inside = next(
                (n for n in archive.namelist() if n.endswith("/data.pkl")), None
            )
            if inside is None:
                raise ValueError("it is a zip of something else")
            if archive.getinfo(inside).file_size > _MOST_PICKLED:
                raise ValueError("what it holds besides tensors is too large")
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


@dataclass(frozen=True)
class _Storage:
    """Bytes ``start`` to ``stop`` of the file, as numbers of one kind."""

    dtype: np.dtype
    start: int
    stop: int


def _places(
    path: Path, archive: zipfile.ZipFile, folder: str
) -> dict[str, tuple[int, int]]:
    """The bytes at which each tensor's numbers begin and end."""
    found = {}
    size = path.stat().st_size
    with path.open("rb") as file:
        for entry in archive.infolist():
            if not entry.filename.startswith(f"{folder}data/"):
                continue
            if entry.compress_type != zipfile.ZIP_STORED:
                raise ValueError("its tensors are compressed")
            file.seek(entry.header_offset + 26)
            lengths = np.frombuffer(file.read(4), "<u2")
            start = entry.header_offset + 30 + int(lengths.sum())
            stop = min(size, start + entry.file_size)
            found[entry.filename.removeprefix(f"{folder}data/")] = start, stop
    return found


_NOT_DATA = (
    pickle.DICT, pickle.EMPTY_SET, pickle.ADDITEMS, pickle.FROZENSET,
    pickle.BYTEARRAY8, pickle.NEWOBJ, pickle.NEWOBJ_EX, pickle.INST, pickle.OBJ,
)  # fmt: skip


class _Reader(pickle._Unpickler):
    """Knows tensors, lists, tables and numbers; nothing else is ever called.

    In Python, as torch's own reader of weights is: the one in C makes room for as many
    things as the file claims.
    """

    stack: list[Any]
    pop_mark: Any

    # Sets and old-style tables would hash whatever the file nests.
    dispatch: ClassVar[dict[int, Any]] = {
        code: load
        for code, load in pickle._Unpickler.dispatch.items()
        if bytes([code]) not in _NOT_DATA
    }

    def __init__(
        self, content: BytesIO, path: Path, places: dict[str, tuple[int, int]]
    ) -> None:
        super().__init__(content, encoding="utf-8")
        self._path, self._places = path, places

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return self._tensor
        if (module, name) == ("torch._utils", "_rebuild_parameter"):
            return lambda tensor, *rest: tensor
        if (module, name) == ("collections", "OrderedDict"):
            return lambda: {}
        if module == "torch" and name.endswith("Storage"):
            return name
        raise pickle.UnpicklingError(f"it holds {module}.{name}, which is not data")

    def persistent_load(self, pid: Any) -> _Storage:
        _, kind, key, *_ = pid
        if kind not in _DTYPES:
            raise pickle.UnpicklingError(f"{kind} is not read: save it as float32")
        return _Storage(np.dtype(_DTYPES[kind]), *self._places[str(key)])

    def _build(self) -> None:
        """Nothing is altered: what a table remembers beside its entries is left."""
        self.stack.pop()

    dispatch[pickle.BUILD[0]] = _build

    def _setitem(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self._put([key, value])

    dispatch[pickle.SETITEM[0]] = _setitem

    def _setitems(self) -> None:
        self._put(self.pop_mark())

    dispatch[pickle.SETITEMS[0]] = _setitems

    def _put(self, pairs: list[Any]) -> None:
        table = self.stack[-1]
        if not isinstance(table, dict):
            raise pickle.UnpicklingError("it fills what is no table")
        for key, value in zip(pairs[::2], pairs[1::2], strict=True):
            if not isinstance(key, str | int):
                raise pickle.UnpicklingError("a table in it has other keys than names")
            table[key] = value

    def _tensor(
        self,
        storage: _Storage,
        first: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        *rest: Any,
    ) -> StoredTensor:
        if (
            not isinstance(storage, _Storage)
            or len(shape) > _MOST_AXES
            or not all(
                isinstance(n, int) and 0 <= n < 2**48 for n in (first, *shape, *strides)
            )
        ):
            raise pickle.UnpicklingError("a tensor in it is none")
        tight, run = [], 1
        for side in reversed(shape):
            tight.append(run)
            run *= side
        if run > 1 and any(
            have != want and side > 1
            for have, want, side in zip(strides, reversed(tight), shape, strict=True)
        ):
            raise pickle.UnpicklingError("a tensor in it is not contiguous")
        start = storage.start + first * storage.dtype.itemsize
        if start + run * storage.dtype.itemsize > storage.stop:
            raise pickle.UnpicklingError(
                f"a tensor of {tuple(shape)} is not wholly there"
            )
        return StoredTensor(self._path, start, tuple(shape), storage.dtype)
