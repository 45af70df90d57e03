"""What is said of a setting, once, beside the field that it is about.

Settings classes annotate their fields with a :class:`Hint`. The options of a command,
the form in a window and the check of ranges are all made from it.
"""

import os
import reprlib
import sys
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, fields
from functools import cache
from math import isinf
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from spt_core.errors import InputError


@dataclass(frozen=True)
class Hint:
    """What a person is told of a setting, and what it may be.

    Attributes
    ----------
    help
        One line without a full stop, for ``--help`` and for a tooltip.
    label
        Its name in a window; made from the field's name where None.
    minimum, maximum, above, below
        Limits: the first two are allowed themselves, the others are not. Those of a
        tuple hold for each part.
    choices, choice_labels
        The values there are, and what a window calls them.
    unit
        As it is written after a number.
    automatic
        What None stands for.
    digits
        Decimals that matter; 0 means a whole number, or infinity.
    is_range
        A pair is a lowest and a highest value.
    advanced
        Few people ever change it.
    flags, metavar
        Its names on a command line, where it is not the field's, and its value's.
        The flag of a setting that is on by default switches it off.
    """

    help: str
    label: str | None = None
    minimum: float | None = None
    maximum: float | None = None
    above: float | None = None
    below: float | None = None
    choices: tuple[str, ...] = ()
    choice_labels: tuple[str, ...] = ()
    unit: str | None = None
    automatic: str | None = None
    digits: int = 2
    is_range: bool = False
    advanced: bool = False
    flags: tuple[str, ...] = ()
    metavar: str | tuple[str, ...] | None = None


@dataclass(frozen=True)
class Setting:
    """One field of a settings class with its hint.

    ``kind`` is the type of the value, or of each of ``length`` parts of a tuple.
    """

    name: str
    kind: type
    hint: Hint
    default: Any = MISSING
    optional: bool = False
    length: int | None = None

    @property
    def label(self) -> str:
        return self.hint.label or self.name.replace("_", " ").capitalize()

    @property
    def flags(self) -> tuple[str, ...]:
        return self.hint.flags or ("--" + self.name.replace("_", "-"),)

    @property
    def is_whole(self) -> bool:
        return self.kind is int or (self.kind is float and self.hint.digits == 0)

    def problem(self, value: Any, called: str) -> str | None:
        """What is wrong with a value, as a sentence; None where nothing is."""
        if value is None and self.optional:
            return None
        if self.hint.choices and value not in self.hint.choices:
            label = self.label[:1].lower() + self.label[1:]
            choices = ", ".join(self.hint.choices)
            return f"There is no {label} {value!r}. Choose one of: {choices}."
        if self.kind not in (int, float):
            return None
        parts: tuple[float, ...] = value if self.length else (value,)
        limits = self._limits()
        if any(_misfit(float, part) for part in parts if part == part or not limits):
            return f"{called} must be a number, not {reprlib.repr(value)}."
        if self.hint.digits and any(isinf(part) for part in parts):
            return f"{called} must be a number, not infinity."
        shown = " ".join(f"{part:g}" for part in parts)
        if not all(self._within(part) for part in parts):
            return f"{called} must be {limits}, not {shown}."
        if self.hint.is_range and list(parts) != sorted(parts):
            return f"{called} must be the lowest, then the highest value, not {shown}."
        return None

    def _within(self, value: float) -> bool:
        hint = self.hint
        return (
            (hint.minimum is None or value >= hint.minimum)
            and (hint.above is None or value > hint.above)
            and (hint.maximum is None or value <= hint.maximum)
            and (hint.below is None or value < hint.below)
        )

    def _limits(self) -> str:
        hint = self.hint
        if hint.minimum is not None and hint.maximum is not None:
            return f"a number from {hint.minimum:g} to {hint.maximum:g}"
        limits = (
            ("at least", hint.minimum),
            ("greater than", hint.above),
            ("at most", hint.maximum),
            ("less than", hint.below),
        )
        return " and ".join(f"{words} {n:g}" for words, n in limits if n is not None)


_NUMBERS: dict[Any, tuple[type, str]] = {
    int: (Integral, "a whole number"),
    float: (Real, "a number"),
}
_LARGEST_WHOLE = 2**63 - 1


