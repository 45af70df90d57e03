"""Frozen dataclasses as plain JSON records, read strictly.

A field without a default must be in the record. What a record holds beyond its fields
goes to the field made by :func:`the_rest`; a class without one refuses it.
"""

import re
import reprlib
from collections.abc import Mapping
from dataclasses import MISSING, Field, field, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from spt_core.errors import InputError

T = TypeVar("T")
_REST = "rest"
_TOO_LARGE = 2**63
# A null, and halves of characters: JSON can state them, and nothing can write them.
_UNWRITABLE = re.compile("[\0\ud800-\udfff]")
_IN_WORDS: dict[type, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
}


def the_rest() -> Any:
    """A mapping for the keys of a record that no other field has."""
    return field(default_factory=dict, metadata={_REST: True})


def to_record(value: Any) -> Any:
    """Plain data; fields that are None by default and still are, are left out."""
    if is_dataclass(value):
        record: dict[str, Any] = {}
        for one in fields(value):
            plain = to_record(getattr(value, one.name))
            if one.metadata.get(_REST):
                record |= plain
            elif plain is not None or one.default is not None:
                record[one.name] = plain
        return record
    if isinstance(value, Mapping):
        return {key: to_record(item) for key, item in value.items()}
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, list | tuple):
        return [to_record(item) for item in value]
    return value


def from_record(kind: type[T], record: Any, whose: str) -> T:
    """Make a dataclass of a record.

    Parameters
    ----------
    whose
        What the record is, for sentences: ``x.safetensors: the card``.

    Raises
    ------
    InputError
        Where a value has another type, is missing or unknown; it names the field.
    """
    return _read(kind, record, _Place(whose))


class _Place:
    """Where in a record a value stands."""

    def __init__(self, whose: str, name: str = "") -> None:
        self.whose, self.name = whose, name

    def __str__(self) -> str:
        return f"{self.whose}'s {self.name}" if self.name else self.whose

    def at(self, name: str) -> "_Place":
        return _Place(self.whose, f"{self.name}.{name}" if self.name else name)

    def refuse(self, value: Any, expected: str) -> InputError:
        return InputError(f"{self} is {reprlib.repr(value)}, not {expected}.")


@cache
def _fields(kind: Any) -> tuple[tuple[Field, Any], ...]:
    hints = get_type_hints(kind)
    return tuple((one, hints[one.name]) for one in fields(kind))


def _read(hint: Any, value: Any, place: _Place) -> Any:
    if hint is Any:
        return value
    if is_dataclass(hint):
        return _read_dataclass(hint, value, place)
    origin, args = get_origin(hint), get_args(hint)
    if origin is UnionType:
        (known,) = (one for one in args if one is not NoneType)
        return None if value is None else _read(known, value, place)
    if origin is tuple or origin is frozenset:
        return origin(_read_items(args, value, place))
    if origin is Mapping:
        if not isinstance(value, dict):
            raise place.refuse(value, "an object")
        for key in value:
            _read(str, key, place)
        return {key: _read(args[1], one, place.at(key)) for key, one in value.items()}
    fits = isinstance(value, int | float if hint is float else hint)
    if not fits or (isinstance(value, bool) and hint is not bool):
        raise place.refuse(value, _IN_WORDS[hint])
    if hint is str and _UNWRITABLE.search(value):
        raise place.refuse(value, "text without characters that no file takes")
    if hint in (int, float) and not abs(value) < _TOO_LARGE:
        raise place.refuse(value, f"{_IN_WORDS[hint]} that can be used")
    return value


def _read_items(args: tuple[Any, ...], value: Any, place: _Place) -> list[Any]:
    if not isinstance(value, list):
        raise place.refuse(value, "a list")
    if args[-1] is ... or len(args) == 1:
        hints = [args[0]] * len(value)
    elif len(value) == len(args):
        hints = list(args)
    else:
        raise place.refuse(value, f"a list of {len(args)}")
    return [
        _read(hint, item, place.at(str(number)))
        for number, (hint, item) in enumerate(zip(hints, value, strict=True))
    ]


def _read_dataclass(kind: Any, record: Any, place: _Place) -> Any:
    if not isinstance(record, dict):
        raise place.refuse(record, "an object")
    values, left, rest = {}, dict(record), None
    for one, hint in _fields(kind):
        if one.metadata.get(_REST):
            rest = one.name, hint
        elif one.name in left:
            values[one.name] = _read(hint, left.pop(one.name), place.at(one.name))
        elif one.default is MISSING and one.default_factory is MISSING:
            raise InputError(f"{place.whose} lacks {place.at(one.name).name}.")
    if rest is not None:
        values[rest[0]] = _read(rest[1], left, place)
    elif left:
        raise InputError(
            f"{place.at(min(left))} is unknown to this version of napari-spt: update "
            "napari-spt to use the file."
        )
    try:
        return kind(**values)
    except InputError as error:
        raise InputError(f"{place}: {error}") from error
