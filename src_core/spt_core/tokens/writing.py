"""Writing a feature file batch by batch, so that no crash costs more than one.

Unfinished work is a log, ``<name>.h5.partial``: a header that says what it belongs to,
then one record per batch, each with its checksum. Records are only ever appended, so a
process that is killed leaves at worst a broken last record, which the next cuts off.
When all is there the log becomes the feature file, in one pass and one rename. The log
is locked by its writer; the system releases the lock when the process dies.
"""

import json
import os
import struct
import zlib
from collections.abc import Iterator
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from spt_core.errors import InputError
from spt_core.files import (
    folder_to_disk,
    in_place,
    in_place_or_new,
    lock,
    to_disk,
)
from spt_core.plain_data import from_json
from spt_core.tokens import layout
from spt_core.tokens.feature_file import coords_attributes, file_attributes
from spt_core.tokens.h5_writing import h5_file
from spt_core.tokens.tokens import TokenFacts

_MAGIC = b"spt partial 1\n"
_HEADER = struct.Struct("<II")  # length and checksum of the JSON that follows
_RECORD = struct.Struct("<II")  # number of rows, checksum of the rest
_WAY = "way"  # in the header: how the features are computed
_ROWS_AT_ONCE = 1024
_LARGEST_RECORD = 2**30

# Attributes by which a run recognises a finished file without opening the slide.
SLIDE_BYTES = "slide_bytes"
SLIDE_MTIME = "slide_mtime_ns"
SLIDE_MPP = "slide_mpp"  # (x, y), micrometres per level-0 pixel that were used
MIN_TISSUE = "min_tissue"
PRECISION = "precision"  # in which the encoder ran, the last time it did


class SlideInUseError(InputError):
    """Another process is writing this slide's features."""


class OtherWorkError(InputError):
    """The unfinished work that exists was begun with other settings."""


