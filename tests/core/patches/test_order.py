"""The order of patches: each once, near its block, fair from the start."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spt_core.patches.order import coarse_to_fine, outwards


def some_cells(seed, rows=60, cols=80, share=0.5):
    rng = np.random.default_rng(seed)
    g_rc = np.argwhere(rng.random((rows, cols)) < share) + rng.integers(0, 50, 2)
    return g_rc.astype(np.int64)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 1000), st.integers(1, 30), st.integers(1, 30), st.floats(0, 1))
def test_every_patch_comes_once_in_blocks(seed, rows, cols, share):
    g_rc = some_cells(seed, rows, cols, share)
    blocks = list(coarse_to_fine(g_rc))
    order = np.concatenate(blocks) if blocks else np.zeros(0, int)
    assert sorted(order) == list(range(len(g_rc)))
    for block in blocks:
        assert len(np.unique(g_rc[block] // 4, axis=0)) == 1
    away = list(outwards(g_rc, (3.0, 4.0)))
    assert sorted(np.concatenate(away) if away else []) == list(range(len(g_rc)))


def test_a_sparse_pass_of_at_most_a_tenth_comes_first():
    g_rc = some_cells(1)
    sizes = [len(rows) for rows in coarse_to_fine(g_rc)]
    sparse = next(i for i, size in enumerate(sizes) if size > 1)
    assert 0.05 * len(g_rc) < sparse <= 0.1 * len(g_rc)


@pytest.mark.parametrize("share", [0.03, 0.1, 0.25, 0.5])
def test_any_prefix_is_a_fair_sample(share):
    """Every part of the slide gets its share of a prefix, within a third or so."""
    g_rc = some_cells(2, 64, 64, 0.9)
    order = np.concatenate(list(coarse_to_fine(g_rc)))
    prefix = order[: int(share * len(order))]
    g_part = (g_rc - g_rc.min(axis=0)) // 16
    part = g_part[:, 0] * 4 + g_part[:, 1]
    whole = np.bincount(part, minlength=16) / len(part)
    first = np.bincount(part[prefix], minlength=16) / len(prefix)
    assert np.abs(first / whole - 1).max() < max(0.35, 3 / (len(prefix) / 16))


def test_outwards_begins_where_one_looks():
    g_rc = some_cells(3, 40, 40, 1.0)
    centre = tuple(g_rc.mean(axis=0))
    order = np.concatenate(list(outwards(g_rc, centre)))
    far = np.linalg.norm(g_rc[order] - centre, axis=1)
    for quarter in range(3):
        n = len(far) // 4
        here, next_ = far[quarter * n : (quarter + 1) * n], far[(quarter + 1) * n :]
        assert here.mean() < next_[:n].mean()
    assert far[:16].max() < 6
