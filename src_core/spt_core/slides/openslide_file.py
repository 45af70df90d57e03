"""A slide as openslide opens it: its facts, its regions and its other pictures.

It imports openslide alone, because the helper's start (``openslide_helper.py``) waits
for it.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from threading import Lock

import openslide
from PIL import Image

CACHE_BYTES = 96 * 2**20
# Below this median brightness (of 255) the coarsest level is a dark-field image.
_DARK = 64

_log = logging.getLogger(__name__)

_numbers = count(1)
_asked: set[int] = set()
_asked_lock = Lock()


def longest_asked() -> int | None:
    """The number of what openslide has been asked for longest and does not answer.

    With some damaged files it comes to no end, and cannot be stopped but with its
    process: whoever may end that sees here when to.
    """
    with _asked_lock:
        return min(_asked, default=None)


@contextmanager
def _asking() -> Iterator[None]:
    with _asked_lock:
        number = next(_numbers)
        _asked.add(number)
    try:
        yield
    finally:
        with _asked_lock:
            _asked.remove(number)


class OpenSlideFile:
    """One openslide handle with a bounded cache, safe to read from many threads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = Lock()
        with _asking():
            self._handle = self._open()
            self.properties = dict(self._handle.properties)
            self.level_dimensions = tuple(self._handle.level_dimensions)
            self.level_downsamples = tuple(self._handle.level_downsamples)
            self.picture_names = tuple(self._handle.associated_images)
        self._background: tuple[int, int, int] | None = None

    def read(self, level: int, x: int, y: int, w: int, h: int) -> bytes:
        """Red, green and blue of a region, row by row; x, y in the level's pixels.

        Raises openslide.OpenSlideError or OSError where it cannot be read.
        """
        downsample = self.level_downsamples[level]
        l0_xy = (round(x * downsample), round(y * downsample))
        handle = self._handle
        try:
            with _asking():
                return self._read_with(handle, l0_xy, level, (w, h))
        except openslide.OpenSlideError:
            with _asking():
                self._replace(handle)
        # After one error a handle answers nothing any more, so this one may have failed
        # because of another thread's region: ask a handle of our own.
        with _asking(), openslide.OpenSlide(self.path) as own:
            return self._read_with(own, l0_xy, level, (w, h))

    def picture(self, name: str) -> Image.Image:
        """The label, the macro image or the like, as RGBA."""
        with _asking():
            return self._handle.associated_images[name]

    def close(self) -> None:
        self._handle.close()

    def _open(self) -> openslide.OpenSlide:
        handle = openslide.OpenSlide(self.path)
        handle.set_cache(openslide.OpenSlideCache(CACHE_BYTES))
        return handle

    def _read_with(
        self,
        handle: openslide.OpenSlide,
        l0_xy: tuple[int, int],
        level: int,
        size: tuple[int, int],
    ) -> bytes:
        rgba = handle.read_region(l0_xy, level, size)
        # Several times as quick as its extrema and an image without alpha.
        if rgba.tobytes("raw", "A").count(b"\xff") < rgba.width * rgba.height:
            paper = Image.new("RGBA", rgba.size, (*self._paper(handle), 255))
            rgba = Image.alpha_composite(paper, rgba)
        return rgba.tobytes("raw", "RGB")

    def _replace(self, broken: openslide.OpenSlide) -> None:
        """Open the file again for the reads to come.

        The broken handle is left to the garbage collector, because other threads may
        be inside it.
        """
        with self._lock:
            if self._handle is broken:
                try:
                    self._handle = self._open()
                except (openslide.OpenSlideError, OSError) as error:
                    _log.debug("%s cannot be opened again: %s", self.path, error)

    def _paper(self, handle: openslide.OpenSlide) -> tuple[int, int, int]:
        """The colour of transparent parts: white, or black in a dark-field slide."""
        if self._background is None:
            import numpy as np  # most slides have no such parts, and need no numpy here

            level = len(self.level_dimensions) - 1
            width, height = self.level_dimensions[level]
            rgba = np.asarray(
                handle.read_region((0, 0), level, (min(width, 2048), min(height, 2048)))
            )
            opaque = rgba[rgba[..., 3] == 255][:, :3]
            dark = opaque.size > 0 and np.median(opaque.max(axis=1)) < _DARK
            self._background = (0, 0, 0) if dark else (255, 255, 255)
        return self._background
