"""A study's settings as the command that asks for them."""

import os
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from typing import Any

from spt_core.hints import Setting, settings_of
from spt_core.studies.study_settings import StudySettings

# What the study's own options of the same name stand for.
_NOT_OF_ENCODING = ("batch_size", "device", "readers", "lanes", "threads", "redo")


def study_arguments(settings: StudySettings) -> list[str]:
    """The arguments after ``spt study``; what is as it would be anyway is left out."""
    found = [settings.out]
    parts: list[tuple[Any, tuple[str, ...]]] = [
        (settings, ("out",)),
        (settings.encode, _NOT_OF_ENCODING),
        (settings.views, ("views",)),
        (settings.details, ()),
    ]
    for part, left_out in parts:
        kind: type = type(part)
        for name, setting in settings_of(kind).items():
            value = getattr(part, name)
            if name not in left_out and value != setting.default:
                found += _option(setting, value)
    return found


def study_command(settings: StudySettings) -> str:
    """The whole command, as it is typed on this system."""
    parts = ["spt", "study", *study_arguments(settings)]
    return as_typed(parts)


def command_to_share(words: Sequence[str], out: str) -> str:
    """A command that was given, for a report: words stand for places on this computer.

    Folders are called after users, hospitals and cases.

    Parameters
    ----------
    out
        The folder that is written, which need not be there yet.
    """
    parts, stands_for = ["spt", *words[:1]], "FOLDER"
    for word in words[1:]:
        name, is_given, value = word.rpartition("=")
        if value == out or "/" in value or "\\" in value or os.path.exists(value):
            word = f"{name}{is_given}{name.lstrip('-').upper() or stands_for}"
        parts.append(word)
        if word.startswith("--"):
            stands_for = word.lstrip("-").upper()
    return shlex.join(parts)


def as_typed(parts: Sequence[str]) -> str:
    return subprocess.list2cmdline(parts) if os.name == "nt" else shlex.join(parts)


def _option(setting: Setting, value: Any) -> Iterator[str]:
    if value is None:  # what nothing on a command line asks for
        return
    yield setting.flags[0]
    if setting.kind is bool:
        return
    for one in value if setting.length else (value,):
        yield _number(one) if isinstance(one, float) else str(one)


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() and abs(value) < 1e9 else repr(value)
