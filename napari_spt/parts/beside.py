"""Work beside the window."""

from collections.abc import Callable
from typing import Any

from napari.qt.threading import create_worker
from qtpy.compat import isalive
from qtpy.QtCore import QObject


def beside(
    work: Callable[[], Any],
    then: Callable[[Any], None],
    otherwise: Callable[[Exception], None],
    *,
    of: QObject,
) -> None:
    """Do ``work`` in a thread, and say in the window's what came of it.

    Where the widget that it is ``of`` is gone by then, nothing is said.
    An error is handed on as it is: napari would show its type and print all that the
    thread knew, slides' names and paths among it.
    """

    def guarded() -> tuple[Any, Exception | None]:
        try:
            return work(), None
        except Exception as error:  # noqa: BLE001
            return None, error

    def ended(found: tuple[Any, Exception | None]) -> None:
        result, error = found
        if not isalive(of):
            return
        if error is None:
            then(result)
        else:
            otherwise(error)

    worker = create_worker(guarded)
    worker.returned.connect(ended)
    worker.start()
