"""Maps over a slide as napari layers: exact to the patch's edge, refined in place."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from napari.layers import Image, Labels, Layer, Shapes
from napari.utils.colormaps import Colormap, DirectLabelColormap
from numpy.typing import NDArray

from napari_spt.analysis.lattice import Lattice
from napari_spt.parts.viewing import plain_viewer
from napari_spt.slides.groups import called
from napari_spt.slides.slide_table import table_of
from spt_core.insight.colours import (
    ATTENTION_RAMP,
    HALO_COLOUR,
    LIKENESS_RAMP,
    UNSURE_COLOUR,
    heat_colours,
)
from spt_core.insight.outlines import HALO, outlined

if TYPE_CHECKING:
    from napari.viewer import Viewer

ATTENTION, CLASSES, KINDS = "attention", "classes", "kinds"
LIKENESS, TISSUE, REGION = "likeness", "tissue", "region"
VIEWS = "views"
NAMES = {
    ATTENTION: "Where the model looked",
    CLASSES: "Class map",
    KINDS: "Kinds of tissue",
    LIKENESS: "More like this",
    TISSUE: "Tissue found",
    REGION: "Region",
    VIEWS: "Views to learn from",
}
RAMPS = {ATTENTION: ATTENTION_RAMP, LIKENESS: LIKENESS_RAMP}
TISSUE_COLOUR = (60, 200, 0)
UNSURE = "unsure"


class MapLayers:
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
            # New data costs napari far more than a look at whether it is new.
            if not np.array_equal(layer.data, values, equal_nan=True):
                layer.data = values
            layer.contrast_limits = limits
            self._place(layer, lattice)
        else:
            self.remove(kind)
            layer = Image(
                values,
                colormap=Colormap(heat_colours(RAMPS[kind]), name=kind),
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
        labels: NDArray[np.floating],
        lattice: Lattice,
        names: Sequence[str],
        colours: Sequence[Sequence[int]],
        *,
        opacity: float,
        has_unsure: bool = False,
        outline: int | None = None,
    ) -> Labels:
        """Named classes by their numbers; see :func:`napari_labels`.

        ``outline`` draws lines around them instead of filling them, in so many pixels
        per cell.
        """
        drawn = napari_labels(labels, len(names))
        if outline is not None:
            drawn, lattice = outlined(drawn, outline), lattice.divided(outline)
        if has_unsure:
            names, colours = [*names, UNSURE], [*colours, UNSURE_COLOUR]
        colormap = label_colours(colours)
        features = {
            "index": np.arange(len(names) + 1),
            "name": ["", *names],
        }
        looks = [list(map(int, rgb)) for rgb in colours]
        layer = self.find(kind)
        if layer is not None:
            layer.data = drawn
            layer.features = features
            if layer.metadata["spt"].get("colours") != looks:
                layer.colormap = colormap
            self._place(layer, lattice)
        else:
            layer = Labels(
                drawn,
                colormap=colormap,
                features=features,
                opacity=opacity,
                blending="translucent",
                **self._options(kind),
                **lattice.placing(self.slide),
            )
            self._add(layer)
        layer.metadata["spt"] |= {"names": list(names), "colours": looks}
        layer.editable = False
        return layer

    def show_box(self, l0_box: tuple[float, float, float, float], lattice: Lattice):
        """A frame around one place: level-0 left, top, right, bottom."""
        left, top, right, bottom = l0_box
        corners = [
            lattice.world(self.slide, place)
            for place in ((left, top), (right, top), (right, bottom), (left, bottom))
        ]
        layer = self.find(REGION)
        if layer is None:
            layer = Shapes(
                ndim=2,
                units=tuple(self.slide.units[-2:]),
                **self._options(REGION),
            )
            self._add(layer)
        # The layer may have moved with its slide.
        frame = np.array([layer.world_to_data(corner) for corner in corners])
        width = 0.025 * max(float(np.linalg.norm(frame[1] - frame[0])), 1e-9)
        layer.editable = True
        # The wider one below is a halo: the frame is seen on dark tissue too.
        layer.data = []
        layer.add_polygons(
            [frame, frame],
            edge_width=[2.5 * width, width],
            edge_color=["white", "#111111"],
            face_color="transparent",
        )
        layer.selected_data = set()
        layer.editable = False
        self.set_visible(layer, True)
        return layer

    def set_visible(self, layer: Layer, is_visible: bool) -> None:
        """Show or hide a map, at the latest when its slide comes to the front."""
        table_of(self.viewer).set_visible(layer, is_visible)

    def _options(self, kind: str) -> dict[str, Any]:
        what = NAMES[kind]
        return {
            "name": called(what, self.slide),
            "metadata": {"spt": {"map": kind, "of": self.key, "called": what}},
        }

    def _add(self, layer: Layer) -> None:
        """Add a layer above its slide; what was selected stays selected."""
        add_above(self.viewer, layer, self.slide)

    def _place(self, layer: Layer, lattice: Lattice) -> None:
        for name, value in lattice.placing(self.slide).items():
            if name == "units":
                continue
            have = getattr(layer, name)
            have = have.affine_matrix if name == "affine" else have
            if not np.allclose(have, value):
                setattr(layer, name, value)


def add_above(viewer: "Viewer", layer: Layer, slide: Layer) -> None:
    """Add a layer on top of a slide's group; what was selected stays selected."""
    layers = plain_viewer(viewer).layers
    selected = set(layers.selection)
    group = table_of(viewer).group_of(slide)
    places = [layers.index(one) for one in group if one in layers]
    layers.insert(1 + max(places, default=len(layers) - 1), layer)
    if selected:
        layers.selection = selected


def napari_labels(labels: NDArray[np.floating], classes: int) -> NDArray[np.uint8]:
    """Class numbers from 0, below 0 where unsure and NaN where nothing is, for napari.

    There 0 is clear, so the classes count from 1, and unsure comes after the last.
    """
    numbers = np.nan_to_num(labels, nan=0)
    drawn = np.where(numbers < 0, classes + 1, numbers + 1)
    return np.where(np.isnan(labels), 0, drawn).astype(np.uint8)


def label_colours(colours: Sequence[Sequence[int]]) -> DirectLabelColormap:
    clear = (0.0, 0.0, 0.0, 0.0)
    halo = (*(part / 255 for part in HALO_COLOUR), 0.9)
    table: dict[int | None, Any] = {None: clear, 0: clear, HALO: halo}
    for number, rgb in enumerate(colours, start=1):
        table[number] = (*(float(part) / 255 for part in rgb), 1.0)
    return DirectLabelColormap(color_dict=table)
