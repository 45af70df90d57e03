"""Comparisons of two methods whose difference, or lack of one, is known."""

from dataclasses import replace
from time import process_time

import numpy as np
import pytest

from spt_core.studies.paired import holm, paired_difference
from spt_core.studies.scores import (
    METRICS,
    OutOfFold,
    interval,
    mean_of_folds,
    patient_weights,
)


def folds_of(n, folds, seed=0):
    return np.random.default_rng(seed).permutation(np.arange(n) % folds)


def run_of(y, fold, skill, rng, noise=None):
    """Shares of two classes; with the same ``noise`` two methods err alike."""
    noise = rng.normal(size=len(y)) if noise is None else noise
    second = 1 / (1 + np.exp(-(skill * (2 * y - 1) + noise)))
    return OutOfFold(y, fold, np.stack([1 - second, second], axis=1))


def slides_of(patients, each):
    """Classes and patients' names, ``each`` slides per patient."""
    y = np.repeat(np.arange(patients) % 2, each)
    return y, [f"p{i // each}" for i in range(patients * each)]


def test_p_is_even_where_the_methods_are_alike():
    y, patients = slides_of(24, 2)
    rng = np.random.default_rng(0)
    found = []
    for trial in range(120):
        fold = np.repeat(folds_of(24, 3, trial), 2)
        runs = [run_of(y, fold, 0.4, rng) for _ in range(2)]
        found.append(
            paired_difference(
                runs[:1], runs[1:], patients, "auc", permutations=200, draws=2
            ).p
        )
    assert 0.42 < np.mean(found) < 0.58
    assert np.mean(np.array(found) <= 0.05) < 0.12
    assert np.mean(np.array(found) <= 0.5) > 0.35


def test_slides_of_one_patient_do_not_count_as_many():
    """Each method is right or wrong of a whole patient: alike but for chance."""
    rng = np.random.default_rng(1)
    y, patients = slides_of(16, 10)
    fold = np.zeros(len(y), int)
    found = []
    for _ in range(80):
        runs = [
            run_of(y, fold, 0.3, rng, np.repeat(rng.normal(size=16), 10))
            for _ in range(2)
        ]
        found.append(
            paired_difference(
                runs[:1], runs[1:], patients, "accuracy", permutations=200, draws=2
            ).p
        )
    assert np.mean(np.array(found) <= 0.05) < 0.15


@pytest.mark.parametrize("metric", list(METRICS))
def test_a_real_difference_is_found_and_its_sign_is_ours_minus_theirs(metric):
    rng = np.random.default_rng(2)
    y, patients = slides_of(60, 1)
    fold = folds_of(60, 5)
    good, poor = run_of(y, fold, 2.5, rng), run_of(y, fold, 0.0, rng)
    found = paired_difference([good], [poor], patients, metric, permutations=500)
    assert found.p < 0.01
    sign = -1 if metric == "brier" else 1
    assert sign * found.mean > 0
    assert found.low < found.mean < found.high
    assert not found.low < 0 < found.high
    expected = mean_of_folds([good], metric) - mean_of_folds([poor], metric)
    assert found.mean == pytest.approx(expected[0])
    back = paired_difference([poor], [good], patients, metric, permutations=500)
    assert back.mean == pytest.approx(-found.mean)
    assert back.p == pytest.approx(found.p, abs=0.01)


def test_a_method_does_not_differ_from_itself():
    y, patients = slides_of(20, 1)
    run = run_of(y, folds_of(20, 2), 1, np.random.default_rng(3))
    found = paired_difference([run], [run], patients, "f1", permutations=50)
    assert (found.mean, found.low, found.high, found.p) == (0, 0, 0, 1)


