"""A disk that loses what was not synced: what it would hold after a power cut.

Names and contents are kept apart, as file systems keep them: a file's content is what
its last ``fsync`` saw, a folder's names are those that its own last ``fsync`` saw.
"""

import os
from contextlib import contextmanager
from pathlib import Path
from threading import RLock

import pytest


class Disk:
    """Watches a folder; ``states`` are the folders that a power cut could leave.

    Each state is ``{relative path: content}``. At every moment there are three: nothing
    but what was synced; all names, of which the system may write some sooner, over
    synced contents; and all that was written, as after a kill.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.states: list[dict[str, bytes]] = []
        self._seen: set[frozenset[tuple[str, bytes]]] = set()
        self._contents: dict[int, bytes] = {}
        self._names: dict[int, dict[str, int]] = {}
        self._read: dict[tuple[int, int, int], bytes] = {}
        self._held: list[int] = []  # so that no number is given to another file
        self._paths: dict[int, Path] = {}
        self._lock = RLock()

    def synced(self, number: int) -> None:
        state = os.fstat(number)
        place = Path(f"/proc/self/fd/{number}")
        if self.folder not in (real := place.resolve(), *real.parents):
            return
        with self._lock:
            self._held.append(os.dup(number))
            if real.is_dir():
                self._names[state.st_ino] = {
                    one.name: one.inode() for one in os.scandir(real)
                }
            else:
                self._contents[state.st_ino] = place.read_bytes()
            self.look()

    def look(self) -> None:
        """Note what a cut now would leave."""
        with self._lock:
            for state in (
                self._left(self.folder, only_synced=True),
                self._left(self.folder, only_synced=False),
                {
                    str(path.relative_to(self.folder)): self._now(path)
                    for path in self.folder.rglob("*")
                    if path.is_file()
                },
            ):
                key = frozenset(state.items())
                if key not in self._seen:
                    self._seen.add(key)
                    self.states.append(state)

    def _now(self, path: Path) -> bytes:
        """Read once for each change, so that looking often stays cheap."""
        state = path.stat()
        key = state.st_ino, state.st_mtime_ns, state.st_size
        if key not in self._read:
            self._read[key] = path.read_bytes()
        return self._read[key]

    def _left(self, folder: Path, *, only_synced: bool) -> dict[str, bytes]:
        there = {one.name: one.inode() for one in os.scandir(folder)}
        synced = self._names.get(folder.stat().st_ino, {})
        found: dict[str, bytes] = {}
        for name, number in (synced if only_synced else there).items():
            if (folder / name).is_dir():
                found |= self._left(folder / name, only_synced=only_synced)
            else:
                path = str((folder / name).relative_to(self.folder))
                found[path] = self._contents.get(number, b"")
        return found

    def close(self) -> None:
        for number in self._held:
            os.close(number)


@contextmanager
def watched(folder: Path):
    """A disk that looks before and after each rename and after each ``fsync``."""
    folder.mkdir(parents=True, exist_ok=True)
    disk = Disk(folder.resolve())
    fsync, replace, unlink = os.fsync, os.replace, os.unlink

    def syncing(number):
        fsync(number)
        disk.synced(number if isinstance(number, int) else number.fileno())

    def around(work):
        def looking(*args, **options):
            disk.look()
            done = work(*args, **options)
            disk.look()
            return done

        return looking

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", syncing)
        patch.setattr(os, "replace", around(replace))
        patch.setattr(os, "unlink", around(unlink))
        yield disk
    disk.look()
    disk.close()


def laid_out(state: dict[str, bytes], folder: Path) -> Path:
    """A folder as the cut left it."""
    folder.mkdir(parents=True)
    for name, content in state.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder
