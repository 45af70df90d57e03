"""File > Open Sample: synthetic slides, painted the first time they are asked for."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue

from napari.utils import progress
from qtpy.QtWidgets import QApplication

from napari_spt._reader import LayerData, slide_layer
from spt_core import open_slide
from spt_core.events import Progress
from spt_core.sample import sample_slide


def paint(kind: str) -> Path:
    """Give the path of a sample slide, painting it first where it is not there yet.

    The painting runs in other processes; the window stays alive and shows progress.
    """
    news: SimpleQueue[Progress] = SimpleQueue()

    def work() -> Path:
        events = sample_slide(kind)
        while True:
            try:
                news.put(next(events))
            except StopIteration as done:
                return done.value

    with ThreadPoolExecutor(1) as thread:
        result = thread.submit(work)
        bar = None
        while not result.done():
            try:
                event = news.get(timeout=0.02)
            except Empty:
                pass
            else:
                if bar is None:
                    bar = progress(total=event.total, desc="Painting the sample slide")
                bar.update(event.done - bar.n)
            if QApplication.instance() is not None:
                QApplication.processEvents()
        if bar is not None:
            bar.close()
        return result.result()


def open_sample(kind: str) -> list[LayerData]:
    return [slide_layer(open_slide(paint(kind)))]


glandular = partial(open_sample, "glandular")
small_cell = partial(open_sample, "small-cell")
large_cell = partial(open_sample, "large-cell")
