"""Scores against scikit-learn; intervals against what they promise."""

import warnings

import numpy as np
import pytest
from sklearn.metrics import (
    average_precision_score,
    balanced_accuracy_score,
    brier_score_loss,
    cohen_kappa_score,
    f1_score,
    roc_auc_score,
)

from spt_core.studies.scores import (
    METRICS,
    ORDERED_METRICS,
    OutOfFold,
    asked_weights,
    fold_scores,
    in_order,
    interval,
    mean_of_folds,
    patient_weights,
    pooled_score,
)


def made(rng, n=90, classes=3, skill=1.0):
    y = rng.integers(classes, size=n)
    logits = rng.normal(size=(n, classes)) + skill * np.eye(classes)[y]
    shares = np.exp(logits)
    return y, shares / shares.sum(axis=1, keepdims=True)


def sklearn_scores(y, shares, weight=None):
    predicted = shares.argmax(axis=1)
    classes = shares.shape[1]
    binary = classes == 2
    kept = np.ones(len(y), bool) if weight is None else weight > 0
    present = np.unique(y[kept])
    asked = (1,) if binary else present
    aucs = [
        roc_auc_score(y == one, shares[:, one], sample_weight=weight) for one in asked
    ]
    precisions = [
        average_precision_score(y == one, shares[:, one], sample_weight=weight)
        for one in asked
    ]
    # Not scikit-learn's: it takes no shares that were rounded to make ties.
    brier = ((shares - np.eye(classes)[y]) ** 2).sum(axis=1)
    return {
        "accuracy": balanced_accuracy_score(y, predicted, sample_weight=weight),
        "f1": f1_score(
            y,
            predicted,
            average="binary" if binary else "macro",
            labels=None if binary else present,
            sample_weight=weight,
            zero_division=0,
        ),
        "auc": np.mean(aucs),
        "auprc": np.mean(precisions),
        "brier": np.average(brier, weights=weight) / (2 if binary else 1),
    }


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_scores_are_those_of_scikit_learn(classes):
    y, shares = made(np.random.default_rng(classes), classes=classes)
    shares = shares.round(1)  # ties
    expected = sklearn_scores(y, shares)
    for name, metric in METRICS.items():
        assert metric(y, shares, np.ones((1, len(y))))[0] == pytest.approx(
            expected[name]
        )


@pytest.mark.parametrize("classes", [2, 4])
def test_a_weight_counts_as_so_many_slides(classes):
    rng = np.random.default_rng(7)
    y, shares = made(rng, classes=classes)
    weights = rng.integers(0, 4, size=(6, len(y))).astype(float)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for draw in weights:
            repeated = np.repeat(np.arange(len(y)), draw.astype(int))
            expected = sklearn_scores(y[repeated], shares[repeated])
            for name, metric in METRICS.items():
                found = metric(y, shares, draw[None])[0]
                assert found == pytest.approx(expected[name]), name


@pytest.mark.parametrize("classes", [2, 4])
def test_the_brier_score_is_that_of_scikit_learn(classes):
    y, shares = made(np.random.default_rng(2), classes=classes)
    expected = brier_score_loss(y, shares[:, 1] if classes == 2 else shares)
    assert METRICS["brier"](y, shares, np.ones((1, 90)))[0] == pytest.approx(expected)


def test_average_precision_of_a_hand_made_case():
    # From the top: right, wrong, then a right and a wrong one alike.
    y = np.array([1, 0, 1, 0])
    second = np.array([0.9, 0.8, 0.4, 0.4])
    shares = np.stack([1 - second, second], axis=1)
    found = METRICS["auprc"](y, shares, np.ones((1, 4)))[0]
    assert found == pytest.approx(0.5 * 1 + 0.5 * 2 / 4)
    only_one = METRICS["auprc"](np.ones(4, int), shares, np.ones((1, 4)))[0]
    assert np.isnan(only_one)


def test_many_draws_are_scored_in_pieces(monkeypatch):
    rng = np.random.default_rng(4)
    y, shares = made(rng)
    weights = rng.integers(0, 3, size=(50, 90)).astype(float)
    whole = METRICS["auprc"](y, shares, weights)
    monkeypatch.setattr("spt_core.studies.scores.MOST_PAIRS", 1000)
    np.testing.assert_allclose(METRICS["auprc"](y, shares, weights), whole)


def test_kappa_is_that_of_scikit_learn_in_the_order_of_the_classes():
    rng = np.random.default_rng(9)
    y, shares = made(rng, classes=4)
    kappa = ORDERED_METRICS["kappa"]
    predicted = shares.argmax(axis=1)
    expected = cohen_kappa_score(y, predicted, weights="quadratic")
    assert kappa(y, shares, np.ones((1, 90)))[0] == pytest.approx(expected)
    draw = rng.integers(0, 4, size=90)
    rows = np.repeat(np.arange(90), draw)
    again = cohen_kappa_score(y[rows], predicted[rows], weights="quadratic")
    assert kappa(y, shares, draw[None].astype(float))[0] == pytest.approx(again)

    order = [2, 0, 3, 1]  # from lowest to highest
    run = OutOfFold(y, np.zeros(90, int), shares)
    rank = {name: place for place, name in enumerate(order)}
    ranked = [[rank[one] for one in values] for values in (y, predicted)]
    expected = cohen_kappa_score(*ranked, weights="quadratic")
    assert pooled_score([in_order(run, order)], "kappa") == pytest.approx(expected)


