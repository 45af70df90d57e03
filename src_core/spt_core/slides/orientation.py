"""TIFF's orientation: how stored rows and columns lie in the picture."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Orientation:
    """How a stored picture is turned to be seen, by the number in the TIFF (1 to 8).

    Attributes
    ----------
    turned
        Stored rows run along the picture's x.
    flip_rows, flip_columns
        Stored rows, or columns, run against the picture's axes.
    """

    turned: bool = False
    flip_rows: bool = False
    flip_columns: bool = False

    @classmethod
    def of(cls, number: int) -> "Orientation":
        if number not in range(1, 9):
            return cls()
        turned = number > 4
        rows = (6, 7) if turned else (3, 4)
        columns = (7, 8) if turned else (2, 3)
        return cls(turned, number in rows, number in columns)

    @property
    def is_plain(self) -> bool:
        return not (self.turned or self.flip_rows or self.flip_columns)

    def stored(
        self, x: slice, y: slice, rows: int, columns: int
    ) -> tuple[slice, slice]:
        """The stored rows and columns that a part of the picture shows."""
        along_rows, along_columns = (x, y) if self.turned else (y, x)
        return (
            _flipped(along_rows, rows) if self.flip_rows else along_rows,
            _flipped(along_columns, columns) if self.flip_columns else along_columns,
        )

    def seen(self, pixels: NDArray) -> NDArray:
        """Stored ``(rows, columns, c)`` as the picture shows them, ``(y, x, c)``."""
        if self.flip_rows:
            pixels = pixels[::-1]
        if self.flip_columns:
            pixels = pixels[:, ::-1]
        if self.turned:
            pixels = pixels.transpose(1, 0, *range(2, pixels.ndim))
        return np.ascontiguousarray(pixels)


UPRIGHT = Orientation()


def _flipped(part: slice, length: int) -> slice:
    stop = min(part.stop, length)
    return slice(length - stop, length - part.start)
