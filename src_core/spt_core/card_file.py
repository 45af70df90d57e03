"""The JSON card in a safetensors file's metadata, read without its tensors or torch.

A card begins with what kind of file it is in, the format of the card and a notice; the
rest is the record of a :class:`~spt_core.learning.model_card.ModelCard` or an
:class:`~spt_core.patches.encoder_card.EncoderCard`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from spt_core.errors import InputError
from spt_core.notice import NOT_FOR_DIAGNOSIS
from spt_core.plain_data import from_json

ENDING = ".safetensors"
UNSTATED_LICENCE = "Unstated: the owner of the training data decides."
_KEY = "card"


@dataclass(frozen=True)
class DataSource:
    """Data that weights were made from.

    Attributes
    ----------
    name
        What it is, and how much.
    licence
        On which terms it may be used.
    use
        What for: start, training.
    attribution
        Whom to name.
    """

    name: str
    licence: str = ""
    use: str = ""
    attribution: str = ""


def read_record(path: Path) -> dict[str, Any] | None:
    """The whole card of a safetensors file; None where it has none.

    Raises
    ------
    InputError
        Where there is no such file, or it is of another format or damaged.
    """
    if not path.is_file():
        raise InputError(f"There is no file {path}.")
    try:
        with safe_open(path, "np") as file:
            metadata = file.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise InputError(
            f"{path.name} is not a safetensors file or is damaged ({error})."
        ) from error
    try:
        # NaN is no JSON, and no number either: a field that needs one lacks it.
        card = from_json(metadata[_KEY], parse_constant=lambda _: None)
    except KeyError:
        return None
    except ValueError as error:
        raise InputError(f"{path.name}: its card cannot be read ({error}).") from error
    return card if isinstance(card, dict) else None


def without_header(
    path: Path, record: Mapping[str, Any], newest: int
) -> dict[str, Any]:
    """A card without its first words, once its format is known to be readable.

    Parameters
    ----------
    newest
        The newest format that can be read. A card that states none counts as format 0,
        which has the same fields as format 1.
    """
    stated = record.get("format", 0)
    if not isinstance(stated, int) or isinstance(stated, bool):
        raise InputError(
            f"{path.name}: the card's format is {stated!r}, not a whole number."
        )
    if stated > newest:
        raise InputError(
            f"{path.name} was written by a newer version of napari-spt "
            f"({record.get('version')}). Update napari-spt to use it."
        )
    header = ("kind", "format", "notice")
    return {name: value for name, value in record.items() if name not in header}


def metadata(kind: str, newest: int, record: Mapping[str, Any]) -> dict[str, str]:
    """What a safetensors file's metadata holds of a card."""
    header = {"kind": kind, "format": newest, "notice": NOT_FOR_DIAGNOSIS}
    return {_KEY: json.dumps({**header, **record}, ensure_ascii=False)}
