"""Options of commands, made from settings classes and their hints."""

import argparse
from collections.abc import Mapping
from dataclasses import MISSING
from pathlib import Path
from typing import Any, TypeVar

from spt_core.errors import InputError
from spt_core.hints import Setting, problems, settings_of

Settings = TypeVar("Settings")

_METAVARS = {int: "N", float: "X", str: "NAME", Path: "FILE"}


def add_options(parser: argparse._ActionsContainer, cls: type, *names: str) -> None:
    """Add the options of the named settings of a class."""
    for name in names:
        setting = settings_of(cls)[name]
        if setting.kind is bool:
            text = setting.hint.help
            parser.add_argument(
                *setting.flags,
                action="store_true",
                help=f"do not {text}" if setting.default else text,
            )
            continue
        parser.add_argument(
            *setting.flags,
            type=int if setting.is_whole else setting.kind,
            nargs=setting.length,
            default=None if setting.default is MISSING else setting.default,
            choices=setting.hint.choices or None,
            metavar=_metavar(setting),
            help=_help(setting),
        )


def settings_from(
    args: argparse.Namespace, cls: type[Settings], **others: Any
) -> Settings:
    """An object of a settings class from its options; ``others`` are taken as given.

    What is out of its range is said by the option's name.
    """
    values = option_values(args, cls)
    refuse_wrong(cls, values)
    return cls(**{**values, **others})


def option_values(args: argparse.Namespace, cls: type) -> dict[str, Any]:
    """Values of those settings of a class that are options of the command."""
    values = {}
    for name, setting in settings_of(cls).items():
        dest = _dest(setting)
        if hasattr(args, dest):
            value = getattr(args, dest)
            is_off = setting.kind is bool and setting.default
            value = not value if is_off else value
            values[name] = tuple(value) if isinstance(value, list) else value
    return values


def refuse_wrong(cls: type, values: Mapping[str, Any]) -> None:
    flags = {name: setting.flags[0] for name, setting in settings_of(cls).items()}
    if wrong := problems(cls, values, flags):
        raise InputError(" ".join(wrong))


def _dest(setting: Setting) -> str:
    return setting.flags[0].lstrip("-").replace("-", "_")


def _metavar(setting: Setting) -> str | tuple[str, ...] | None:
    hint = setting.hint
    if hint.choices or hint.metavar:
        return hint.metavar
    if hint.is_range:
        return "MIN", "MAX"
    return _METAVARS[int if setting.is_whole else setting.kind]


def _help(setting: Setting) -> str:
    notes = [f"in {setting.hint.unit}"] if setting.hint.unit else []
    default = setting.default
    if default is None:
        default = setting.hint.automatic
    elif setting.length:
        default = " ".join(f"{part:g}" for part in default)
    elif setting.kind is float:
        default = f"{default:g}"
    if default not in (None, MISSING):
        notes.append(f"default: {default}")
    text = f"{setting.hint.help} ({', '.join(notes)})" if notes else setting.hint.help
    return text.replace("%", "%%")
