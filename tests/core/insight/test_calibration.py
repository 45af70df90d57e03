"""Whether a temperature is found that makes shares mean what they say."""

import numpy as np
import pytest

from spt_core.insight.calibration import calibration_error, fit_temperature, softmax


def test_a_known_temperature_is_found():
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(4000, 3)) * 2
    y = np.array([rng.choice(3, p=share) for share in softmax(scores)])
    assert fit_temperature(scores * 3, y) == pytest.approx(3, rel=0.1)
    before = calibration_error(softmax(scores * 3), y)
    after = calibration_error(softmax(scores * 3, fit_temperature(scores * 3, y)), y)
    assert before > 0.15
    assert after < 0.03


def test_calibration_error_by_hand():
    shares = np.array([[0.95, 0.05], [0.95, 0.05], [0.65, 0.35], [0.35, 0.65]])
    y = np.array([0, 1, 0, 0])
    expected = 0.5 * abs(0.95 - 0.5) + 0.5 * abs(0.65 - 0.5)
    assert calibration_error(shares, y) == pytest.approx(expected)


def test_few_slides_all_right_do_not_make_a_model_certain():
    scores = np.array([[1.0, -1.0], [-1.0, 1.0]])
    warmth = fit_temperature(scores, np.array([0, 1]))
    assert softmax(scores, warmth).max() < 0.99
