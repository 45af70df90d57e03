"""Writing HDF5 so that a full disk is an error, and not the end of the process."""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Any

import h5py

from spt_core.files import in_place, written_whole

_SPARE_BYTES = 2**16  # more than a feature file holds beside its arrays


@contextmanager
def written_h5(path: Path, size: int) -> Iterator[h5py.File]:
    """An HDF5 file that is written whole or not at all."""
    with written_whole(path) as temporary, h5_file(temporary, size) as file:
        yield file


@contextmanager
def h5_file(path: Path, size: int) -> Iterator[h5py.File]:
    """A new HDF5 file, closed at the end.

    Parameters
    ----------
    size
        Of its arrays, in bytes.
    """
    _refuse_without_room(path, size)
    with _DeferredErrorFile(path) as raw:
        try:
            with h5py.File(raw, "w") as file:
                yield file
        # What goes wrong while HDF5 closes a file is one of these.
        except RuntimeError as error:
            raise raw.error or OSError(str(error)) from error
        if raw.error is not None:
            raise raw.error


class _DeferredErrorFile(FileIO):
    """A file that remembers the error of a write instead of raising it.

    HDF5 cannot close a file that it could not write, and crashes the process later.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, "w+b", opener=in_place)
        self.error: OSError | None = None

    def write(self, data: Any) -> int:
        left = memoryview(data).cast("B")
        length = len(left)
        try:
            while left:
                left = left[super().write(left) :]
        except OSError as error:
            self.error = self.error or error
        return length

    def truncate(self, size: int | None = None) -> int:
        try:
            return super().truncate(size)
        except OSError as error:
            self.error = self.error or error
            return self.tell() if size is None else size


def _refuse_without_room(path: Path, size: int) -> None:
    """Raise what a full disk would, before the disk is full for others as well."""
    if shutil.disk_usage(path.parent).free < size + _SPARE_BYTES:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
