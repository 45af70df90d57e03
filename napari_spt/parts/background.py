"""Work in a thread, with its result handed to the window."""

from collections.abc import Callable
from typing import Any

from napari.qt.threading import create_worker
from qtpy.compat import isalive
from qtpy.QtCore import QObject


def run_in_background(
    work: Callable[[], Any],
    on_result: Callable[[Any], None],
    on_error: Callable[[Exception], None],
    *,
    owner: QObject,
) -> None:
    """Run ``work`` in a thread, then call one of the others in the window's thread.

    Neither is called where ``owner``, the widget that asked, is gone by then. Errors
    are caught here: napari would show their type and print the thread's variables,
    slide names and paths among them.
    """

    def guarded() -> tuple[Any, Exception | None]:
        try:
            return work(), None
        except Exception as error:  # noqa: BLE001
            return None, error

    def finished(outcome: tuple[Any, Exception | None]) -> None:
        result, error = outcome
        if not isalive(owner):
            return
        if error is None:
            on_result(result)
        else:
            on_error(error)

    worker = create_worker(guarded)
    worker.returned.connect(finished)
    worker.start()
