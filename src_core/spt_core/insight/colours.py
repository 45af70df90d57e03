"""Colours of maps: one scale for numbers, one colour per class."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from spt_core.insight.maps import PERCENTILE, TIMES_AVERAGE

# Chosen by measurement (tests/core/insight/test_colours.py): seen on haematoxylin and
# eosin and told from one another, by colour-blind eyes too. Steps are even for the eye.
# Attention is green, which no class is and no stain; likeness is blue.
ATTENTION_RAMP = (
    (0, 72, 24), (20, 90, 29), (37, 109, 33), (53, 128, 38), (68, 148, 42),
    (84, 169, 46), (100, 190, 50), (117, 211, 53), (133, 233, 57), (150, 255, 60),
)  # fmt: skip
LIKENESS_RAMP = (
    (0, 0, 110), (0, 14, 143), (0, 34, 176), (0, 56, 207), (0, 81, 235),
    (0, 109, 251), (0, 138, 255), (0, 168, 255), (0, 197, 255), (60, 228, 255),
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
# In the legend of every map of kinds of tissue.
BY_LOOKS = "Sorted by looks alone, without a model; names are a person's."
# Of classes, in the model's order: blue, orange, cyan, navy, red, violet, brown, pale.
CLASS_COLOURS = (
    (0, 60, 255),
    (255, 150, 0),
    (0, 225, 255),
    (0, 0, 110),
    (230, 0, 0),
    (190, 70, 255),
    (110, 50, 0),
    (255, 255, 170),
)
# Of kinds of tissue, over which no attention is drawn.
KIND_COLOURS = (
    (0, 60, 255),
    (255, 150, 0),
    (60, 200, 0),
    (0, 225, 255),
    (230, 0, 0),
    (0, 0, 110),
    (255, 250, 120),
    (190, 60, 255),
    (0, 100, 40),
    (110, 50, 0),
    (255, 60, 220),
    (0, 0, 0),
)
# Grey would take the colour of the tissue below it.
UNSURE_COLOUR = (10, 10, 10)
# Beside every outline, so that it is seen on dark and on bright tissue.
HALO_COLOUR = (255, 255, 255)
# Of filled classes and kinds.
FILL_OPACITY = 0.5


Ramp = Sequence[tuple[int, int, int]]


def heat_colours(ramp: Ramp = ATTENTION_RAMP) -> NDArray[np.float32]:
    """Colours and opacities (10, 4), each from 0 to 1, from the least to the most."""
    rgb = np.array(ramp, np.float32) / 255
    place = np.linspace(0, 1, len(rgb))
    alpha = np.interp(place, (0, CLEAR_UNTIL), (CLEAREST, 1.0))
    return np.concatenate([rgb, alpha[:, None].astype(np.float32)], axis=1)


def heat(values: NDArray[np.floating]) -> NDArray[np.float32]:
    """Colours and opacities (..., 4) of attention from 0 to 1."""
    table = heat_colours()
    place = np.clip(np.nan_to_num(values), 0, 1) * (len(table) - 1)
    low = np.minimum(place.astype(int), len(table) - 2)
    part = (place - low)[..., None].astype(np.float32)
    return table[low] * (1 - part) + table[low + 1] * part


def class_colour(label: int) -> tuple[int, int, int]:
    """The colour of a class by its index; nearly black for unsure (below 0)."""
    if label < 0:
        return UNSURE_COLOUR
    return CLASS_COLOURS[label % len(CLASS_COLOURS)]
