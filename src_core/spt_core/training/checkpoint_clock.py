"""When a training run writes a checkpoint: by steps, by time, and by what it costs."""

import time
from collections.abc import Callable

# No more than this is written on average, nor this share of the time spent on it.
BYTES_PER_SECOND = 4e6
SHARE_OF_TIME = 0.05
# What is smaller, and written sooner, than this is written as often as asked.
SMALL_BYTES, SHORT_SECONDS = 20e6, 1.0
# However few steps were taken, no more than this is lost.
MOST_SECONDS = 600.0


class CheckpointClock:
    """Says when a checkpoint is due.

    After ``steps`` steps, but not so soon that a large model is always being written:
    237 MB are written once a minute at most. And after ten minutes, however few steps
    those were.
    """

    def __init__(
        self, steps: int, *, step: int = 0, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._steps, self._now = steps, now
        self._step, self._time = step, now()
        self._least = 0.0

    def due(self, step: int) -> bool:
        if step <= self._step:
            return False
        seconds = self._now() - self._time
        return seconds >= self._least and (
            step - self._step >= self._steps or seconds >= MOST_SECONDS
        )

    def written(self, step: int, *, seconds: float, size: int) -> None:
        """A checkpoint of ``size`` bytes was written, which took so many seconds."""
        self._step, self._time = step, self._now()
        self._least = 0.0
        if size > SMALL_BYTES or seconds > SHORT_SECONDS:
            self._least = max(size / BYTES_PER_SECOND, seconds / SHARE_OF_TIME)
