"""The learning rate rises in a line, then falls by half a cosine."""

from math import cos, pi

import pytest

from spt_core.training.schedule import Schedule


def test_it_rises_in_equal_steps_to_the_peak():
    rates = [Schedule(3e-4, 0.1, 100).rate(step) for step in range(10)]
    assert rates == pytest.approx([3e-4 * (step + 1) / 10 for step in range(10)])


def test_it_falls_by_half_a_cosine_to_nearly_zero():
    schedule = Schedule(2.0, 0.1, 100)
    assert schedule.rate(10) == 2.0
    assert schedule.rate(55) == pytest.approx(1.0)
    assert schedule.rate(99) == pytest.approx(1 + cos(pi * 89 / 90))
    falling = [schedule.rate(step) for step in range(10, 100)]
    assert falling == sorted(falling, reverse=True)


@pytest.mark.parametrize(("warm_up", "steps"), [(0.0, 1), (0.0, 7), (0.1, 2), (1.0, 3)])
def test_short_runs_have_a_rate_in_every_step(warm_up, steps):
    rates = [Schedule(1.0, warm_up, steps).rate(step) for step in range(steps)]
    assert all(0 < rate <= 1 for rate in rates)
    assert max(rates) == 1.0
