"""What the plugin keeps on disk: features of slides, and pictures of the window."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """Where the plugin keeps what can be made again."""
    from platformdirs import user_cache_path

    told = os.environ.get("NAPARI_SPT_CACHE")
    return Path(told) if told else user_cache_path("napari-spt", appauthor=False)


def features_folder() -> Path:
    return cache_folder() / "features"


def pictures_folder() -> Path:
    """Where pictures that are in the window alone are written to be analysed."""
    return cache_folder() / "pictures"
