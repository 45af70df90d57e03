"""``config.yaml``: what a training run was asked to do."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from spt_core.errors import InputError
from spt_core.files import refuse_no_file

# Settings have some hundred lines; a list in a list takes the reader ever longer.
_LONGEST, _DEEPEST = 2**18, 2000
_LONGEST_NUMBER = 40


class _Plain(yaml.SafeLoader):
    """Plain data, without what makes much of little: merged tables double at every
    level, and a number of thousands of parts takes minutes.
    """

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        for key, _ in node.value:
            if key.tag == "tag:yaml.org,2002:merge":
                raise yaml.constructor.ConstructorError(
                    None, None, "tables that are merged (<<) are not read"
                )

    def whole_number(self, node: yaml.ScalarNode) -> int:
        if len(node.value) > _LONGEST_NUMBER:
            raise ValueError("it holds a number that is longer than any")
        return self.construct_yaml_int(node)

    def number(self, node: yaml.ScalarNode) -> float:
        if len(node.value) > _LONGEST_NUMBER:
            raise ValueError("it holds a number that is longer than any")
        return self.construct_yaml_float(node)


_Plain.add_constructor("tag:yaml.org,2002:int", _Plain.whole_number)
_Plain.add_constructor("tag:yaml.org,2002:float", _Plain.number)


def read_config(path: Path) -> Any:
    """What a run's folder says it was asked, as plain data."""
    refuse_no_file(path)
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(_LONGEST + 1)
        if len(text) > _LONGEST or max(map(text.count, "[{&*")) > _DEEPEST:
            raise ValueError("no settings are so long or so deep")
        found = yaml.load(text, _Plain)
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
