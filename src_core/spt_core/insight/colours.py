"""Colours of maps: one scale for numbers, one colour a class."""

import numpy as np
from numpy.typing import NDArray

# Anchors of matplotlib's "inferno" (CC0), from its second tenth on: even the least is
# seen on white.
_ANCHORS = np.array(
    [
        (22, 11, 57), (66, 10, 104), (106, 23, 110), (147, 38, 103), (188, 55, 84),
        (221, 81, 58), (243, 120, 25), (252, 165, 10), (246, 215, 70), (252, 255, 164),
    ],
    float,
)  # fmt: skip
# Of classes, in the order of the model; after Paul Tol's bright scheme.
CLASS_COLOURS = (
    (68, 119, 170),
    (238, 102, 119),
    (34, 136, 51),
    (204, 187, 68),
    (170, 51, 119),
    (102, 204, 238),
    (238, 153, 51),
    (102, 37, 160),
)
UNSURE_COLOUR = (150, 150, 150)


def heat(values: NDArray[np.floating]) -> NDArray[np.uint8]:
    """Colours (..., 3) of numbers from 0 to 1."""
    place = np.clip(np.nan_to_num(values), 0, 1) * (len(_ANCHORS) - 1)
    low = np.minimum(place.astype(int), len(_ANCHORS) - 2)
    part = (place - low)[..., None]
    return (_ANCHORS[low] * (1 - part) + _ANCHORS[low + 1] * part).round().astype("u1")


def class_colour(label: int) -> tuple[int, int, int]:
    """The colour of a class number; grey for unsure (below 0)."""
    if label < 0:
        return UNSURE_COLOUR
    return CLASS_COLOURS[label % len(CLASS_COLOURS)]
