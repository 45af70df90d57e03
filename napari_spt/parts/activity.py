"""The progress of the analysis in napari's activity area."""

from contextlib import suppress
from time import monotonic

from napari.utils import progress

# An update of napari's bar first handles all waiting events, which takes a while.
SECONDS_BETWEEN = 2.0


class ActivityBar:
    """One bar, shown while something runs.

    Creating and updating it handles waiting events, and one of those may update or
    close this very bar.
    """

    def __init__(self) -> None:
        self._bar: progress | None = None
        self._is_wanted = False
        self._is_updating = False
        self._updated = 0.0

    def show(self, done: int, total: int) -> None:
        self._is_wanted = True
        if self._is_updating or monotonic() - self._updated < SECONDS_BETWEEN:
            return
        self._is_updating = True
        # The window may be closed before this bar exists.
        with suppress(RuntimeError):
            if self._bar is None:
                self._bar = progress(total=total or None, desc="Slide analysis")
            if total:
                self._bar.total = total
                self._bar.update(done - self._bar.n)
        self._is_updating = False
        self._updated = monotonic()
        if not self._is_wanted:
            self.close()

    def close(self) -> None:
        self._is_wanted = False
        if self._is_updating:
            return  # the update that runs closes it
        self._updated = 0.0
        bar, self._bar = self._bar, None
        if bar is not None:
            with suppress(RuntimeError):
                bar.close()
