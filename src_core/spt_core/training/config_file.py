"""``config.yaml``: what a training run was asked to do."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from spt_core.errors import InputError
from spt_core.files import refuse_no_file

# Settings have some hundred lines; a list in a list takes the reader ever longer.
_LONGEST, _DEEPEST = 2**20, 2000


def read_config(path: Path) -> Any:
    """What a run's folder says it was asked, as plain data."""
    refuse_no_file(path)
    try:
        text = path.read_text(encoding="utf-8")
        if len(text) > _LONGEST or max(map(text.count, "[{&*")) > _DEEPEST:
            raise ValueError("no settings are so long or so deep")
        found = yaml.safe_load(text)
    except FileNotFoundError:
        raise InputError(
            f"{path.parent} is not a training run: it has no {path.name}."
        ) from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
        said = " ".join(str(error).split())[:200]
        raise InputError(
            f"{path} is damaged: {said}. Put it back from a copy, or begin anew in "
            "another folder."
        ) from None
    if not isinstance(found, dict) or not all(isinstance(one, str) for one in found):
        raise InputError(
            f"{path} is damaged: it states no settings. Put it back from a copy, or "
            "begin anew in another folder."
        )
    return found


@contextmanager
def settings_of_file(path: Path) -> Iterator[None]:
    """Making settings of what a file states: what does not fit is a sentence."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise InputError(
            f"{path} is damaged: its settings cannot be used ({error}). Put it back "
            "from a copy, or begin anew in another folder."
        ) from None
