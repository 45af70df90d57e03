"""Folders of zarr, which may come from anybody, opened so that they harm nobody.

zarr waits for ever at a pipe that is called like a chunk, and its unpacker of Blosc
trusts the length that a chunk states: of one that was cut off it gives back what lies
behind it in memory, or crashes.
"""

import stat
import struct
from pathlib import Path
from typing import Any

import numcodecs.blosc
import zarr
from numcodecs.abc import Codec
from zarr.storage import LocalStore

from spt_core.slides.source import DamagedPartError
from spt_core.slides.zarr_chunks import check_while_unpacking

_HEADER = struct.Struct("<BBBBIII")  # the last is the length of the whole chunk


class _FilesOnly(LocalStore):
    """Its keys are files, and nothing else is opened."""

    async def get(self, key: str, *args: Any, **options: Any) -> Any:
        _refuse_no_file(self.root / key)
        return await super().get(key, *args, **options)

    def get_sync(self, key: str, *args: Any, **options: Any) -> Any:
        _refuse_no_file(self.root / key)
        return super().get_sync(key, *args, **options)

    async def get_partial_values(self, prototype: Any, key_ranges: Any) -> Any:
        ranges = list(key_ranges)
        for key, _ in ranges:
            _refuse_no_file(self.root / key)
        return await super().get_partial_values(prototype, ranges)


def _refuse_no_file(path: Path) -> None:
    try:
        mode = path.stat().st_mode
    except OSError:
        return  # zarr knows what a missing chunk means
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise DamagedPartError(
            f"{path.name} is no file but a pipe, a device or the like"
        )


def open_zarr(folder: Path) -> Any:
    """The group or array of a folder, for reading."""
    _check_blosc()
    check_while_unpacking()
    return zarr.open(_FilesOnly(folder, read_only=True), mode="r")


def _check_blosc() -> None:
    """Let each chunk be as long as it says before it is unpacked, in this process."""
    if numcodecs.blosc.Blosc.decode is not _decode:
        numcodecs.blosc.Blosc.decode = _decode


_unchecked = numcodecs.blosc.Blosc.decode


def _decode(self: Codec, buf: Any, out: Any = None) -> Any:
    chunk = memoryview(buf)
    stated = _HEADER.unpack_from(chunk)[-1] if chunk.nbytes >= _HEADER.size else None
    if stated is None or stated > chunk.nbytes:
        raise DamagedPartError(
            f"a chunk of {stated or 'some'} bytes has {chunk.nbytes}"
        )
    return _unchecked(self, buf, out)
