"""A workaround: calls from other threads into the window, unsafe with PySide6.

napari's slicing thread (Preferences > Experimental > asynchronous) and notifications
from threads reach the window through superqt, which connects a Qt signal to
``Future.set_result`` of a future that napari does not keep.

Versions: superqt 0.7.8 to 0.9 with PySide6 6.8 to 6.11, none newer at the time.
Upstream problem: PySide6 does not keep the object of a connected bound method alive, so
a signal that arrives after the future was freed calls whatever lies in its memory by
then: unexplained errors, crashes, and a window that waits forever for a lock.
"""

import sys
import weakref
from collections import deque
from concurrent.futures import Future
from threading import current_thread, main_thread
from typing import Any, ClassVar

_SUPERQT = "superqt.utils._ensure_thread"


class LastingFuture(Future):
    """A future that lives until it has its result, and a little longer: the call ends.

    Where the caller is the window's own thread, no signal is involved.
    """

    _waiting: ClassVar[set[Any]] = set()
    _finished: ClassVar[deque[Any]] = deque(maxlen=16)

    def __init__(self) -> None:
        super().__init__()
        if current_thread() is not main_thread():
            self._waiting.add(self)

    def set_result(self, result: Any) -> None:
        super().set_result(result)
        if self in self._waiting:
            self._finished.append(self)
            self._waiting.discard(self)


def make_window_calls_safe() -> None:
    """Let superqt's futures live long enough, where they would not.

    To be called wherever a window may be open; calling it again does nothing.
    """
    superqt = sys.modules.get(_SUPERQT)
    if superqt is None or "PySide6" not in sys.modules:
        return
    # A superqt with a future of its own has been mended, or is patched already.
    uses_plain_futures = getattr(superqt, "Future", None) is Future
    if uses_plain_futures and not connections_keep_objects():
        superqt.Future = LastingFuture  # type: ignore[attr-defined]


def connections_keep_objects() -> bool:
    """Whether connecting a signal to an object's method keeps that object alive."""
    from qtpy.QtCore import QObject

    sender, receiver = QObject(), Future()
    alive = weakref.ref(receiver)
    sender.objectNameChanged.connect(receiver.set_result)
    del receiver
    return alive() is not None
