"""Checkpoints: by steps, by time, and by what they cost."""

import itertools

from spt_core.training.checkpoint_clock import MOST_SECONDS, CheckpointClock

LARGE, SMALL = 237_000_000, 250_000


class Clock:
    time = 100.0

    def __call__(self):
        return self.time


def written(seconds_per_step, *, size, steps=2000, every=50, writing=0.0):
    """At which times a run writes."""
    now = Clock()
    clock = CheckpointClock(every, now=now)
    found = []
    for step in range(1, steps + 1):
        now.time += seconds_per_step
        if clock.due(step):
            found.append((step, now.time - 100))
            now.time += writing
            clock.written(step, seconds=writing, size=size)
    return found


def test_a_small_model_is_written_by_steps():
    assert [step for step, _ in written(0.01, size=SMALL, steps=200)] == [
        *(50, 100, 150, 200)
    ]


def test_a_large_model_is_not_always_being_written():
    """Fifty steps take four seconds: once a minute all the same."""
    found = written(0.08, size=LARGE, writing=1.0)
    times = [time for _, time in found]
    gaps = [b - a for a, b in itertools.pairwise(times)]
    assert len(gaps) > 1
    assert min(gaps) >= 55
    assert max(gaps) < 75


def test_a_slow_disk_takes_a_twentieth_of_the_time():
    found = written(0.1, size=SMALL, writing=10.0, steps=8000)
    times = [time for _, time in found[1:]]
    gaps = [b - a for a, b in itertools.pairwise(times)]
    assert min(gaps) >= 200


def test_slow_steps_are_not_all_lost():
    """Two minutes per step: fifty of them would be more than an hour and a half."""
    (_, first), (_, second), *_ = written(120.0, size=LARGE, steps=20)
    assert second - first <= MOST_SECONDS + 120


def test_nothing_is_written_twice():
    now = Clock()
    clock = CheckpointClock(10, step=30, now=now)
    now.time += 2 * MOST_SECONDS
    assert not clock.due(30)
    assert clock.due(31)
    clock.written(31, seconds=0.0, size=1)
    assert not clock.due(31)
