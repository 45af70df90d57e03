"""Layers of one slide: whose they are, what they are called, and where they lie."""

import numpy as np
from napari.layers import Layer
from numpy.typing import NDArray

from napari_spt.slides.slide_source import key_of

# Like no class, and seen on glass and on the dark around it.
FRAME = "#ff2bd6"


def called(what: str, slide: Layer) -> str:
    """What a layer over a slide is called."""
    return f"{what} – {slide.name}"


def map_of(layer: Layer) -> str | None:
    """The key of the slide that a map lies over; None where it is no map of ours."""
    return layer.metadata.get("spt", {}).get("of")


def group_name(layer: Layer) -> object:
    facts = layer.metadata.get("spt", {})
    if "of" in facts:
        return facts["of"]
    return key_of(layer) if "channel" in facts or "path" in facts else None


def frame(slide: Layer, is_on: bool) -> None:
    """Mark the slide that is looked at among others."""
    box = slide.bounding_box
    if box.visible != is_on:
        box.points, box.line_thickness, box.line_color = False, 3, FRAME
        box.visible = is_on


def matrix_of(layer: Layer) -> NDArray[np.float64]:
    """From a layer's pixels (y, x, 1) to the world."""
    corner, down, right = (
        np.asarray(layer.data_to_world(place))[-2:]
        for place in ((0.0, 0.0), (1.0, 0.0), (0.0, 1.0))
    )
    matrix = np.eye(3)
    matrix[:2, 0], matrix[:2, 1], matrix[:2, 2] = down - corner, right - corner, corner
    return matrix


def moved_by(step: NDArray) -> NDArray[np.float64]:
    matrix = np.eye(3)
    matrix[:2, 2] = step
    return matrix