class PartialFeatures:
    """The log of one slide's features, open and locked.

    Parameters
    ----------
    path
        Of the feature file that the log will become.
    identity
        Plain data that say what the features belong to; a log with another identity
        is refused.
    way
        How they are computed, where the log is begun now; ``self.way`` is that of the
        log, and what is added to it has to be computed in the same way.
    """

    def __init__(
        self, path: Path, identity: dict[str, Any], dim: int, way: str = ""
    ) -> None:
        self.path = path
        self.dim = dim
        self.way = way
        self._identity = {**identity, "dim": dim}
        self._partial = path.with_name(path.name + ".partial")
        # Where each row that is done lies in the log.
        self._offsets: dict[int, int] = {}
        self._is_ours = False
        self._file = self._open_locked()
        try:
            self._recover()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def done(self) -> NDArray[np.int64]:
        """The rows that the log holds, sorted."""
        return np.sort(np.fromiter(self._offsets, np.int64, len(self._offsets)))

    def append(self, rows: NDArray[np.int64], x: NDArray[np.float32]) -> None:
        """Add features (n, d) of the given rows of the grid."""
        if x.shape != (len(rows), self.dim):
            # Written nevertheless, these numbers would be read as those of other rows.
            raise ValueError(
                f"features of shape {x.shape} where {(len(rows), self.dim)} belong"
            )
        rows = np.ascontiguousarray(rows, "<i8")
        body = rows.tobytes() + np.ascontiguousarray(x, "<f4").tobytes()
        start = self._file.tell()
        try:
            self._write(_RECORD.pack(len(rows), zlib.crc32(body)) + body)
        except OSError:
            # Half a record (the disk is full): take it back, keep what was there.
            self._file.seek(start)
            self._file.truncate()
            raise
        self._note(rows, start)

    def begin_again(self, way: str) -> None:
        """Drop all rows: they are to be computed in another way."""
        self.way = way
        self._offsets.clear()
        self._write_header()

    def read(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Features of rows that are done, (n, d)."""
        end = self._file.seek(0, os.SEEK_END)
        out = np.empty((len(rows), self.dim), np.float32)
        for line, row in zip(out, rows, strict=True):
            self._file.seek(self._offsets[int(row)])
            line[:] = np.frombuffer(self._file.read(4 * self.dim), "<f4")
        self._file.seek(end)
        return out

    def chunks(self, size: int = _ROWS_AT_ONCE) -> Iterator[NDArray[np.int64]]:
        """The rows that are done, ``size`` at a time."""
        done = self.done
        for start in range(0, len(done), size):
            yield done[start : start + size]

    def finish(
        self,
        g_rc: NDArray[np.int64],
        l0_xy: NDArray[np.int64],
        facts: TokenFacts,
        extra: dict[str, Any],
    ) -> int:
        """Turn the log into the feature file; returns the number of tokens.

        ``g_rc`` and ``l0_xy`` are of the whole grid, sorted by (row, col); rows that
        are not done (they could not be read) are left out.
        """
        done = self.done
        # One name for all attempts, which the lock keeps to one at a time: what a
        # killed process left goes.
        temporary = self.path.with_name(f".{self.path.name}.finishing")
        temporary.unlink(missing_ok=True)
        try:
            self._write_file(temporary, done, g_rc[done], l0_xy[done], facts, extra)
            # Before the log goes, of which it was made.
            to_disk(temporary)
            os.replace(temporary, self.path)
            folder_to_disk(self.path.parent)
        except BaseException:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
        self.discard()
        return len(done)

    def _write_file(
        self,
        path: Path,
        done: NDArray[np.int64],
        g_rc: NDArray[np.int64],
        l0_xy: NDArray[np.int64],
        facts: TokenFacts,
        extra: dict[str, Any],
    ) -> None:
        with h5_file(path, len(done) * (4 * self.dim + 32)) as file:
            shape = (len(done), self.dim)
            features = file.create_dataset(layout.FEATURES, shape, np.float32)
            for start in range(0, len(done), _ROWS_AT_ONCE):
                rows = done[start : start + _ROWS_AT_ONCE]
                features[start : start + len(rows)] = self.read(rows)
            coords = file.create_dataset(layout.COORDS, data=l0_xy)
            file.create_dataset(layout.GRID, data=g_rc)
            coords.attrs.update(coords_attributes(facts))
            file.attrs.update({**file_attributes(facts), **extra})

    def discard(self) -> None:
        """Remove the log."""
        # Windows removes no open file; elsewhere the lock must outlive the name.
        if os.name == "nt":
            self.close()
            self._partial.unlink(missing_ok=True)
        else:
            self._partial.unlink(missing_ok=True)
            self.close()

    def close(self) -> None:
        """Release the log; one without a single row is removed."""
        if self._file.closed:
            return
        if self._is_ours and not self._offsets:
            self._is_ours = False
            self.discard()
        self._file.close()

    def _write(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            left = left[self._file.write(left) :]

    def _open_locked(self) -> FileIO:
        self._partial.parent.mkdir(parents=True, exist_ok=True)
        while True:
            # Without a buffer: what a full disk refuses must not wait in one and be
            # refused once more when the file is closed.
            file = FileIO(self._partial, "r+b", opener=in_place_or_new)
            if not lock(file):
                file.close()
                raise SlideInUseError(
                    f"{self.path.name} is being written by another process: its slide "
                    "is left to that one."
                )
            # Its former owner may have removed it between our opening and locking.
            try:
                same = os.path.samestat(os.fstat(file.fileno()), os.stat(self._partial))
            except FileNotFoundError:
                same = False
            if same:
                return file
            file.close()

    def _recover(self) -> None:
        """Read what the log holds, or begin it."""
        found = self._read_header()
        if found is None:
            self._write_header()
        else:
            self.way = found.pop(_WAY, "")
            wanted = json.loads(json.dumps(self._identity))
            if found != wanted:
                raise OtherWorkError(
                    f"{self._partial.name} is unfinished work with other settings, or "
                    f"of a slide that has changed ({differences(found, wanted)}). "
                    "Finish it as it was begun, choose another --out, or start again "
                    "with --redo."
                )
        good = self._file.tell()
        while (rows := self._read_record()) is not None:
            self._note(rows, good)
            good = self._file.tell()
        self._file.seek(good)
        self._file.truncate()
        self._is_ours = True

    def _write_header(self) -> None:
        text = json.dumps({**self._identity, _WAY: self.way}, sort_keys=True).encode()
        self._file.seek(0)
        self._file.truncate()
        self._write(_MAGIC + _HEADER.pack(len(text), zlib.crc32(text)) + text)

    def _read_header(self) -> dict[str, Any] | None:
        self._file.seek(0)
        head = self._file.read(len(_MAGIC) + _HEADER.size)
        if len(head) < len(_MAGIC) + _HEADER.size or not head.startswith(_MAGIC):
            return None
        length, checksum = _HEADER.unpack(head[len(_MAGIC) :])
        text = self._file.read(length)
        if len(text) < length or zlib.crc32(text) != checksum:
            return None
        return from_json(text)

    def _read_record(self) -> NDArray[np.int64] | None:
        """The rows of the next record, or None where no whole one follows."""
        head = self._file.read(_RECORD.size)
        if len(head) < _RECORD.size:
            return None
        count, checksum = _RECORD.unpack(head)
        length = count * (8 + 4 * self.dim)
        # Zeros, where a power cut kept the file's length and lost what was in it.
        if count == 0 or length > _LARGEST_RECORD:
            return None
        body = self._file.read(length)
        if len(body) < length or zlib.crc32(body) != checksum:
            return None
        return np.frombuffer(body, "<i8", count)

    def _note(self, rows: NDArray[np.int64], start: int) -> None:
        first = start + _RECORD.size + 8 * len(rows)
        for i, row in enumerate(rows.tolist()):
            self._offsets[row] = first + i * 4 * self.dim


def differences(stored: dict[str, Any], wanted: dict[str, Any]) -> str:
    """How two descriptions differ, in words."""
    return "; ".join(
        f"{name.replace('_', ' ')} {_short(stored.get(name))} there, "
        f"{_short(wanted.get(name))} here"
        for name in sorted({*stored, *wanted})
        if stored.get(name) != wanted.get(name)
    )


def _short(value: object) -> str:
    text = "unknown" if value is None else str(value)
    return text if len(text) <= 24 else f"{text[:12]}…"


def discard_unfinished(path: Path) -> None:
    """Remove the log of a feature file, if nobody is writing it."""
    partial = path.with_name(path.name + ".partial")
    if not partial.exists():
        return
    with FileIO(partial, "r+b", opener=in_place) as file:
        if not lock(file):
            raise SlideInUseError(f"{path.name} is being written by another process.")
    partial.unlink(missing_ok=True)
