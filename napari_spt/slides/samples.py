"""File > Open Sample: synthetic slides, painted the first time they are asked for."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Event

import numpy as np
from napari.utils import progress
from qtpy.QtWidgets import QApplication

from napari_spt.slides.reader import LayerData, slide_layers_of
from spt_core import open_slide
from spt_core.events import Progress
from spt_core.sample import sample_slide

NOT_PAINTED = "not_painted"
_is_stopped = Event()


def stop_painting() -> None:
    """Leave off painting a sample; nothing of it is kept."""
    _is_stopped.set()


def paint(kind: str) -> Path | None:
    """The path of a sample slide, painted first where it does not exist yet.

    The painting runs in other processes; the window stays alive and shows progress.
    If it is stopped, or the last window is closed meanwhile: None.
    """
    updates: SimpleQueue[Progress] = SimpleQueue()
    is_closed = _is_stopped
    is_closed.clear()

    def work() -> Path | None:
        events = sample_slide(kind)
        while not is_closed.is_set():
            try:
                updates.put(next(events))
            except StopIteration as done:
                return done.value
        events.close()
        return None

    had_window, bar = _has_window(), None
    try:
        with ThreadPoolExecutor(1) as thread:
            result = thread.submit(work)
            while not result.done():
                try:
                    event = updates.get(timeout=0.02)
                except Empty:
                    pass
                else:
                    if bar is None:
                        title = "Painting the sample slide"
                        bar = progress(total=event.total, desc=title)
                    bar.update(event.done - bar.n)
                if QApplication.instance() is not None:
                    QApplication.processEvents()
                if had_window and not _has_window():
                    is_closed.set()
            return result.result()
    finally:
        if bar is not None:
            bar.close()


def _has_window() -> bool:
    return any(widget.isVisible() for widget in QApplication.topLevelWidgets())


def open_sample(kind: str) -> list[LayerData]:
    path = paint(kind)
    if path is None:
        # napari insists on a layer: whoever stopped the painting removes it.
        options = {"visible": False, "metadata": {"spt": {NOT_PAINTED: True}}}
        return [(np.zeros((1, 1), np.uint8), options, "image")]
    return slide_layers_of(open_slide(path))


glandular = partial(open_sample, "glandular")
small_cell = partial(open_sample, "small-cell")
large_cell = partial(open_sample, "large-cell")
