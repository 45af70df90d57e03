"""The folder of one engine's session: arrays on their way, and what libraries print."""

import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path

PREFIX = "napari-spt-"
# What is left of others goes after an hour if they are dead, after days in any case.
_ORPHANED_SECONDS, _STALE_SECONDS = 3600, 3 * 24 * 3600


def make_session_folder() -> Path:
    """A private folder whose name says whose it is."""
    return Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))


def remove_stale_folders() -> None:
    """Remove what is left of sessions that were killed together with their engine."""
    now = time.time()
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*-*"):
        with suppress(OSError, ValueError):
            age = now - folder.stat().st_mtime
            pid = int(folder.name.removeprefix(PREFIX).partition("-")[0])
            if age > _STALE_SECONDS or (age > _ORPHANED_SECONDS and _is_dead(pid)):
                shutil.rmtree(folder, ignore_errors=True)


def _is_dead(pid: int) -> bool:
    """Whether there is surely no such process any more."""
    if os.name == "nt":
        return False  # asking, there, is ending it
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False
