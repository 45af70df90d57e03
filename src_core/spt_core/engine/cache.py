"""The cache: where it is, what is kept, how much it takes, and making room.

A slide's features are kept under a key of its pixels, the encoder and the settings, and
never under its name. Pictures are copies of what had no file of its own. Nothing here
loads torch, or h5py before it is used: the window asks for the size itself.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from platformdirs import user_cache_path

from spt_core.errors import InputError
from spt_core.files import written_whole
from spt_core.plain_data import arrays_of
from spt_core.slides.tissue_mask import Tissue
from spt_core.tokens import layout

# What may be kept, unless the user says otherwise.
GIGABYTE = 1_000_000_000
ROOM_GB = 5

_TISSUE_ENDING = ".tissue.npz"
_KEY_LENGTH = 32
# A folder that holds anything else is somebody's, and only our files in it are ours.
_ENDINGS = (layout.ENDING, layout.PARTIAL_ENDING, _TISSUE_ENDING)


def cache_folder() -> Path:
    """Where what can be made again is kept."""
    told = os.environ.get("NAPARI_SPT_CACHE")
    return Path(told) if told else user_cache_path("napari-spt", appauthor=False)


def features_folder() -> Path:
    return cache_folder() / "features"


def pictures_folder() -> Path:
    """Where pictures that have no file are written down, to be analysed."""
    return cache_folder() / "pictures"


def maps_folder() -> Path:
    """Where maps of slides are kept, by what they were made of."""
    return cache_folder() / "maps"


def kept_bytes() -> int:
    """Bytes that kept features, pictures and maps take."""
    pictures = sum(_state(path)[0] for path in _pictures())
    return pictures + feature_cache_size(features_folder())


def make_room(limit: int) -> int:
    """Remove what was not used for longest until ``limit`` bytes suffice.

    To be called after each analysis; a limit of -1 removes all. Pictures and maps go
    first: they are quickly made again, features are not. What is being written stays.

    Returns
    -------
    Bytes that are still kept.
    """
    features = feature_cache_size(features_folder())
    sizes = {path: _state(path)[0] for path in _pictures()}
    for path in list(sizes):
        if features + sum(sizes.values()) <= limit:
            break
        with suppress(OSError):  # on Windows one that is open stays
            path.unlink(missing_ok=True)
            del sizes[path]
    pictures = sum(sizes.values())
    trim(features_folder(), -1 if limit < 0 else limit - pictures)
    return kept_bytes()


def _pictures() -> list[Path]:
    """What was used last at the end."""
    paths = [*pictures_folder().glob("*.tif"), *maps_folder().glob("*.npz")]
    return sorted(paths, key=lambda path: _state(path)[1])


@dataclass(frozen=True)
class Entry:
    """One slide's features by one encoder: the place, whether filled or not."""

    folder: Path
    key: str

    @property
    def features(self) -> Path:
        return self.folder / f"{self.key}{layout.ENDING}"

    @property
    def unfinished(self) -> Path:
        return self.folder / f"{self.key}{layout.PARTIAL_ENDING}"

    @property
    def is_finished(self) -> bool:
        """Whether whole, readable features are there; broken ones are removed."""
        from spt_core.tokens import read_index

        if not self.features.exists():
            return False
        try:
            read_index(self.features)
        except InputError:
            with suppress(OSError):
                self.features.unlink()
            return False
        return True

    def tissue(self) -> Tissue | None:
        """Where the slide's tissue is, if that was kept."""
        try:
            stored = arrays_of(self._tissue_file)
            width, height = stored["l0_scale_xy"].tolist()
            rows, cols = stored["shape"].tolist()
            bits = np.unpackbits(stored["mask"], count=rows * cols)
            mask = bits.astype(bool).reshape(rows, cols)
            return Tissue(mask, (width, height), tuple(stored["notes"].tolist()))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def keep_tissue(self, tissue: Tissue) -> None:
        with written_whole(self._tissue_file) as temporary:
            np.savez(
                temporary,
                mask=np.packbits(tissue.mask),
                shape=np.array(tissue.mask.shape),
                l0_scale_xy=np.array(tissue.l0_scale_xy, np.float64),
                notes=np.array(tissue.notes, np.str_),
            )

    def touch(self) -> None:
        """Note that the entry was used: what was not for longest goes first."""
        for path in (self.features, self._tissue_file):
            with suppress(OSError):
                os.utime(path)

    def remove(self) -> bool:
        """Remove the entry, unless it is being written or, on Windows, read."""
        from spt_core.tokens.writing import SlideInUseError, discard_unfinished

        try:
            discard_unfinished(self.features)
            self.features.unlink(missing_ok=True)
            self._tissue_file.unlink(missing_ok=True)
        except (SlideInUseError, OSError):
            return False
        return True

    @property
    def size(self) -> int:
        """Bytes that the entry takes."""
        return sum(_state(path)[0] for path in self._files)

    @property
    def used(self) -> float:
        """When it was last used."""
        return max(_state(path)[1] for path in self._files)

    @property
    def _tissue_file(self) -> Path:
        return self.folder / f"{self.key}{_TISSUE_ENDING}"

    @property
    def _files(self) -> tuple[Path, ...]:
        return self.features, self.unfinished, self._tissue_file


def entry_for(folder: Path, identity: Mapping[str, Any]) -> Entry:
    """The place of the features that ``identity`` describes."""
    text = json.dumps(dict(identity), sort_keys=True)
    return Entry(folder, hashlib.sha256(text.encode()).hexdigest()[:_KEY_LENGTH])


def entries(folder: str | Path) -> list[Entry]:
    """All that is kept, what was used last at the end."""
    keys = set()
    with suppress(OSError):
        for path in Path(folder).iterdir():
            key, _, ending = path.name.partition(".")
            if f".{ending}" in _ENDINGS and len(key) == _KEY_LENGTH:
                keys.add(key)
    found = [Entry(Path(folder), key) for key in keys]
    return sorted(found, key=lambda entry: entry.used)


def feature_cache_size(folder: str | Path) -> int:
    """Bytes that all kept features take."""
    return sum(entry.size for entry in entries(folder))


def trim(folder: str | Path, limit: int) -> int:
    """Remove what was not used for longest until ``limit`` bytes suffice.

    Returns
    -------
    Bytes that were freed. What is being written stays.
    """
    found = entries(folder)
    total = sum(entry.size for entry in found)
    freed = 0
    for entry in found:
        if total - freed <= limit:
            break
        size = entry.size
        if entry.remove():
            freed += size
    return freed


def clear(folder: str | Path) -> int:
    """Remove all that is kept; give back the bytes that were freed."""
    return trim(folder, -1)


def _state(path: Path) -> tuple[int, float]:
    try:
        state = path.stat()
    except OSError:
        return 0, 0.0
    return state.st_size, state.st_mtime
