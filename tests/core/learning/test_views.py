"""Views: the meaning of the paper's pseudocode, at any size of slide."""

import subprocess
import sys
from math import sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spt_core.errors import InputError
from spt_core.learning.views import (
    ViewSettings,
    batch_views,
    crop,
    mask,
    move,
    slide_views,
    split,
    view_generator,
)


def grid(rows, cols):
    return np.stack(np.divmod(np.arange(rows * cols), cols), axis=1).astype(np.int32)


switches = st.booleans()


@settings(max_examples=300, deadline=None)
@given(
    n=st.integers(1, 400),
    spread=st.integers(1, 60),
    views=st.integers(1, 5),
    on=st.tuples(switches, switches, switches),
    seed=st.integers(0, 2**32),
)
def test_views_of_any_slide(n, spread, views, on, seed):
    p = np.random.default_rng(seed).integers(0, spread, (n, 2))
    chosen = ViewSettings(views=views, split=on[0], crop=on[1], mask=on[2])
    made = slide_views(p, np.random.default_rng(seed), chosen)
    assert len(made) == views
    for rows in made:
        assert len(rows) >= 1
        assert len(np.unique(rows)) == len(rows)
        assert 0 <= rows.min() <= rows.max() < n
        if chosen.mask:
            assert len(rows) <= 64
        if chosen.crop:
            g_span = np.ptp(p[rows], axis=0)
            # the largest box: area 400 at aspect 0.5 or 2
            assert (g_span <= sqrt(800)).all()
    if chosen.split and n >= views:
        everything = np.concatenate(made)
        assert len(np.unique(everything)) == len(everything)
    if chosen.split and not (chosen.crop or chosen.mask) and n >= views > 1:
        assert sum(map(len, made)) == n


@pytest.mark.parametrize("n", [2, 3, 7, 10, 1000])
def test_split_gives_seven_tenths_to_either_view(n):
    rng = np.random.default_rng(0)
    first = []
    for _ in range(400):
        a, b = split(n, rng, ViewSettings())
        assert not (a & b).any()
        assert (a | b).all()
        larger = min(max(int(0.7 * n), 1), n - 1)
        assert sorted([a.sum(), b.sum()]) == sorted([larger, n - larger])
        first.append(a.sum() == larger)
    if n > 2:
        assert 0.4 < np.mean(first) < 0.6


def test_every_token_is_split_off_equally_often():
    rng = np.random.default_rng(1)
    count = sum(min(split(20, rng, ViewSettings()), key=np.sum) for _ in range(4000))
    np.testing.assert_allclose(count / 4000, 0.3, atol=0.04)


def test_more_views_are_split_evenly():
    parts = split(10, np.random.default_rng(0), ViewSettings(views=3))
    assert sorted(part.sum() for part in parts) == [3, 3, 4]


def test_too_few_tokens_to_split_are_shared():
    for rows in slide_views(np.zeros((1, 2), int), np.random.default_rng(0)):
        np.testing.assert_array_equal(rows, [0])


def test_crop_is_the_box_of_the_formula():
    """Repeat the draws, and filter by the paper's inequalities in floats."""
    p, chosen = grid(50, 50), ViewSettings()
    everyone = np.ones(len(p), bool)
    for seed in range(200):
        u_area, u_aspect, u_anchor = np.random.default_rng(seed).random(3)
        area, aspect = 100 + 300 * u_area, 0.5 + 1.5 * u_aspect
        height = sqrt(area / aspect)
        width = height * aspect
        row, col = p[int(u_anchor * len(p))]
        expected = (
            (p[:, 0] > row - height / 2)
            & (p[:, 0] < row + height / 2)
            & (p[:, 1] > col - width / 2)
            & (p[:, 1] < col + width / 2)
        )
        found = crop(p, everyone, np.random.default_rng(seed), chosen)
        np.testing.assert_array_equal(found, expected)


