"""Alarms are raised when there is reason to, and once."""

from spt_core.training.alarms import Alarms, Collapsed, NotLearning


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


def test_a_collapse_is_reported_once():
    alarms = Alarms(chance=None, patience=0)
    (alarm,) = alarms.collapsed(1e-6, "patches")
    assert isinstance(alarm, Collapsed)
    assert "All patches have nearly the same embedding" in alarm.message
    assert not list(alarms.collapsed(1e-6, "patches"))
