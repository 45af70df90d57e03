"""What every kind of slide file offers, whichever library reads it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Pixels = NDArray[np.uint8]


class DamagedPartError(ValueError):
    """What is wrong with a part of a slide, in words that a user can be told."""


def in_words(error: Exception) -> str:
    """Why a part cannot be decoded; what a library says of it is for nobody."""
    if isinstance(error, DamagedPartError):
        return str(error)
    if isinstance(error, MemoryError):
        return "the computer's memory does not suffice"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return "its data are damaged"


class UnreadableRegionError(OSError):
    """A part of a slide that cannot be decoded, with its place in level-0 pixels.

    ``is_whole`` where it costs too much to ask for its parts, to see which are damaged.
    """

    def __init__(
        self,
        path: Path,
        l0_xy: tuple[int, int],
        l0_size: tuple[int, int],
        reason: str,
        *,
        is_whole: bool = False,
    ) -> None:
        self.path = path
        self.l0_xy = l0_xy
        self.l0_size = l0_size
        self.reason = reason
        self.is_whole = is_whole
        super().__init__(self.sentence(path.name))

    def sentence(self, title: str) -> str:
        """The error in words, calling the slide so."""
        (x, y), (width, height) = self.l0_xy, self.l0_size
        return (
            f"{title}: the region at x {x}, y {y} ({width} × {height} pixels) cannot "
            f"be read: {self.reason}"
        )


class PixelSource(Protocol):
    """A slide file: levels of RGB pixels, read by region, from any thread.

    Level sizes are (width, height), largest first; the first level is level 0.
    ``recipe`` says what its red, green and blue are, and ``scaling`` how the channels
    of this file were stretched for it.
    """

    path: Path
    level_dimensions: tuple[tuple[int, int], ...]
    tile_sizes: tuple[tuple[int, int], ...]
    reader: str
    raw_mpp_xy: tuple[float, float] | None
    bounds: tuple[int, int, int, int] | None
    objective_power: float | None
    notes: list[str]

    @property
    def recipe(self) -> str: ...

    @property
    def scaling(self) -> str | None: ...

    def read(self, level: int, x: int, y: int, w: int, h: int) -> Pixels:
        """Read ``(h, w, 3)`` uint8; x, y in that level's pixels, all inside it.

        Raises UnreadableRegionError where the file's data are damaged.
        """

    def all_properties(self) -> Mapping[str, str]:
        """Everything the file states, identifying or not."""

    def associated_images(self) -> Mapping[str, Image.Image]:
        """Label, macro and the like, each loaded when it is looked up."""

    def close(self) -> None: ...
