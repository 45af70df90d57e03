"""What the plugin remembers between sessions: a small JSON file, plain data only."""

import json
import logging
import os
from pathlib import Path
from typing import Any

from platformdirs import user_config_dir

from spt_core.files import written_whole

_log = logging.getLogger(__name__)


def settings_file() -> Path:
    """Path of the settings; NAPARI_SPT_CONFIG may name another folder."""
    folder = os.environ.get("NAPARI_SPT_CONFIG") or user_config_dir("napari-spt", False)
    return Path(folder) / "settings.json"


def kinds_folder() -> Path:
    """Where kinds of tissue are kept, with the names that they were given."""
    return settings_file().parent / "kinds"


def remembered(key: str, default: Any = None) -> Any:
    return _load().get(key, default)


def remember(key: str, value: Any) -> None:
    _save({**_load(), key: value})


def forget(key: str) -> None:
    settings = _load()
    if settings.pop(key, None) is not None:
        _save(settings)


def _save(settings: dict[str, Any]) -> None:
    with written_whole(settings_file(), private=True) as temporary:
        temporary.write_text(json.dumps(settings, indent=2), encoding="utf-8")


def _load() -> dict[str, Any]:
    try:
        settings = json.loads(settings_file().read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        _log.warning("The settings are not readable and start from scratch: %s", error)
        return {}
    return settings if isinstance(settings, dict) else {}
