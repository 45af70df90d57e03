"""Attention as a map: its numbers, and its place on the slide to the pixel."""

import numpy as np
import pytest
import torch
from scipy.stats import rankdata

from spt_core.insight.maps import attention_values, cell_map, percentiles
from spt_core.insight.predicting import predict
from spt_core.learning.slide_encoder import SlideEncoder
from spt_core.tokens import TokenFacts
from tests.made_tokens import DIM, STEP, grid_tokens


def some_attention(heads=3, n=50, seed=0):
    rng = np.random.default_rng(seed)
    return rng.random((heads, n)).astype(np.float32) / n / 2


def test_each_head_and_the_mean_sum_to_one_over_patches():
    attention = some_attention()
    for head in (0, 1, 2, -1):
        weights = attention_values(attention, head=head)
        assert weights.sum() == pytest.approx(1)
        times = attention_values(attention, head=head, unit="times average")
        assert times.mean() == pytest.approx(1)
        np.testing.assert_allclose(times, weights * 50)
    own = attention.astype(float)
    own /= own.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(attention_values(attention), own.mean(axis=0))
    np.testing.assert_allclose(attention_values(attention, head=1), own[1])


def test_percentiles_are_ranks():
    values = np.array([3.0, 1.0, 3.0, 7.0, 5.0])
    expected = (rankdata(values) - 0.5) / 5 * 100
    np.testing.assert_allclose(percentiles(values), expected)
    assert percentiles(np.array([2.0])).tolist() == [50.0]


def test_background_is_absent_and_each_patch_is_in_its_place():
    rng = np.random.default_rng(1)
    g_rc = np.argwhere(rng.random((30, 40)) < 0.3) + np.array((7, 11))
    step = (593, 601)
    xy = g_rc[:, ::-1] * step
    origin = g_rc.min(axis=0)
    facts = TokenFacts(l0_patch_xy=step, l0_step_xy=step, g_origin=tuple(origin))
    values = rng.random(len(g_rc))
    found = cell_map(values, g_rc - origin, xy, facts)
    assert np.isfinite(found.values).sum() == len(g_rc)
    for place, value in zip(xy, values, strict=True):
        col, row = (place - found.l0_origin_xy) // found.l0_step_xy
        assert found.values[row, col] == pytest.approx(value)
        left, top, right, bottom = found.l0_box(row, col)
        assert (left, top) == tuple(place)
        assert (right - left, bottom - top) == step


def test_off_lattice_patches_fill_the_cells_they_cover():
    """Two contours, each on a lattice of its own, as CLAM makes them."""
    first = np.stack(np.meshgrid(np.arange(5), np.arange(4)), -1).reshape(-1, 2) * 100
    second = first + np.array((1050, 350))  # half a step off
    xy = np.concatenate([first, second])
    facts = TokenFacts(l0_patch_xy=(100, 100), l0_step_xy=(100, 100), off_lattice=True)
    p = np.rint(xy / 100).astype(int)[:, ::-1]
    values = np.arange(len(xy), dtype=float)
    found = cell_map(values, p, xy, facts).values
    np.testing.assert_array_equal(found[:4, :5].ravel(), values[:20])
    covered = np.isfinite(found[4:7, 11:15])
    assert covered.all()  # no holes where rounding half a step would leave them
    assert np.isnan(found[:4, 6:10]).all()


def test_far_patches_of_unknown_size_do_not_fill_the_memory():
    xy = np.array([[0, 0], [300_000, 200_000]])
    found = cell_map(np.ones(2), xy[:, ::-1], xy, TokenFacts(l0_step_xy=(1, 1)))
    assert found.values.size < 70_000_000
    assert np.isfinite(found.values).sum() >= 2


def test_several_values_a_patch():
    tokens = grid_tokens(np.zeros((6, DIM)), cols=3)
    shares = np.arange(12).reshape(6, 2)
    found = cell_map(shares, tokens.p, tokens.xy, tokens.facts)
    assert found.values.shape == (2, 3, 2)
    np.testing.assert_array_equal(found.values.reshape(6, 2), shares)


@pytest.mark.parametrize(
    "depth", [1, pytest.param(2, marks=pytest.mark.slow)], ids=["linear", "whole"]
)
def test_two_hundred_thousand_tokens(mean_model, depth):
    rng = np.random.default_rng(0)
    tokens = grid_tokens(rng.normal(size=(200_000, DIM)), cols=500, origin=(3, 4))
    torch.manual_seed(0)
    mean_model.encoder = SlideEncoder(DIM, dim=DIM, depth=depth, heads=2).eval()
    found = predict(mean_model, tokens)
    assert found.groups == 10
    assert found.attention.shape == (2, 200_000)
    weights = attention_values(found.attention, unit="percentile")
    drawn = cell_map(weights, found.p, found.xy, found.facts)
    assert drawn.values.shape == (400, 500)
    assert drawn.l0_origin_xy == (4 * STEP, 3 * STEP)