def test_the_p_value_is_that_of_all_swaps():
    """Ten patients: all 1,024 ways to swap them, scored one by one."""
    rng = np.random.default_rng(4)
    y, patients = slides_of(10, 2)
    fold = np.repeat(np.arange(10) // 2 % 2, 2)
    a, b = run_of(y, fold, 0.8, rng), run_of(y, fold, 0.2, rng)

    def difference(swap):
        taken = np.repeat(swap, 2)[:, None]
        mixed = [
            replace(a, shares=np.where(taken, second.shares, first.shares))
            for first, second in ((a, b), (b, a))
        ]
        ours, theirs = (mean_of_folds([one], "auc")[0] for one in mixed)
        return ours - theirs

    every = [difference(np.array(list(f"{i:010b}")) == "1") for i in range(1024)]
    exact = np.mean(np.abs(every) >= abs(every[0]) - 1e-9)
    found = paired_difference([a], [b], patients, "auc", permutations=4000, draws=2)
    assert 0.01 < exact < 0.9
    assert found.p == pytest.approx(exact, abs=0.03)


def test_the_paired_interval_is_narrower_where_methods_err_alike():
    rng = np.random.default_rng(5)
    y, patients = slides_of(80, 1)
    fold = folds_of(80, 4)
    noise = 1.5 * rng.normal(size=80)
    ours = run_of(y, fold, 1.0, rng, noise)
    theirs = run_of(y, fold, 0.8, rng, noise + 0.1 * rng.normal(size=80))
    found = paired_difference([ours], [theirs], patients, "auc")
    unpaired = [
        mean_of_folds([run], "auc", patient_weights(y, patients, seed=seed))
        for seed, run in enumerate((ours, theirs))
    ]
    apart = interval(unpaired[0] - unpaired[1])
    assert found.high - found.low < 0.5 * (apart.high - apart.low)


def test_runs_are_paired_by_their_folds_whatever_their_order():
    """Three seeds of ours in two drawings of the folds, one run of theirs in each."""
    rng = np.random.default_rng(6)
    y, patients = slides_of(30, 1)
    drawings = [folds_of(30, 3, seed) for seed in (0, 1)]
    theirs = [run_of(y, fold, 0.5, rng) for fold in drawings]
    ours = [run_of(y, fold, 1.0, rng) for fold in drawings for _ in range(3)]
    found = paired_difference(ours, theirs, patients, "auc", permutations=300)
    shuffled = [ours[i] for i in (5, 0, 3, 1, 4, 2)]
    again = paired_difference(shuffled, theirs[::-1], patients, "auc", permutations=300)
    assert found.mean == pytest.approx(again.mean)
    assert found.p == pytest.approx(again.p, abs=0.02)
    expected = mean_of_folds(ours, "auc")[0] - mean_of_folds(theirs, "auc")[0]
    assert found.mean == pytest.approx(expected)
    # Two runs of theirs per drawing beside three of ours: the means stay those of all.
    more = [*theirs, *(run_of(y, fold, 0.5, rng) for fold in drawings)]
    found = paired_difference(ours, more, patients, "auc", permutations=2, draws=2)
    expected = mean_of_folds(ours, "auc")[0] - mean_of_folds(more, "auc")[0]
    assert found.mean == pytest.approx(expected)


def test_parts_of_several_drawings_are_not_taken_for_one_another():
    rng = np.random.default_rng(7)
    y, patients = slides_of(30, 1)
    parts = [np.where(np.isin(np.arange(30), rng.permutation(30)[:10]), 0, -1)
             for _ in range(3)]  # fmt: skip
    ours = [run_of(y, fold, 1.0, rng) for fold in parts]
    theirs = [run_of(y, fold, 1.0, rng) for fold in parts]
    found = paired_difference(ours, theirs[::-1], patients, "accuracy", draws=2)
    each = [mean_of_folds(runs, "accuracy")[0] for runs in (ours, theirs)]
    assert found.mean == pytest.approx(each[0] - each[1])


def test_a_missing_fold_is_left_out_of_both():
    rng = np.random.default_rng(8)
    y, patients = slides_of(30, 1)
    fold = folds_of(30, 3)
    ours, theirs = run_of(y, fold, 1.0, rng), run_of(y, fold, 0.5, rng)
    partly = replace(ours, fold=np.where(fold == 1, -1, fold))
    found = paired_difference([partly], [theirs], patients, "auc", draws=2)
    kept = [replace(run, fold=partly.fold) for run in (ours, theirs)]
    expected = mean_of_folds(kept[:1], "auc")[0] - mean_of_folds(kept[1:], "auc")[0]
    assert found.mean == pytest.approx(expected)


def test_runs_in_different_folds_are_not_compared():
    y, patients = slides_of(30, 1)
    rng = np.random.default_rng(9)
    runs = [run_of(y, folds_of(30, 3, seed), 1.0, rng) for seed in (0, 1)]
    found = paired_difference(runs[:1], runs[1:], patients, "auc")
    assert np.isnan([found.mean, found.low, found.high, found.p]).all()


def test_sixty_patients_and_ten_runs_take_seconds():
    rng = np.random.default_rng(10)
    y, patients = slides_of(60, 2)
    folds = [np.repeat(folds_of(60, 10, seed), 2) for seed in range(10)]
    ours, theirs = ([run_of(y, f, s, rng) for f in folds] for s in (1.0, 0.8))
    began = process_time()
    paired_difference(ours, theirs, patients, "accuracy")
    assert process_time() - began < 10


def test_holm_by_hand():
    # Smallest first: 4 x .01, 3 x .02, 2 x .03, 1 x .04, none below the one before.
    assert holm([0.04, 0.01, 0.03, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []
    found = holm([0.01, float("nan"), 0.02])
    assert np.isnan(found[1])
    assert [found[0], found[2]] == pytest.approx([0.02, 0.02])


def test_holm_is_that_of_statsmodels():
    """Values by which statsmodels tests its own, from R's multtest."""
    p = [0.001, 0.002, 0.003, 0.004, 0.005, 0.05, 0.06, 0.07, 0.08, 0.09]
    expected = [0.01, 0.018, 0.024, 0.028, 0.03, 0.25, 0.25, 0.25, 0.25, 0.25]
    assert holm(p) == pytest.approx(expected)
    p = [0.838541367553, 0.642193923795, 0.680845947633, 0.967833824309, 0.71626938238,
         0.177096952723, 5.23656777208e-5, 0.0202732688798, 0.00028140506198,
         0.0149877310796]  # fmt: skip
    expected = [1, 1, 1, 1, 1, 1, 5.23656777208e-4, 0.1419128821586, 0.00253264555782,
                0.1199018486368]  # fmt: skip
    assert holm(p) == pytest.approx(expected)
