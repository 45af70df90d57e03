"""Where encoders' weights are kept on this computer. Without torch."""

import os
from pathlib import Path

from platformdirs import user_cache_dir

from spt_core.card_file import ENDING


def encoders_folder() -> Path:
    """Where fetched weights are kept; the environment may name another folder."""
    cache = os.environ.get("NAPARI_SPT_CACHE") or user_cache_dir("napari-spt", False)
    return Path(cache) / "encoders"


def stored_file(name: str) -> Path:
    return encoders_folder() / f"{name.replace('/', '_')}{ENDING}"
