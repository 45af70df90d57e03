"""Calls that other threads send to the window, made safe beside PySide6.

napari's slicing thread (Preferences > Experimental > asynchronous) and notifications
from threads reach the window by superqt, which connects a Qt signal to
``Future.set_result`` of a future that napari does not keep. PySide6 does not keep it
either: where the future is gone when the signal comes, what lies in its memory by then
is called. Errors from nowhere, crashes, and a window that waits for ever for another
future's lock come of that.
"""

import sys
from collections import deque
from concurrent.futures import Future
from threading import current_thread, main_thread
from typing import Any, ClassVar

_SUPERQT = "superqt.utils._ensure_thread"


class LastingFuture(Future):
    """A future that lives until it was told, and a little longer: the call ends then.

    Where the caller is the window's own thread, no signal is involved.
    """

    _waiting: ClassVar[set[Any]] = set()
    _told: ClassVar[deque[Any]] = deque(maxlen=16)

    def __init__(self) -> None:
        super().__init__()
        if current_thread() is not main_thread():
            self._waiting.add(self)

    def set_result(self, result: Any) -> None:
        super().set_result(result)
        if self in self._waiting:
            self._told.append(self)
            self._waiting.discard(self)


def make_window_calls_safe() -> None:
    """Let superqt's futures live long enough; to be called where a window may be."""
    superqt = sys.modules.get(_SUPERQT)
    if superqt is not None and "PySide6" in sys.modules and hasattr(superqt, "Future"):
        superqt.Future = LastingFuture  # type: ignore[attr-defined]