def _misfit(kind: Any, value: Any) -> str | None:
    """What a value should be, where it is not of its field's type."""
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _misfit(args[0], value)
    if origin in (Union, UnionType):
        wrong = [_misfit(one, value) for one in args]
        return None if None in wrong else next(w for w in wrong if w != "nothing")
    if kind is NoneType:
        return None if value is None else "nothing"
    if origin is tuple:
        if not isinstance(value, tuple | list):
            return "a list"
        if args[-1] is ...:
            args = args[:1] * len(value)
        if len(args) != len(value):
            return f"a list of {len(args)}"
        wrong = [_misfit(one, part) for one, part in zip(args, value, strict=True)]
        return next((f"a list of {one} each" for one in wrong if one), None)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return None if isinstance(value, Mapping) else "names and values"
    if kind in _NUMBERS:
        of, words = _NUMBERS[kind]
        number: Any = value
        if not isinstance(value, of) or isinstance(value, bool):
            return words
        most = _LARGEST_WHOLE if kind is int else sys.float_info.max
        is_known = abs(number) <= most or number in (float("inf"), -float("inf"))
        return None if is_known else f"{words} that can be used"
    if kind is bool:
        return None if isinstance(value, bool) else "true or false"
    if isinstance(kind, type) and issubclass(kind, str | os.PathLike):
        return _misfit_of_text(value)
    return None


def _misfit_of_text(value: Any) -> str | None:
    if not isinstance(value, str | os.PathLike):
        return "text"
    try:
        has_null = b"\0" in os.fsencode(value)
    except ValueError:  # half a character
        has_null = True
    return "text without characters that no system takes" if has_null else None


Device = Annotated[
    str,
    Hint("where to compute: auto, cpu, cuda, cuda:1 or mps", metavar="DEVICE"),
]


@cache
def settings_of(cls: type) -> Mapping[str, Setting]:
    """The fields of a settings class that have hints, in their order."""
    types = get_type_hints(cls, include_extras=True)
    found = {}
    for field in fields(cls):
        if get_origin(types[field.name]) is not Annotated:
            continue
        kind, hint = get_args(types[field.name])
        parts = get_args(kind)
        optional = NoneType in parts
        if optional:
            (kind,) = (part for part in parts if part is not NoneType)
        length = None
        if get_origin(kind) is tuple:
            length = len(get_args(kind))
            kind = get_args(kind)[0]
        found[field.name] = Setting(
            field.name, kind, hint, field.default, optional, length
        )
    return found


def problems(
    cls: type, values: Mapping[str, Any], called: Mapping[str, str] | None = None
) -> list[str]:
    """What is wrong with values of a class's settings, a sentence for each."""
    known = settings_of(cls)
    found = (
        known[name].problem(value, (called or {}).get(name, name))
        for name, value in values.items()
        if name in known
    )
    return [problem for problem in found if problem]


def check_types(cls: type, values: Mapping[str, Any]) -> None:
    """Refuse values that are of other types than a class's fields.

    Before anything is made of what a file states: no comparison is surprised then.
    """
    wrong = [
        f"{name} is {reprlib.repr(values[name])}, not {expected}."
        for name, kind in _types(cls).items()
        if name in values and (expected := _misfit(kind, values[name]))
    ]
    if wrong:
        raise InputError(" ".join(wrong))


@cache
def _types(cls: type) -> Mapping[str, Any]:
    return get_type_hints(cls, include_extras=True)


def refuse_unknown(cls: type, names: Iterable[str]) -> None:
    """Refuse names that no field of a settings class has."""
    unknown = sorted(set(names) - {one.name for one in fields(cls)}, key=str)
    if unknown:
        shown = ", ".join(str(name)[:_LONGEST_NAME] for name in unknown[:_SHOWN])
        more = len(unknown) - _SHOWN
        also = f" and {more} more" if more > 0 else ""
        raise InputError(f"Unknown settings: {shown}{also}.")


_SHOWN, _LONGEST_NAME = 10, 40


def check(settings: Any, *conflicts: str) -> None:
    """Refuse settings out of their ranges, or for what else was found wrong."""
    wrong = [*problems(type(settings), vars(settings)), *conflicts]
    if wrong:
        raise InputError(" ".join(wrong))
