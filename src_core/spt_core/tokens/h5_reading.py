"""Opening HDF5 files that anybody may have written."""

import errno
import io
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py

# A heap keeps texts of any length: a head, then objects, number and size first.
_HEAP, _HEAD_BYTES, _OBJECT = b"GCOL", 16, struct.Struct("<H6xQ")


class _GuardedFile(io.FileIO):
    """A file whose damaged heaps HDF5 does not see: it would read them for ever."""

    def readinto(self, buffer: Any, /) -> int | None:
        count = super().readinto(buffer)
        if count and _never_ends(memoryview(buffer)[:count]):
            memoryview(buffer)[: len(_HEAP)] = bytes(len(_HEAP))
        return count


def _never_ends(piece: memoryview) -> bool:
    """Whether what is free in a heap, which has the number 0, has no size."""
    if piece[: len(_HEAP)] != _HEAP:
        return False
    place = _HEAD_BYTES
    while place + _OBJECT.size <= len(piece):
        number, size = _OBJECT.unpack_from(piece, place)
        if number == 0:
            return bool(size == 0)
        place += _OBJECT.size + -(-size // 8) * 8
    return False


@contextmanager
def opened_h5(path: Path) -> Iterator[h5py.File]:
    """Open an HDF5 file to read; one that another program is writing is refused."""
    with _GuardedFile(path) as file:
        _refuse_written(file)
        with h5py.File(file, "r") as opened:
            yield opened


def _refuse_written(file: io.FileIO) -> None:
    """As HDF5 does where it opens a file by its name."""
    if sys.platform == "win32":
        return
    from fcntl import LOCK_NB, LOCK_SH, flock

    try:
        flock(file.fileno(), LOCK_SH | LOCK_NB)
    except OSError as error:  # some file systems have no locks
        if error.errno in (errno.EWOULDBLOCK, errno.EAGAIN):
            raise OSError("another program is writing it") from None
