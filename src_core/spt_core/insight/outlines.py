"""Outlines of classes: a line inside each area, with a halo on both of its sides."""

import numpy as np
from numpy.typing import NDArray

HALO = 255
FACTORS = (16, 8, 4)
# Pixels of an outlined map at most: drawing it is to take a moment.
MOST_PIXELS = 4_000_000


def outline_factor(shape: tuple[int, int], screen_pixels: float) -> int:
    """Into how many pixels to divide a cell's side to outline a map of such a shape.

    Parameters
    ----------
    screen_pixels
        That a cell takes on the screen. Where there is no room for a line and its halo
        the answer is 1: whole cells are the outline.
    """
    for factor in FACTORS:
        fits = shape[0] * shape[1] * factor**2 <= MOST_PIXELS
        if fits and screen_pixels >= 1.2 * factor:
            return factor
    return 1


def outlined(labels: NDArray[np.uint8], factor: int) -> NDArray[np.uint8]:
    """Areas of equal labels (rows, cols) as lines (rows * factor, cols * factor).

    The line has the label of its area and lies within it, :data:`HALO` is on both of
    its sides, and 0 is all else. A factor of 1 gives the cells at the border.
    """
    if factor == 1:
        return np.where(_at_border(labels).any(axis=0), labels, 0).astype(np.uint8)
    # One pixel of halo, the line, one of halo: seen from the border inwards.
    line = max(1, factor // 8)
    near = _distance(labels, factor)
    fine = labels.repeat(factor, axis=0).repeat(factor, axis=1)
    drawn = np.where((near >= 1) & (near <= line), fine, 0)
    is_halo = (near == 0) | (near == line + 1)
    return np.where(is_halo & (fine > 0), HALO, drawn).astype(np.uint8)


def _at_border(labels: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Whether the neighbour above, below, left and right is another, (4, rows, cols).

    Outside of the map there is nothing.
    """
    padded = np.pad(labels, 1)
    middle = padded[1:-1, 1:-1]
    return np.stack(
        [
            padded[:-2, 1:-1] != middle,
            padded[2:, 1:-1] != middle,
            padded[1:-1, :-2] != middle,
            padded[1:-1, 2:] != middle,
        ]
    )


def _distance(labels: NDArray[np.uint8], factor: int) -> NDArray[np.uint8]:
    """Pixels to the border of an area, as far as that is the border of the cell."""
    rows, cols = labels.shape
    far = np.uint8(factor)
    near = np.full((rows, factor, cols, factor), far, np.uint8)
    inwards = np.arange(factor, dtype=np.uint8)
    above, below, left, right = _at_border(labels)
    by_row, by_col = inwards[None, :, None, None], inwards[None, None, None, :]
    for other, steps in (
        (above, by_row),
        (below, by_row[:, ::-1]),
        (left, by_col),
        (right, by_col[..., ::-1]),
    ):
        np.minimum(near, np.where(other[:, None, :, None], steps, far), out=near)
    # Corners at which only the diagonal neighbour is another close the line.
    padded = np.pad(labels, 1)
    middle = padded[1:-1, 1:-1]
    for up in (True, False):
        for to_left in (True, False):
            corner = padded[
                slice(0, -2) if up else slice(2, None),
                slice(0, -2) if to_left else slice(2, None),
            ]
            side = above if up else below
            flank = left if to_left else right
            alone = (corner != middle) & ~side & ~flank
            rise = by_row if up else by_row[:, ::-1]
            run = by_col if to_left else by_col[..., ::-1]
            steps = np.maximum(rise, run)
            np.minimum(near, np.where(alone[:, None, :, None], steps, far), out=near)
    return near.reshape(rows * factor, cols * factor)
