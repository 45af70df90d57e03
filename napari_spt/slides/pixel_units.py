"""One unit for all slides of a viewer, and a scale bar that says what is true.

napari measures in micrometres only where all layers do. A slide that does not say how
large its pixels are is then measured in micrometres too, by a usual size, and while it
is looked at alone there is no scale bar.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from napari.layers import Layer

from napari_spt.parts.viewing import scale_bar
from napari_spt.slides.slide_source import USUAL_MPP, is_file_slide

if TYPE_CHECKING:
    from napari.viewer import Viewer

_LONG = {"um": "micrometer", "pixel": "pixel"}


def state_mpp(slide: Layer, mpp: float | None) -> None:
    """The user says how large the pixels of a slide are, or takes it back."""
    slide.metadata["spt"]["stated_mpp"] = mpp


def known_mpp_xy(slide: Layer | None) -> tuple[float, float] | None:
    """Micrometres per pixel, as the file says or its user; None where nobody does."""
    facts = {} if slide is None else slide.metadata.get("spt", {})
    if facts.get("mpp_xy") is not None:
        x, y = facts["mpp_xy"]
        return float(x), float(y)
    stated = facts.get("stated_mpp")
    return None if stated is None else (float(stated), float(stated))


def use_one_unit(
    groups: Sequence[tuple[Layer, Sequence[Layer]]], *, in_um: bool = False
) -> None:
    """Measure slides, each with all layers of its group, in micrometres or in pixels.

    In pixels where no slide says how large they are, unless ``in_um``.
    """
    groups = [group for group in groups if is_file_slide(group[0])]
    in_um = in_um or any(known_mpp_xy(slide) is not None for slide, _ in groups)
    unit = "um" if in_um else "pixel"
    for slide, group in groups:
        if slide.metadata["spt"].get("mpp_xy") is None:
            usual = USUAL_MPP if in_um else 1.0
            x, y = known_mpp_xy(slide) or (usual, usual)
            for layer in group:
                if "of" not in layer.metadata["spt"]:
                    _measure(layer, (y, x))
        for layer in group:
            if [str(one) for one in layer.units] != [_LONG[unit]] * layer.ndim:
                layer.units = (unit,) * layer.ndim


def _measure(layer: Layer, scale: tuple[float, float]) -> None:
    """Give a slide's layer the size of its pixels; it stays on the canvas's origin."""
    before = tuple(float(one) for one in layer.scale[-2:])
    if before == scale:
        return
    ratio = [now / was for now, was in zip(scale, before, strict=True)]
    layer.translate = tuple(
        float(one) * part for one, part in zip(layer.translate, ratio, strict=True)
    )
    layer.scale = scale


class ScaleBarKeeper:
    """Turns a viewer's scale bar on for its first measured slide; then it is the
    user's, and only hidden while it would say what is not known."""

    def __init__(self) -> None:
        self.was_turned_on = False
        self.is_hidden = False

    def tend(self, viewer: "Viewer", shown: Sequence[Layer | None]) -> None:
        files = [one for one in shown if one is not None and is_file_slide(one)]
        bar = scale_bar(viewer)
        is_measured = [known_mpp_xy(one) is not None for one in files]
        in_um = any(str(one.units[-1]) == "micrometer" for one in files)
        if any(is_measured) and not self.was_turned_on:
            self.was_turned_on = True
            bar.visible = True
        if files and in_um and not any(is_measured):
            self.is_hidden = self.is_hidden or bar.visible
            bar.visible = False
        elif self.is_hidden:
            self.is_hidden = False
            bar.visible = True
