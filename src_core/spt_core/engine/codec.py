"""Messages on the wire: a line of JSON each, and their arrays as files.

The types of :mod:`spt_core.engine.protocol` are the whole description: what does not
fit their fields is refused, by whoever sends it and by whoever reads it.
"""

import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import fields
from enum import StrEnum
from functools import cache
from pathlib import Path
from threading import Lock
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from spt_core.engine.protocol import Message

PutArray = Callable[[str, NDArray], str]
TakeArray = Callable[[str], NDArray]

_TYPES: dict[str, type] = {one.__name__: one for one in get_args(Message)}
_ENVELOPE = {"id", "type", "value"}
_ARRAY = "npy"


class ProtocolError(ValueError):
    """A message is not what its type says.

    Attributes
    ----------
    request, message_type
        Of the message, where that much could be read.
    """

    def __init__(
        self,
        reason: str,
        request: int | None = None,
        message_type: type | None = None,
    ) -> None:
        super().__init__(reason)
        self.request = request
        self.message_type = message_type


def encode(message: Message, request: int | None, put_array: PutArray) -> bytes:
    """A message as a line; ``put_array`` gets a field's name and leaves the array.

    Parameters
    ----------
    request
        The number of the request that the message is, or answers; None for neither.
    """
    name = type(message).__name__
    if _TYPES.get(name) is not type(message):
        raise ProtocolError(f"{name} is no message.")
    value = _write(type(message), message, name, put_array)
    return json.dumps({"id": request, "type": name, "value": value}).encode() + b"\n"


def decode(line: bytes, take_array: TakeArray) -> tuple[int | None, Message]:
    """The request's number and the message of a line; its arrays are taken."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ProtocolError("This is no JSON, or too deep.") from error
    if not isinstance(record, dict) or set(record) != _ENVELOPE:
        raise ProtocolError("A message has an id, a type and a value.")
    request, name = record["id"], record["type"]
    if request is not None and not _is_int(request):
        raise ProtocolError("The number of a request is a whole number.")
    kind = _TYPES.get(name) if isinstance(name, str) else None
    try:
        if kind is None:
            raise ProtocolError("There is no message of this type.")
        return request, _read(kind, record["value"], kind.__name__, take_array)
    except ProtocolError as error:
        error.request, error.message_type = request, kind
        raise
    # A value that its type takes, and then does not: a number too large, say.
    except (ValueError, TypeError, ArithmeticError, RecursionError) as error:
        raise ProtocolError(f"{name}: {error}", request, kind) from error


class ArrayFolder:
    """A private folder through which two processes hand arrays to each other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = Lock()
        self._count = 0

    def put(self, name: str, values: NDArray) -> str:
        """Leave an array, whole or not at all; give the name of its file."""
        with self._lock:
            self._count += 1
            file_name = f"{os.getpid()}-{self._count}-{name}.npy"
        temporary = self.folder / f".{file_name}"
        # It may be gone: some systems tidy what lies for days.
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            np.save(temporary, np.ascontiguousarray(values), allow_pickle=False)
            os.replace(temporary, self.folder / file_name)
        finally:
            temporary.unlink(missing_ok=True)
        return file_name

    def take(self, name: str) -> NDArray:
        """Read an array and remove its file."""
        path = self.folder / Path(name).name
        values: NDArray = np.load(path, allow_pickle=False)
        path.unlink(missing_ok=True)
        return values

    def clear(self) -> None:
        """Remove what nobody will read any more, and the folder with it."""
        for pattern in ("*.npy", "*.log"):  # the window logs beside the arrays
            for path in self.folder.glob(pattern):
                with suppress(OSError):
                    path.unlink()
        with suppress(OSError):
            self.folder.rmdir()


@cache
def _fields(kind: type) -> dict[str, Any]:
    """The fields of a dataclass, with their types."""
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}


def _write(hint: Any, value: Any, where: str, put: PutArray) -> Any:
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return _one_of(args, value is None, lambda arg: _write(arg, value, where, put))
    if origin is tuple:
        hints = _item_hints(args, value, where)
        return [
            _write(item_hint, item, f"{where}[{i}]", put)
            for i, (item_hint, item) in enumerate(zip(hints, value, strict=True))
        ]
    if origin is not None and issubclass(origin, Mapping):
        _check_mapping(value, where)
        return {
            key: _write(args[1], item, f"{where}[{key!r}]", put)
            for key, item in value.items()
        }
    if origin is np.ndarray:
        _check_array(hint, value, where)
        return {_ARRAY: put(where.rpartition(".")[2].partition("[")[0], value)}
    if isinstance(value, np.generic):
        value = value.item()
    if issubclass(hint, StrEnum | Path):
        _check(isinstance(value, hint), hint, value, where)
        return str(value)
    if hint in _PLAIN:
        return _plain(hint, value, where)
    _check(type(value) is hint, hint, value, where)
    return {
        name: _write(field_hint, getattr(value, name), f"{where}.{name}", put)
        for name, field_hint in _fields(hint).items()
    }


