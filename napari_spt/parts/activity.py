"""The analysis in napari's activity area."""

from contextlib import suppress
from time import monotonic

from napari.utils import progress

# napari's bar lets all that waits in the window go first, which takes a while.
SECONDS_BETWEEN = 2.0


class ActivityBar:
    """One bar, there while something runs.

    Making it and telling it numbers lets the window do what waits, and that may be to
    tell or to close this bar.
    """

    def __init__(self) -> None:
        self._bar: progress | None = None
        self._is_wanted = False
        self._is_telling = False
        self._told = 0.0

    def show(self, done: int, total: int) -> None:
        self._is_wanted = True
        if self._is_telling or monotonic() - self._told < SECONDS_BETWEEN:
            return
        self._is_telling = True
        # The window may be closed before this bar is made.
        with suppress(RuntimeError):
            if self._bar is None:
                self._bar = progress(total=total or None, desc="Slide analysis")
            if total:
                self._bar.total = total
                self._bar.update(done - self._bar.n)
        self._is_telling = False
        self._told = monotonic()
        if not self._is_wanted:
            self.close()

    def close(self) -> None:
        self._is_wanted = False
        if self._is_telling:
            return  # whoever tells it closes it
        self._told = 0.0
        bar, self._bar = self._bar, None
        if bar is not None:
            with suppress(RuntimeError):
                bar.close()