def test_a_fold_with_one_class_has_no_auc_and_does_not_count():
    y = np.array([0, 1, 0, 1, 1, 1])
    shares = np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.7, 0.3], [0, 1], [1, 0]])
    run = OutOfFold(y, np.array([0, 0, 0, 0, 1, 1]), shares)
    scores = fold_scores(run, "auc")
    assert np.isnan(scores[1])
    assert mean_of_folds([run], "auc")[0] == scores[0] == 0.75


def test_auc_within_folds_does_not_compare_scores_of_different_models():
    # Two folds, each in perfect order; the second model's scores are all higher.
    y = np.array([0, 1, 0, 1])
    second = np.array([0.1, 0.2, 0.6, 0.9])
    run = OutOfFold(y, np.array([0, 0, 1, 1]), np.stack([1 - second, second], axis=1))
    assert mean_of_folds([run], "auc")[0] == 1
    assert pooled_score([run], "auc") == 0.75


def test_patients_are_drawn_whole_and_within_their_class():
    y = np.array([0, 0, 0, 1, 1, 1, 1, 0, 1])
    patients = ["a", "a", "b", "c", "c", "d", "e", "f", "f"]
    weights = patient_weights(y, patients, draws=500, seed=1)
    assert (weights[:, 0] == weights[:, 1]).all()
    assert (weights[:, 3] == weights[:, 4]).all()
    assert (weights[:, [0, 2]].sum(axis=1) == 2).all()  # two patients of class 0
    assert (weights[:, [3, 5, 6]].sum(axis=1) == 3).all()
    assert (weights[:, 7:] == 1).all()  # the only patient of both classes
    again = patient_weights(y, patients, draws=500, seed=1)
    np.testing.assert_array_equal(weights, again)


def test_an_interval_over_patients_is_wider_than_one_over_slides():
    rng = np.random.default_rng(3)
    # 20 patients with 10 slides each, and a model that is right or wrong of a patient.
    y = np.repeat(np.arange(20) % 2, 10)
    right = np.repeat(rng.random(20) < 0.75, 10)
    predicted = np.where(right, y, 1 - y)
    run = OutOfFold(y, np.zeros(200, int), np.eye(2)[predicted])
    patients = [f"p{i // 10}" for i in range(200)]
    slides = [f"s{i}" for i in range(200)]

    def width(groups):
        weights = patient_weights(y, groups, seed=0)
        found = interval(mean_of_folds([run], "accuracy", weights))
        return found.high - found.low

    assert width(patients) > 2 * width(slides)


@pytest.mark.parametrize("metric", ["accuracy", "auc"])
def test_intervals_hold_the_truth_about_as_often_as_they_say(metric):
    rng = np.random.default_rng(11)
    y, shares = made(rng, n=4000, classes=2)
    truth = METRICS[metric](y, shares, np.ones((1, 4000)))[0]
    hits = 0
    for trial in range(200):
        y, shares = made(rng, n=80, classes=2)
        run = OutOfFold(y, np.zeros(80, int), shares)
        weights = patient_weights(y, [str(i) for i in range(80)], draws=400, seed=trial)
        found = interval(mean_of_folds([run], metric, weights))
        hits += found.low <= truth <= found.high
    assert 175 <= hits <= 200


def test_large_folds_are_compared_in_pieces(monkeypatch):
    y, shares = made(np.random.default_rng(5), n=300, classes=2)
    one = np.ones((1, 300))
    whole = METRICS["auc"](y, shares, one)
    monkeypatch.setattr("spt_core.studies.scores.MOST_PAIRS", 1000)
    np.testing.assert_allclose(METRICS["auc"](y, shares, one), whole)


def test_patients_who_were_only_learned_from_are_not_drawn():
    """An interval of a given split is that of its test part alone."""
    rng = np.random.default_rng(3)
    y = np.arange(40) % 2
    shares = rng.dirichlet([2, 2], 40)
    people = [f"p{i // 2}" for i in range(40)]
    fold = np.where(np.arange(40) < 24, -1, 0)
    whole = [OutOfFold(y, fold, shares)]
    test = [OutOfFold(y[24:], fold[24:], shares[24:])]
    found = mean_of_folds(whole, "accuracy", asked_weights(whole, people))
    alone = mean_of_folds(test, "accuracy", patient_weights(y[24:], people[24:]))
    np.testing.assert_array_equal(found, alone)
