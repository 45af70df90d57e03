"""``config.yaml``: what a training run was asked to do."""

from pathlib import Path
from typing import Any

import yaml

from spt_core.errors import InputError


def read_config(path: Path) -> Any:
    """What a run's folder says it was asked, as plain data."""
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(
            f"{path.parent} is not a training run: it has no {path.name}."
        ) from None
