"""The command that makes a report again, without a name that identifies anyone."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from spt_core import bundled

# These stand for files in the command: file names may identify whose slide it is.
SLIDE_WORD, FEATURES_WORD = "SLIDE", "FEATURES.h5"
_FILES = {SLIDE_WORD: "the slide's file", FEATURES_WORD: "its features"}


def command_again(model: Path, source: str, options: Sequence[str] = ()) -> str:
    """The command that makes a report again, once ``source`` is put in.

    The bundled model needs no name.
    """
    own = Path(bundled.__file__).resolve().with_name(bundled.SLIDE_MODEL_FILE)
    named = [] if model.resolve() == own else [model.name]
    words = ["spt", "heatmap", *named, source, "--out", "report.html", *options]
    return shlex.join(words)


def what_to_put_in(command: str) -> str:
    """Which files stand for which words of a command; empty where none do."""
    words = shlex.split(command)
    return " and ".join(
        f"{what} for {word}" for word, what in _FILES.items() if word in words
    )
