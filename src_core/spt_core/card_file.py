"""The JSON card in a safetensors file's metadata, read without its tensors or torch."""

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from spt_core.errors import InputError


def stated_card(path: Path) -> dict[str, Any] | None:
    """The card of a safetensors file; None where it has none.

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
        card = json.loads(metadata["card"])
    except (KeyError, json.JSONDecodeError):
        return None
    return card if isinstance(card, dict) else None
