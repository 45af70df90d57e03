"""Colours of maps: one scale for numbers, one colour per class."""

import numpy as np
from numpy.typing import NDArray

from spt_core.insight.maps import PERCENTILE, TIMES_AVERAGE

# Matplotlib's "viridis" (CC0) in ten steps: even for the eye, readable for the
# colour-blind, and unlike the pinks of a stained slide.
VIRIDIS = (
    (68, 1, 84), (72, 40, 120), (62, 74, 137), (49, 104, 142), (38, 130, 142),
    (31, 158, 137), (53, 183, 121), (109, 205, 89), (180, 222, 44), (253, 231, 37),
)  # fmt: skip
# What is looked at least is nearly clear, so that the tissue shows through.
CLEAREST, CLEAR_UNTIL = 0.1, 0.6
# Of attention, the same on every slide, so that an even map looks even.
LIMITS = {TIMES_AVERAGE: (0.0, 4.0), PERCENTILE: (0.0, 100.0)}
# In the legend of every attention map.
NOT_WHERE = "Where the model looked, not where the tumour is."
EVEN = "No region stands out."
# In the legend of every class map.
EACH_ALONE = (
    "What the model would answer for each neighbourhood alone; it knows no other "
    "answers than these."
)
# Of classes, in the model's order; after Paul Tol's bright scheme.
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


def heat_colours() -> NDArray[np.float32]:
    """Colours and opacities (10, 4), each from 0 to 1, from the least to the most."""
    rgb = np.array(VIRIDIS, np.float32) / 255
    place = np.linspace(0, 1, len(rgb))
    alpha = np.interp(place, (0, CLEAR_UNTIL), (CLEAREST, 1.0))
    return np.concatenate([rgb, alpha[:, None].astype(np.float32)], axis=1)


def heat(values: NDArray[np.floating]) -> NDArray[np.float32]:
    """Colours and opacities (..., 4) of numbers from 0 to 1."""
    table = heat_colours()
    place = np.clip(np.nan_to_num(values), 0, 1) * (len(table) - 1)
    low = np.minimum(place.astype(int), len(table) - 2)
    part = (place - low)[..., None].astype(np.float32)
    return table[low] * (1 - part) + table[low + 1] * part


def class_colour(label: int) -> tuple[int, int, int]:
    """The colour of a class by its index; grey for unsure (below 0)."""
    if label < 0:
        return UNSURE_COLOUR
    return CLASS_COLOURS[label % len(CLASS_COLOURS)]
