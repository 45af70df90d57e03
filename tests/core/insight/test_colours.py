"""Colours of maps, measured: on stained tissue, from one another, by all eyes.

Distances are those of OKLab, in which 0.02 is just noticed. Colour-blind eyes are
Machado's (2009) for a missing kind of cone.
"""

from itertools import pairwise

import numpy as np
import pytest

from spt_core.insight.colours import (
    ATTENTION_RAMP,
    CLASS_COLOURS,
    FILL_OPACITY,
    KIND_COLOURS,
    LIKENESS_RAMP,
    UNSURE_COLOUR,
    heat_colours,
)

# Optical densities of haematoxylin and eosin (Macenko 2009; Ruifrok 2001).
HAEMATOXYLIN = ((0.5626, 0.7201, 0.4062), (0.65, 0.70, 0.29))
EOSIN = (0.2159, 0.8012, 0.5581)
EYES = {
    "all cones": np.eye(3),
    "no red": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "no green": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "no blue": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
TO_CONES = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
TO_LAB = np.array(
    [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
)
ALL = "all cones"


def lab(rgb, eye=ALL):
    part = np.asarray(rgb, float) / 255
    light = np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)
    seen = np.clip(light @ np.asarray(EYES[eye]).T, 0, 1)
    return np.cbrt(seen @ TO_CONES.T) @ TO_LAB.T


def distances(one, other, eye=ALL):
    """Of every colour of one to every colour of the other."""
    return np.linalg.norm(lab(one, eye)[:, None] - lab(other, eye)[None], axis=-1)


def stained():
    """Tissue from hardly to strongly stained, as patches of it look on average."""
    pink = np.array(EOSIN) / np.linalg.norm(EOSIN)
    return np.array(
        [
            255 * 10 ** -(h * np.array(blue) / np.linalg.norm(blue) + e * pink)
            for blue in HAEMATOXYLIN
            for h in (0, 0.2, 0.45, 0.8)
            for e in (0.08, 0.25, 0.5, 0.8)
        ]
    )


def over_tissue(colours, opacity, eye):
    """How much each colour changes the tissue below it, where it does so least."""
    tissue = stained()
    mixed = opacity * np.asarray(colours, float)[:, None] + (1 - opacity) * tissue
    change = np.linalg.norm(lab(mixed, eye) - lab(tissue, eye), axis=-1)
    return change.min(axis=1)


def from_one_another(colours, eye):
    apart = distances(colours, colours, eye)
    return apart[np.triu_indices(len(colours), 1)].min()


def test_the_measure_itself():
    """White and black are 1 apart; red and green come together without green cones."""
    assert distances([(255, 255, 255)], [(0, 0, 0)])[0, 0] == pytest.approx(1, abs=1e-3)
    pair = [(200, 90, 60)], [(130, 130, 60)]
    assert distances(*pair, "no green")[0, 0] < 0.3 * distances(*pair)[0, 0]


@pytest.mark.parametrize("colours", [(*CLASS_COLOURS, UNSURE_COLOUR), KIND_COLOURS])
def test_no_class_vanishes_on_stained_tissue(colours):
    """Pink would change eosin by 0.03, grey hardly more."""
    assert over_tissue(colours, FILL_OPACITY, ALL).min() > 0.06
    for eye in EYES:
        assert over_tissue(colours, FILL_OPACITY, eye).min() > 0.015
    # And as such they are no colour of a stain.
    assert distances(colours, stained()).min() > 0.1


@pytest.mark.parametrize(
    ("colours", "few"), [((*CLASS_COLOURS, UNSURE_COLOUR), 4), (KIND_COLOURS, 6)]
)
def test_classes_are_told_from_one_another(colours, few):
    assert from_one_another(colours, ALL) > 0.13
    for eye in EYES:
        assert from_one_another(colours, eye) > 0.02
        # The first ones, which most models and slides have, with ease.
        assert from_one_another(colours[:few], eye) > (0.15 if few == 4 else 0.05)


def test_attention_is_no_class_and_no_tissue():
    strong = ATTENTION_RAMP[3:]
    assert distances(strong, (*CLASS_COLOURS, UNSURE_COLOUR)).min() > 0.15
    assert over_tissue(ATTENTION_RAMP, 0.7, ALL).min() > 0.1
    for eye in EYES:
        assert over_tissue(strong, 0.7, eye).min() > 0.035


def test_likeness_is_not_read_as_attention():
    for eye in EYES:
        apart = distances(LIKENESS_RAMP[3:], ATTENTION_RAMP[3:], eye)
        assert apart.min() > (0.2 if eye != "no blue" else 0.04)
    assert over_tissue(LIKENESS_RAMP, 0.75, ALL).min() > 0.06


@pytest.mark.parametrize("ramp", [ATTENTION_RAMP, LIKENESS_RAMP])
def test_scales_rise_evenly(ramp):
    """An even map looks even: lightness rises in even steps, opacity with it."""
    steps = np.diff(lab(ramp)[:, 0])
    assert steps.min() > 0
    assert steps.max() / steps.min() < 2.5
    alpha = heat_colours(ramp)[:, 3]
    assert all(one <= other for one, other in pairwise(alpha))
