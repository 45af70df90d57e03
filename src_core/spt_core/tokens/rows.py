"""Reading a few rows of a stored feature matrix without reading the rest.

HDF5 keeps an unfiltered dataset as plain bytes in the file, so its rows can be read
through a memory map: no HDF5 lock, no copy of what is not asked for. A file is mapped
for one read and then released, so that ten thousand slides need neither ten thousand
open files nor their pages in memory.
"""

import mmap
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from spt_core.tokens import layout


@dataclass(frozen=True, eq=False)
class RowSource:
    """Where the rows of one file's features lie.

    Attributes
    ----------
    offset
        Byte at which row 0 starts when the rows follow one another.
    offsets
        Byte at which each row starts, when they lie in unfiltered chunks. With
        neither, rows are read through HDF5 (compressed files).
    dataset
        The name of the matrix in an HDF5 file.
    """

    path: Path
    shape: tuple[int, int]
    dtype: np.dtype
    offset: int | None = None
    offsets: NDArray[np.int64] | None = None
    dataset: str = layout.FEATURES

    @property
    def nbytes(self) -> int:
        return self.shape[0] * self.shape[1] * self.dtype.itemsize

    def read(self, rows: NDArray[np.integer], out: NDArray[np.floating]) -> None:
        """Write the given rows, in the given order, to ``out`` (len(rows), d)."""
        if self.offset is not None:
            stored = np.memmap(self.path, self.dtype, "r", self.offset, self.shape)
            _read_no_more(stored)
            out[:] = stored[rows]
        elif self.offsets is not None:
            content = np.memmap(self.path, np.uint8, "r")
            _read_no_more(content)
            for line, start in zip(out, self.offsets[rows], strict=True):
                line[:] = np.frombuffer(content, self.dtype, self.shape[1], start)
        else:
            unique, back = np.unique(rows, return_inverse=True)
            with h5py.File(self.path, "r") as file:
                out[:] = _two_axes(file[self.dataset], unique)[back]

    def read_all(self) -> NDArray[np.floating]:
        """Every row, in the stored precision."""
        if self.offset is not None:
            return np.fromfile(
                self.path, self.dtype, self.shape[0] * self.shape[1], offset=self.offset
            ).reshape(self.shape)
        out = np.empty(self.shape, self.dtype)
        self.read(np.arange(self.shape[0]), out)
        return out


@dataclass(frozen=True, eq=False)
class ZarrRows(RowSource):
    """Rows of a zarr array; ``path`` is its folder."""

    def read(self, rows: NDArray[np.integer], out: NDArray[np.floating]) -> None:
        unique, back = np.unique(rows, return_inverse=True)
        out[:] = self._opened().oindex[unique][back]

    def read_all(self) -> NDArray[np.floating]:
        return np.asarray(self._opened()[:])

    def _opened(self) -> Any:
        from spt_core.slides.zarr_folder import open_zarr  # half a second

        return open_zarr(self.path)


def _read_no_more(mapped: np.memmap) -> None:
    """Tell the system not to read ahead of scattered rows: three times quicker."""
    if hasattr(mmap, "MADV_RANDOM"):  # not on Windows
        mapped._mmap.madvise(mmap.MADV_RANDOM)  # type: ignore[attr-defined]


def locate_rows(path: Path, features: h5py.Dataset) -> RowSource:
    """Find where a dataset's rows lie in its file."""
    shape = features.shape[-2:]
    source = partial(
        RowSource,
        path,
        (int(shape[0]), int(shape[1])),
        features.dtype,
        dataset=features.name.lstrip("/"),
    )
    if 0 in shape or features.external or not _is_as_numpy_has_it(features):
        return source()
    if features.chunks is None:
        offset = features.id.get_offset()
        return source(offset=offset)
    plain = features.id.get_create_plist().get_nfilters() == 0
    if not plain or features.ndim != 2 or features.chunks[1] != shape[1]:
        return source()
    chunk_rows, row_bytes = features.chunks[0], shape[1] * features.dtype.itemsize
    n_chunks = -(-shape[0] // chunk_rows)
    starts = np.full(n_chunks, -1, np.int64)

    def note(chunk: object) -> None:
        row = chunk.chunk_offset[0] // chunk_rows  # type: ignore[attr-defined]
        starts[row] = chunk.byte_offset  # type: ignore[attr-defined]

    features.id.chunk_iter(note)
    if (starts < 0).any():  # chunks never written: HDF5 knows their fill value
        return source()
    rows = np.arange(shape[0])
    offsets = starts[rows // chunk_rows] + rows % chunk_rows * row_bytes
    return source(offsets=offsets)


def _is_as_numpy_has_it(features: h5py.Dataset) -> bool:
    """Whether the bytes are numpy's own: bfloat16, say, is float32 to h5py alone."""
    native = features.dtype.isnative
    return bool(native and features.id.get_type() == h5py.h5t.py_create(features.dtype))


def _two_axes(features: h5py.Dataset, rows: NDArray[np.integer]) -> NDArray:
    """Rows of (n, d), or of the (1, n, d) that some versions of TRIDENT write."""
    return features[rows] if features.ndim == 2 else features[0, rows]