def test_areas_and_aspects_are_uniform():
    """Measured on the cells that were kept, around an anchor far from any edge."""
    p = grid(90, 90)
    middle = np.all((p >= 30) & (p < 60), axis=1)
    shapes = []
    for seed in range(1500):
        rng = np.random.default_rng(seed)
        box = crop(p, np.ones(len(p), bool), rng, ViewSettings())
        g_low, g_high = p[box].min(axis=0), p[box].max(axis=0)
        if middle[np.flatnonzero((p == (g_low + g_high) // 2).all(axis=1))].all():
            shapes.append(g_high - g_low + 1)
    height, width = np.array(shapes, float).T
    assert len(shapes) > 100
    # cells nearer than half a side: on average as many as the side is long
    area, aspect = height * width, width / height
    assert abs(area.mean() - 250) < 20
    assert 80 < area.min() < 140
    assert 350 < area.max() < 450
    assert abs(np.median(aspect) - 1.25) < 0.15
    assert 0.4 < aspect.min() < 0.65
    assert 1.7 < aspect.max() < 2.4


def test_a_crop_can_catch_one_token_alone():
    p = np.array([[0, 0], [1000, 1000]])
    for seed in range(20):
        a, b = slide_views(p, np.random.default_rng(seed))
        assert {*a, *b} == {0, 1}


def test_all_tokens_in_one_place():
    p = np.full((100, 2), 5)
    a, b = slide_views(p, np.random.default_rng(3), ViewSettings(mask=False))
    assert len(a) + len(b) == 100


def test_mask_keeps_a_uniform_share_up_to_the_limit():
    rng = np.random.default_rng(0)
    small = [len(mask(np.arange(50), rng, ViewSettings())) for _ in range(3000)]
    assert min(small) == 5
    assert max(small) == 39  # below 0.8 * 50
    assert abs(np.mean(small) - (0.45 * 50 - 0.5)) < 0.8
    large = [len(mask(np.arange(5000), rng, ViewSettings())) for _ in range(50)]
    assert set(large) == {64}
    assert len(mask(np.arange(1), rng, ViewSettings())) == 1
    free = ViewSettings(max_tokens=float("inf"))
    assert max(len(mask(np.arange(5000), rng, free)) for _ in range(50)) > 3000


def test_mask_keeps_every_token_equally_often():
    rng = np.random.default_rng(0)
    kept = np.zeros(30)
    for _ in range(6000):
        kept[mask(np.arange(30), rng, ViewSettings())] += 1
    np.testing.assert_allclose(kept / kept.mean(), 1, atol=0.08)


def symmetries(p):
    """A view's places in all 8 positions of its box, by the names of the moves."""
    row, col = (p - p.min(axis=0)).T
    last_row, last_col = row.max(), col.max()
    turned = {
        "as it is": (row, col),
        "quarter turn": (col, last_row - row),
        "half turn": (last_row - row, last_col - col),
        "three quarters": (last_col - col, row),
        "upside down": (last_row - row, col),
        "left to right": (row, last_col - col),
        "diagonal": (col, row),
        "other diagonal": (last_col - col, last_row - row),
    }
    return {name: np.stack(to, 1) + p.min(axis=0) for name, to in turned.items()}


def test_a_turned_view_has_each_of_eight_symmetries_equally_often():
    p = np.random.default_rng(0).integers(3, 40, (60, 2), dtype=np.int32)
    expected, rng = symmetries(p), np.random.default_rng(1)
    count = dict.fromkeys(expected, 0)
    for _ in range(4000):
        found = move(p, rng, ViewSettings(turn=True))
        (name,) = (one for one, to in expected.items() if np.array_equal(found, to))
        count[name] += 1
    np.testing.assert_allclose(np.array(list(count.values())) / 4000, 1 / 8, atol=0.02)


def test_shifts_are_uniform_in_both_directions():
    p, rng = grid(5, 7) + 100, np.random.default_rng(0)
    count = np.zeros((7, 7))
    for _ in range(10_000):
        by = move(p, rng, ViewSettings(shift=3)) - p
        assert (by == by[0]).all()
        count[tuple(by[0] + 3)] += 1  # an error beyond 3 either way
    np.testing.assert_allclose(count / 10_000, 1 / 49, atol=0.006)


@settings(max_examples=100, deadline=None)
@given(
    n=st.integers(1, 60),
    spread=st.integers(1, 500),
    turn=switches,
    shift=st.integers(0, 50),
    seed=st.integers(0, 2**32),
)
def test_distances_within_a_moved_view_are_kept(n, spread, turn, shift, seed):
    p = np.random.default_rng(seed).integers(0, spread, (n, 2), dtype=np.int32)
    before = p.copy()
    rng = np.random.default_rng(seed)
    found = move(p, rng, ViewSettings(turn=turn, shift=shift))
    np.testing.assert_array_equal(p, before)
    for places in (found, p):
        assert places.shape == (n, 2)
    apart = [((one[:, None] - one[None]) ** 2).sum(axis=-1) for one in (p, found)]
    np.testing.assert_array_equal(*apart)
    away = np.abs(found.min(axis=0) - p.min(axis=0))
    assert (away <= shift).all()


def test_nothing_is_drawn_where_nothing_moves():
    p, rng = grid(4, 4), np.random.default_rng(0)
    assert move(p, rng, ViewSettings()) is p
    assert rng.random() == np.random.default_rng(0).random()


def test_a_slides_views_depend_on_nothing_but_seed_epoch_and_slide():
    ps = [grid(10, 10), grid(30, 40), grid(1, 1)]
    together = batch_views(ps, [view_generator(5, 2, i) for i in range(3)])
    for index, p in enumerate(ps):
        alone = slide_views(p, view_generator(5, 2, index))
        for view, rows in zip(together, alone, strict=True):
            np.testing.assert_array_equal(view[index], rows)
    other = slide_views(ps[1], view_generator(5, 3, 1))
    assert not np.array_equal(other[0], together[0][1])


def test_generators_are_unlike_for_neighbouring_numbers():
    first = {
        view_generator(seed, epoch, slide).random()
        for seed in range(10)
        for epoch in range(10)
        for slide in range(10)
    }
    assert len(first) == 1000


def test_wrong_settings_are_said_at_once():
    with pytest.raises(InputError, match=r"(?s)split_ratio.*mask_keep"):
        ViewSettings(split_ratio=1.2, mask_keep=(0.5, 2))
    with pytest.raises(InputError, match="0 to 10000, not -1"):
        ViewSettings(shift=-1)
    with pytest.raises(InputError, match="without tokens"):
        slide_views(np.zeros((0, 2), int), np.random.default_rng(0))


def test_views_import_without_torch():
    code = "import sys, spt_core.learning.views; print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"
