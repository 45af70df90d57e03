"""A slide without a model."""

import numpy as np
import pytest

from spt_core.insight.exploring import explore
from spt_core.insight.similarity import LookAlikes
from spt_core.tokens import Tokens


def explored(x, **options):
    places = np.zeros((len(x), 2), np.int64)
    return explore(Tokens(x, places, places), **options)


def tissues(rng, counts, dim=64, noise=0.5):
    kinds = np.random.default_rng(0).normal(size=(len(counts), dim)) * 2
    truth = np.repeat(np.arange(len(counts)), counts)
    return kinds[truth] + noise * rng.normal(size=(len(truth), dim)), truth


def colours_by_truth(found, truth):
    rgb = found.kinds.rgb[found.labels]
    return {k: {tuple(c) for c in rgb[truth == k]} for k in np.unique(truth)}


def test_kinds_are_found_and_keep_their_colours_from_slide_to_slide():
    first, truth1 = tissues(np.random.default_rng(1), (300, 200, 100, 50))
    second, truth2 = tissues(np.random.default_rng(2), (20, 400, 80, 300))
    one = explored(first, kinds=4)
    two = explored(second, kinds=4, known=one.kinds)
    colours1, colours2 = colours_by_truth(one, truth1), colours_by_truth(two, truth2)
    assert all(len(found) == 1 for found in colours1.values())
    assert colours1 == colours2
    assert len({next(iter(found)) for found in colours1.values()}) == 4


def test_colours_stay_without_handing_anything_on():
    first, truth1 = tissues(np.random.default_rng(1), (300, 200, 100))
    second, truth2 = tissues(np.random.default_rng(2), (50, 300, 80))
    one, two = explored(first, kinds=3), explored(second, kinds=3)
    assert colours_by_truth(one, truth1) == colours_by_truth(two, truth2)


def test_a_new_kind_gets_a_colour_of_its_own():
    x, truth = tissues(np.random.default_rng(1), (300, 200, 100, 60))
    known = explored(x[truth < 3], kinds=3).kinds
    found = explored(x, kinds=4, known=known)
    assert len({tuple(one) for one in found.kinds.rgb.tolist()}) == 4
    assert set(known.numbers.tolist()) < set(found.kinds.numbers.tolist())


def test_outliers_stand_out():
    x, _ = tissues(np.random.default_rng(1), (300, 200, 100))
    x[[7, 411]] += 6
    found = explored(x, kinds=3)
    assert set(found.outliers[:2]) == {7, 411}
    assert len(found.outliers) < 20


def test_look_alikes_are_of_the_same_kind():
    x, truth = tissues(np.random.default_rng(1), (300, 200, 100))
    similarity = LookAlikes(x).like([310])
    assert similarity.argmax() == 310
    assert similarity.max() == pytest.approx(1)
    assert (truth[np.argsort(-similarity)[:151]] == 1).all()


def test_one_seed_gives_one_map():
    x = np.random.default_rng(1).normal(size=(500, 16))
    one, again, other = (explored(x, seed=seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(one.labels, again.labels)
    np.testing.assert_array_equal(one.kinds.rgb, again.kinds.rgb)
    np.testing.assert_array_equal(one.outlier_score, again.outlier_score)
    assert (one.labels != other.labels).any()


@pytest.mark.parametrize("n", [0, 1, 2, 7])
def test_hardly_any_patch(n):
    found = explored(np.random.default_rng(0).normal(size=(n, 8)))
    assert len(found.labels) == n
    assert len(found.outlier_score) == n


def test_identical_patches_are_one_kind():
    found = explored(np.ones((50, 8)))
    assert set(found.labels.tolist()) == {0}
    assert len(found.outliers) == 0
    again = explored(np.ones((50, 8)), known=found.kinds)
    assert again.kinds.rgb.tolist() == found.kinds.rgb.tolist()


def test_two_different_patches_are_two_kinds():
    x = np.repeat(np.eye(2, 8), 25, axis=0)
    assert len(set(explored(x).labels.tolist())) == 2
