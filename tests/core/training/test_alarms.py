"""Alarms are raised when there is reason to, and once."""

from spt_core.training.alarms import Alarms, Collapsed, NotLearning, advice, patience


def losses(alarms, loss, steps):
    found = []
    for step in range(1, steps + 1):
        found += [(step, alarm) for alarm in alarms.still_at_chance(loss, step)]
    return found


def test_a_loss_at_chance_is_reported_once_after_the_warm_up():
    ((step, alarm),) = losses(Alarms(chance=2.0, patience=30.5), 2.01, 100)
    assert step == 31
    assert isinstance(alarm, NotLearning)
    assert "after 31 steps the loss 2.010" in alarm.message


def test_a_loss_that_has_left_chance_or_whose_chance_is_unknown_is_not():
    assert not losses(Alarms(chance=2.0, patience=0), 1.9, 100)
    assert not losses(Alarms(chance=None, patience=0), 2.0, 100)


def test_a_run_is_given_time():
    """Some hundred steps, a quarter of a long run, and the whole of a short one."""
    assert patience(1000, 0.1) == 300
    assert patience(350, 0.1) == 300
    assert patience(6000, 0.1) == 1500
    assert patience(6000, 0.5) == 3000
    assert patience(60, 0.1) == 60


def test_a_loss_that_passes_the_level_of_chance_is_not_reported():
    alarms = Alarms(chance=5.0, patience=100)
    falling = [8.0 - 0.02 * step for step in range(400)]
    found = [
        alarm
        for step, loss in enumerate(falling, start=1)
        for alarm in alarms.still_at_chance(loss, step)
    ]
    assert not found


def test_runs_that_learn_late_are_not_reported():
    """At chance for 250 steps of 900, then not."""
    alarms = Alarms(chance=4.0, patience=patience(900, 0.1))
    curve = [4.0] * 250 + [4.0 - 0.005 * step for step in range(650)]
    for step, loss in enumerate(curve, start=1):
        assert not list(alarms.still_at_chance(loss, step))


def test_the_advice_is_for_what_the_run_does():
    assert "--head batchnorm" in advice(plain_head=True)
    assert "--head" not in advice(plain_head=False)
    assert "learning-rate" in advice(plain_head=False)


def test_a_collapse_is_a_tenth_of_what_was_seen_before():
    alarms = Alarms(chance=None, patience=0)
    assert not alarms.has_collapsed(0.05)
    assert not alarms.has_collapsed(0.5)
    assert not alarms.has_collapsed(0.06)
    assert alarms.has_collapsed(0.04)
    assert Alarms(chance=None, patience=0).has_collapsed(1e-5)


def test_a_collapse_is_reported_once():
    alarms = Alarms(chance=None, patience=0)
    (alarm,) = alarms.collapsed(1e-6, "patches")
    assert isinstance(alarm, Collapsed)
    assert "All patches have nearly the same embedding" in alarm.message
    assert not list(alarms.collapsed(1e-6, "patches"))