def _read(hint: Any, data: Any, where: str, take: TakeArray) -> Any:
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return _one_of(args, data is None, lambda arg: _read(arg, data, where, take))
    if origin is tuple:
        hints = _item_hints(args, data, where)
        return tuple(
            _read(item_hint, item, f"{where}[{i}]", take)
            for i, (item_hint, item) in enumerate(zip(hints, data, strict=True))
        )
    if origin is not None and issubclass(origin, Mapping):
        _check_mapping(data, where)
        return {
            key: _read(args[1], item, f"{where}[{key!r}]", take)
            for key, item in data.items()
        }
    if origin is np.ndarray:
        return _taken(hint, data, where, take)
    if issubclass(hint, StrEnum):
        try:
            return hint(data)
        except ValueError:
            raise ProtocolError(f"{where}: no {hint.__name__} is so named.") from None
    if issubclass(hint, Path):
        _check(isinstance(data, str), hint, data, where)
        return Path(data)
    if hint in _PLAIN:
        return _plain(hint, data, where)
    expected = _fields(hint)
    _check(isinstance(data, dict), hint, data, where)
    if differ := set(data) ^ set(expected):
        raise ProtocolError(f"{where}: missing or unknown: {', '.join(sorted(differ))}")
    values = {
        name: _read(field_hint, data[name], f"{where}.{name}", take)
        for name, field_hint in expected.items()
    }
    return hint(**values)


_PLAIN = (NoneType, bool, int, float, str)


def _plain(hint: type, value: Any, where: str) -> Any:
    if hint is float and _is_int(value):
        return float(value)
    fits = _is_int(value) if hint is int else isinstance(value, hint)
    _check(fits, hint, value, where)
    return value


def _one_of(
    hints: tuple[Any, ...], is_none: bool, convert: Callable[[Any], Any]
) -> Any:
    """The first of a union's types that fits; the errors of the last are told."""
    choices = [one for one in hints if (one is NoneType) == is_none] or list(hints)
    for hint in choices[:-1]:
        with suppress(ProtocolError):
            return convert(hint)
    return convert(choices[-1])


def _item_hints(args: tuple[Any, ...], items: Any, where: str) -> tuple[Any, ...]:
    _check(isinstance(items, tuple | list), tuple, items, where)
    if args[-1] is ...:
        return (args[0],) * len(items)
    if len(items) != len(args):
        raise ProtocolError(f"{where}: {len(args)} values are needed.")
    return args


def _check_mapping(value: Any, where: str) -> None:
    _check(isinstance(value, Mapping), Mapping, value, where)
    for key in value:
        _check(isinstance(key, str), str, key, where)


def _taken(hint: Any, data: Any, where: str, take: TakeArray) -> NDArray:
    if not isinstance(data, dict) or set(data) != {_ARRAY}:
        raise ProtocolError(f"{where}: an array is needed.")
    _check(isinstance(data[_ARRAY], str), str, data[_ARRAY], where)
    try:
        values = take(data[_ARRAY])
    # What numpy's reader raises depends on where the file is wrong.
    except Exception as error:
        raise ProtocolError(f"{where}: {error}") from error
    _check_array(hint, values, where)
    return values


def _check_array(hint: Any, value: Any, where: str) -> None:
    _check(isinstance(value, np.ndarray), np.ndarray, value, where)
    (scalar,) = get_args(get_args(hint)[1])
    for kind in (np.bool_, np.integer, np.floating):
        # Its precision is the sender's business.
        if issubclass(scalar, kind) and not np.issubdtype(value.dtype, kind):
            raise ProtocolError(f"{where}: {scalar.__name__}, not {value.dtype}.")


def _check(fits: bool, hint: Any, value: Any, where: str) -> None:
    if not fits:
        found = type(value).__name__
        raise ProtocolError(f"{where}: {hint.__name__} is needed, not {found}.")


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
