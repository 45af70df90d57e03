"""Maps over a slide as napari layers: exact to the patch's edge, refined in place."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from napari.layers import Image, Labels, Layer, Shapes
from napari.utils.colormaps import Colormap, DirectLabelColormap
from numpy.typing import NDArray

from spt_core.insight.colours import heat_colours

if TYPE_CHECKING:
    from napari.viewer import Viewer

ATTENTION, CLASSES, KINDS = "attention", "classes", "kinds"
LIKENESS, TISSUE, REGION = "likeness", "tissue", "region"
NAMES = {
    ATTENTION: "Where the model looked",
    CLASSES: "Class map",
    KINDS: "Kinds of tissue",
    LIKENESS: "More like this",
    TISSUE: "Tissue found",
    REGION: "Region",
}
TISSUE_COLOUR = (0, 153, 136)


@dataclass(frozen=True)
class Lattice:
    """Where patches lie on a slide's layer.

    Attributes
    ----------
    l0_step_xy
        Level-0 pixels that a cell covers.
    l0_size_xy
        Of the canvas on which cell (0, 0) begins.
    l0_bounds_xy
        Where the layer's first pixel lies on the canvas.
    """

    l0_step_xy: tuple[float, float]
    l0_size_xy: tuple[int, int]
    l0_bounds_xy: tuple[int, int] = (0, 0)

    def placing(self, slide: Layer) -> dict[str, Any]:
        """What puts a layer with one pixel a cell exactly over the slide's pixels.

        napari places the centres of pixels, of the slide's and of ours.
        """
        step = np.asarray(self.l0_step_xy[::-1], float)
        bounds = np.asarray(self.l0_bounds_xy[::-1], float)
        scale = np.asarray(slide.scale[-2:], float)
        shift = (step - 1) / 2 - bounds  # in the slide's pixels
        # The slide may have been turned or moved by hand: follow it.
        origin, moved = (
            np.asarray(slide.data_to_world(tuple(place)))[-2:]
            for place in ((0.0, 0.0), shift)
        )
        linear = np.asarray(slide.affine.linear_matrix)[-2:, -2:]
        offset = np.linalg.solve(linear, moved - origin)
        placing: dict[str, Any] = {
            "scale": tuple(scale * step),
            "translate": tuple(np.asarray(slide.translate[-2:], float) + offset),
            "rotate": np.asarray(slide.rotate)[-2:, -2:],
            "shear": np.asarray(slide.shear),
            "affine": np.asarray(slide.affine.affine_matrix),
            "units": tuple(slide.units[-2:]),
        }
        return placing

    def cell(self, slide: Layer, world_yx: Sequence[float]) -> tuple[int, int]:
        """The (row, col) of a place in the world; maybe outside of the slide."""
        l0_x, l0_y = self.l0(slide, world_yx)
        return int(l0_y // self.l0_step_xy[1]), int(l0_x // self.l0_step_xy[0])

    def l0(self, slide: Layer, world_yx: Sequence[float]) -> tuple[float, float]:
        """Level-0 (x, y) of a place, counted from the corner of the first pixel."""
        y, x = np.asarray(slide.world_to_data(tuple(world_yx)))[-2:] + 0.5
        return float(x) + self.l0_bounds_xy[0], float(y) + self.l0_bounds_xy[1]

    def world(self, slide: Layer, l0_xy: Sequence[float]) -> tuple[float, float]:
        """The place (y, x) in the world of a level-0 (x, y)."""
        data = (
            l0_xy[1] - self.l0_bounds_xy[1] - 0.5,
            l0_xy[0] - self.l0_bounds_xy[0] - 0.5,
        )
        y, x = np.asarray(slide.data_to_world(data))[-2:]
        return float(y), float(x)


class SlideMaps:
    """The layers over one slide. What is there is updated, not added again."""

    def __init__(self, viewer: "Viewer", slide: Layer, key: str) -> None:
        self.viewer = viewer
        self.slide = slide
        self.key = key

    def find(self, kind: str) -> Any:
        """Our layer of a kind over this slide, or None."""
        for layer in self.viewer.layers:
            ours = layer.metadata.get("spt", {})
            if ours.get("map") == kind and ours.get("of") == self.key:
                return layer
        return None

    def remove(self, *kinds: str) -> None:
        for kind in kinds:
            layer = self.find(kind)
            if layer is not None:
                self.viewer.layers.remove(layer)

    def show_heat(
        self,
        kind: str,
        values: NDArray[np.float32],
        lattice: Lattice,
        limits: tuple[float, float],
        *,
        opacity: float,
    ) -> Image:
        """Numbers as one image; NaN is clear."""
        layer = self.find(kind)
        if layer is not None and layer.data.shape == values.shape:
            layer.data = values
            layer.contrast_limits = limits
            self._place(layer, lattice)
        else:
            self.remove(kind)
            layer = Image(
                values,
                colormap=Colormap(heat_colours(), name="attention"),
                contrast_limits=limits,
                blending="translucent",
                interpolation2d="nearest",
                opacity=opacity,
                rgb=False,
                **self._options(kind),
                **lattice.placing(self.slide),
            )
            self._add(layer)
        layer.editable = False
        return layer

    def show_labels(
        self,
        kind: str,
        labels: NDArray[np.integer],
        lattice: Lattice,
        names: Sequence[str],
        colours: Sequence[Sequence[int]],
        *,
        opacity: float,
    ) -> Labels:
        """Named classes, 1 for the first; 0 is clear."""
        labels = np.asarray(labels, np.uint8)
        colormap = label_colours(colours)
        features = {
            "index": np.arange(len(names) + 1),
            "name": ["", *names],
        }
        layer = self.find(kind)
        if layer is not None and layer.data.shape == labels.shape:
            layer.data = labels
            layer.features = features
            if list(layer.metadata["spt"].get("names", ())) != list(names):
                layer.colormap = colormap
            self._place(layer, lattice)
        else:
            self.remove(kind)
            layer = Labels(
                labels,
                colormap=colormap,
                features=features,
                opacity=opacity,
                blending="translucent",
                **self._options(kind),
                **lattice.placing(self.slide),
            )
            self._add(layer)
        layer.metadata["spt"]["names"] = list(names)
        layer.editable = False
        return layer

    def show_box(self, l0_box: tuple[float, float, float, float], lattice: Lattice):
        """A frame around one place: level-0 left, top, right, bottom."""
        left, top, right, bottom = l0_box
        corners = [
            lattice.world(self.slide, place)
            for place in ((left, top), (right, top), (right, bottom), (left, bottom))
        ]
        width = 0.025 * max(abs(corners[1][1] - corners[0][1]), 1e-9)
        frame = np.array(corners)
        layer = self.find(REGION)
        if layer is None:
            layer = Shapes(
                ndim=2,
                units=tuple(self.slide.units[-2:]),
                **self._options(REGION),
            )
            self._add(layer)
        layer.editable = True
        if len(layer.data):
            layer.data = [frame]
            layer.edge_width = [width]
        else:
            layer.add_polygons(
                frame, edge_width=width, edge_color="#111111", face_color="transparent"
            )
        layer.selected_data = set()
        layer.editable = False
        layer.visible = True
        return layer

    def _options(self, kind: str) -> dict[str, Any]:
        return {
            "name": NAMES[kind],
            "metadata": {"spt": {"map": kind, "of": self.key}},
        }

    def _add(self, layer: Layer) -> None:
        """Add a layer; what was selected stays selected."""
        selected = set(self.viewer.layers.selection)
        self.viewer.add_layer(layer)
        if selected:
            self.viewer.layers.selection = selected

    def _place(self, layer: Layer, lattice: Lattice) -> None:
        for name, value in lattice.placing(self.slide).items():
            if name == "units":
                continue
            have = getattr(layer, name)
            have = have.affine_matrix if name == "affine" else have
            if not np.allclose(have, value):
                setattr(layer, name, value)


def label_colours(colours: Sequence[Sequence[int]]) -> DirectLabelColormap:
    clear = (0.0, 0.0, 0.0, 0.0)
    table: dict[int | None, Any] = {None: clear, 0: clear}
    for number, rgb in enumerate(colours, start=1):
        table[number] = (*(float(part) / 255 for part in rgb), 1.0)
    return DirectLabelColormap(color_dict=table)
