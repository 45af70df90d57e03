"""The order in which patches are read: first spread out, then close together.

Scattered single reads are slow, because every one decodes tiles that its neighbours
need too; a raster reads fast but shows the whole slide only at its end. So one sparse
pass goes over the slide, and then blocks of neighbouring patches follow, each read as
one region, the blocks from coarse to fine: any prefix is a fair sample of the slide.
"""

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

BLOCK = 4
SPARSE_SHARE = 0.1

Rows = NDArray[np.int64]


def coarse_to_fine(g_rc: NDArray[np.int64], block: int = BLOCK) -> Iterator[Rows]:
    """Rows of ``g_rc`` (n, 2), one block at a time; every row comes once.

    The sparse pass, at most a tenth of the rows, comes as blocks of one.
    """
    blocks = _blocks(g_rc, block)
    keys = _coarse_first(np.array([g_rc[rows[0]] // block for rows in blocks]))
    blocks = [blocks[i] for i in np.argsort(keys, kind="stable")]
    few = int(len(g_rc) * SPARSE_SHARE)
    for rows in blocks[:few]:
        yield rows[_middle(g_rc[rows]) :][:1]
    for i, rows in enumerate(blocks):
        if i < few:
            rows = np.delete(rows, _middle(g_rc[rows]))
        if len(rows):
            yield rows


def outwards(
    g_rc: NDArray[np.int64], g_centre: tuple[float, float], block: int = BLOCK
) -> Iterator[Rows]:
    """Blocks of rows of ``g_rc``, the nearest to ``g_centre`` (row, col) first."""
    blocks = _blocks(g_rc, block)
    middles = np.array([g_rc[rows].mean(axis=0) for rows in blocks]).reshape(-1, 2)
    far = np.square(middles + 0.5 - np.asarray(g_centre)).sum(axis=1)
    for i in np.argsort(far, kind="stable"):
        yield blocks[i]


def same_batches(
    blocks: Iterable[Rows], is_done: NDArray[np.bool_], capacity: int
) -> Iterator[Rows]:
    """What is left of blocks, in the batches that they were packed in at first.

    An encoder's numbers differ in their last digits by how many patches it sees at
    once: a run that was killed goes on with the batches of one that was not. An empty
    block ends a batch.
    """
    batch: list[Rows] = []
    for whole in blocks:
        for start in range(0, len(whole), capacity):
            rows = whole[start : start + capacity]
            if batch and sum(map(len, batch)) + len(rows) > capacity:
                yield from _left(batch, is_done)
                batch = []
            batch.append(rows)
    yield from _left(batch, is_done)


def _left(batch: list[Rows], is_done: NDArray[np.bool_]) -> Iterator[Rows]:
    left = [part for rows in batch if len(part := rows[~is_done[rows]])]
    yield from left
    if left:
        yield left[0][:0]


def _blocks(g_rc: NDArray[np.int64], block: int) -> list[Rows]:
    """Rows of each block of the lattice that has any, in the lattice's order."""
    if len(g_rc) == 0:
        return []
    g_block = g_rc // block
    g_block = g_block - g_block.min(axis=0)
    number = g_block[:, 0] * (g_block[:, 1].max() + 1) + g_block[:, 1]
    order = np.argsort(number, kind="stable")
    starts = np.flatnonzero(np.diff(number[order])) + 1
    return np.split(order, starts)


def _middle(g_rc: NDArray[np.int64]) -> int:
    """Which of a block's patches lies nearest to their middle."""
    return int(np.square(g_rc - g_rc.mean(axis=0)).sum(axis=1).argmin())


def _coarse_first(places: NDArray[np.int64]) -> NDArray[np.int64]:
    """Keys that sort a lattice from coarse to fine.

    The bits of row and column are interleaved from the lowest on, the lowest becoming
    the most important: what comes first are the cells of a coarse lattice, then those
    between them, and so on.
    """
    if len(places) == 0:
        return np.zeros(0, np.int64)
    places = places - places.min(axis=0)
    keys = np.zeros(len(places), np.int64)
    for bit in range(24):
        row, col = places[:, 0] >> bit & 1, places[:, 1] >> bit & 1
        keys = keys << 2 | (row ^ col) << 1 | row
    return keys
