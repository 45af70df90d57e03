"""Slopes of shares whose calibration is known; reliability against the error."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from spt_core.insight.calibration import calibration_error
from spt_core.studies.calibration_scores import calibration_slope, reliability


def calibrated(classes, n=20_000, seed=0):
    """Labels drawn from the shares themselves."""
    rng = np.random.default_rng(seed)
    logits = 1.5 * rng.normal(size=(n, classes))
    shares = np.exp(logits)
    shares /= shares.sum(axis=1, keepdims=True)
    y = (rng.random((n, 1)) > shares.cumsum(axis=1)).sum(axis=1)
    return np.minimum(y, classes - 1), shares


def sharper(shares, power):
    powered = shares**power
    return powered / powered.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_the_slope_is_1_where_shares_are_calibrated(classes):
    y, shares = calibrated(classes)
    assert calibration_slope(y, shares) == pytest.approx(1, abs=0.05)
    assert calibration_slope(y, sharper(shares, 2)) == pytest.approx(0.5, abs=0.03)
    assert calibration_slope(y, sharper(shares, 0.5)) == pytest.approx(2, abs=0.1)


def test_the_slope_of_two_classes_is_that_of_a_logistic_regression():
    y, shares = calibrated(2, n=200)
    odds = np.log(shares[:, 1] / shares[:, 0])
    plain = LogisticRegression(C=1e9, tol=1e-10).fit(odds[:, None], y)
    assert calibration_slope(y, shares) == pytest.approx(plain.coef_[0, 0], rel=1e-3)


@pytest.mark.parametrize("classes", [2, 3])
def test_no_slope_is_best_where_all_are_in_order(classes):
    y = np.arange(12) % classes
    assert np.isnan(calibration_slope(y, 0.8 * np.eye(classes)[y] + 0.1))
    assert np.isnan(calibration_slope(np.zeros(12, int), np.full((12, classes), 0.4)))


def test_shares_of_0_that_are_wrong_have_a_slope():
    y = np.array([0, 1, 0, 1, 0, 1])
    shares = np.eye(2)[[0, 1, 1, 1, 0, 0]]
    assert 0 < calibration_slope(y, shares) < 0.2


def test_reliability_is_the_calibration_error_taken_apart():
    y, shares = calibrated(3, n=300)
    bins = reliability(y, shares)
    assert sum(count for _, _, count in bins) == 300
    error = sum(count * abs(sure - right) for sure, right, count in bins) / 300
    assert error == pytest.approx(calibration_error(shares, y))
    assert [sure for sure, _, _ in bins] == sorted(sure for sure, _, _ in bins)
