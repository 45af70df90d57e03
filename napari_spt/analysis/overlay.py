"""One analysis over its slide: what was found, as layers."""

from typing import TYPE_CHECKING, Any

import numpy as np
from napari.layers import Layer
from numpy.typing import NDArray

from napari_spt.analysis import layers as _layers
from napari_spt.analysis.lattice import Lattice
from napari_spt.analysis.layers import MapLayers
from napari_spt.analysis.legend_parts import Classes, Scale
from napari_spt.analysis.map_settings import PERCENTILE, TIMES, WEAK, MapSettings
from napari_spt.analysis.slide_analysis import Analysis
from napari_spt.analysis.state import ComparedPatch
from napari_spt.analysis.status import HoverTable
from napari_spt.parts.viewing import camera, on_canvas
from spt_core.insight.colours import (
    EVEN,
    FILL_OPACITY,
    LIKENESS_RAMP,
    NOT_WHERE,
    UNSURE_COLOUR,
    class_colour,
)
from spt_core.insight.outlines import outline_factor

if TYPE_CHECKING:
    from napari.viewer import Viewer

# Over it the attention's colours are to be seen as they are: classes in outline alone.
OUTLINE_OPACITY = 0.95
LIKENESS_OPACITY = 0.75
# Places of tissue that a legend looks at.
MOST_TISSUE = 4000
# From patches of 40 to 200 screen pixels (as powers of 2) maps fade to a fifth.
FADING = ((5.3, 7.6), (1.0, 0.2))


class SlideOverlay:
    """Draws the maps of one slide; the same layers are brought up to date.

    Attributes
    ----------
    hover
        What the status bar says of every place.
    is_even
        Whether nothing on the slide is looked at more than the rest.
    is_outlined
        Whether classes are drawn in outline, below another map.
    """

    def __init__(self, viewer: "Viewer", analysis: Analysis) -> None:
        self.viewer = viewer
        self.analysis = analysis
        self.layers = MapLayers(viewer, analysis.layer, analysis.key)
        self.hover: HoverTable | None = None
        self.is_even = False
        self.is_outlined = False
        self._classes: NDArray[np.float32] | None = None
        self._wanted: dict[str, bool] = {}

    @property
    def shown(self) -> list[Layer]:
        """The layers there are."""
        found = (self.layers.find(kind) for kind in _layers.NAMES)
        return [layer for layer in found if layer is not None]

    def is_visible(self, kind: str) -> bool:
        layer = self.layers.find(kind)
        return layer is not None and layer.visible

    # Maps

    def draw_attention(self, view: MapSettings) -> None:
        from spt_core.insight.maps import attention_values, smoothed
        from spt_core.insight.regions import stands_out

        prediction, lattice = self.analysis.prediction, self.analysis.lattice
        if prediction is None or lattice is None or not self.analysis.has_attention:
            return
        attention = prediction.attention
        head = view.head_of(len(attention))
        times = attention_values(attention, head=head, unit=TIMES)
        self.is_even = not stands_out(times)
        values = times
        if view.unit == PERCENTILE:
            values = attention_values(attention, head=head, unit=PERCENTILE)
        drawn = smoothed(self._raster(values, prediction.xy), view.smoothing)
        if view.hides_weak:
            drawn = np.where(drawn >= WEAK[view.unit], drawn, np.nan)
        layer = self.layers.show_heat(
            _layers.ATTENTION,
            drawn.astype(np.float32),
            lattice,
            view.limits,
            opacity=view.opacity,
        )
        layer.opacity = view.opacity * self.fade
        self._follow_control(layer, view.shows_attention)
        self._update_hover(times=self._raster(times, prediction.xy))

    def draw_classes(self, view: MapSettings) -> None:
        found, lattice = self.analysis.class_map, self.analysis.lattice
        if found is None or lattice is None:
            return
        if not self.analysis.names_class:
            # A model that names nothing of the slide names nothing of its parts.
            self.layers.remove(_layers.CLASSES)
            return
        labels = self._classes = self._raster(found.labels, found.xy)
        layer = self._show_classes(self._outline)
        self.follow_class_control(view)
        self.outline_classes()
        self._move_below_attention(layer)
        shares = np.stack(
            [self._raster(column, found.xy) for column in found.probabilities.T],
            axis=-1,
        )
        # Of a patch that is unsure no class is told, however slightly it leads.
        shares[labels < 0] = np.nan
        self._update_hover(shares=shares, classes=found.classes)

    def draw_tissue_kinds(self) -> None:
        found, lattice = self.analysis.tissue_map, self.analysis.lattice
        if found is None or lattice is None:
            return
        labels, titles = self._raster(found.labels, found.xy), found.kinds.titles
        self.layers.show_labels(
            _layers.KINDS,
            labels,
            lattice,
            titles,
            found.kinds.rgb.tolist(),
            opacity=FILL_OPACITY * self.fade,
        )
        self._update_hover(kinds=labels, kind_names=tuple(titles))

    def draw_tissue_mask(self) -> None:
        """Where tissue was found, which explains that there is none."""
        tissue, slide = self.analysis.tissue, self.analysis.slide
        if tissue is None:
            return
        self.layers.show_labels(
            _layers.TISSUE,
            np.where(tissue.mask, np.float32(0), np.float32(np.nan)),
            Lattice(tissue.l0_scale_xy, slide.l0_size_xy, slide.l0_bounds_xy),
            ["tissue"],
            [_layers.TISSUE_COLOUR],
            opacity=FILL_OPACITY,
        )

    def draw_likeness(self, compared: ComparedPatch) -> None:
        """How like one patch, of this slide or another, all are; alone on the slide."""
        lattice, places = self.analysis.lattice, self.analysis.look_alikes_xy
        like = self.analysis.likeness_to(compared.analysis, compared.row)
        if lattice is None or places is None or like is None:
            return
        drawn = self.layers.show_heat(
            _layers.LIKENESS,
            np.maximum(self._raster(like, places), 0),
            lattice,
            (0.0, 1.0),
            opacity=LIKENESS_OPACITY * self.fade,
        )
        self.layers.set_visible(drawn, True)
        if compared.analysis is self.analysis:
            x, y = places[compared.row]
            self.frame((int(x), int(y)))
        # One map at a time: no colour of this one is to be mixed.
        for kind in (_layers.ATTENTION, _layers.CLASSES, _layers.KINDS):
            layer = self.layers.find(kind)
            if layer is not None:
                self.layers.set_visible(layer, False)
        self._update_hover()

    def end_likeness(self) -> None:
        self.layers.remove(_layers.LIKENESS, _layers.REGION)
        self._wanted.clear()
        kinds = self.layers.find(_layers.KINDS)
        if kinds is not None:
            self.layers.set_visible(kinds, True)

    def frame(self, l0_xy: tuple[int, int]) -> None:
        """Draw a frame around one patch."""
        lattice = self.analysis.lattice
        if lattice is not None:
            (x, y), (width, height) = l0_xy, lattice.l0_step_xy
            self.layers.show_box((x, y, x + width, y + height), lattice)

    # How they are shown

    def follow_class_control(self, view: MapSettings) -> None:
        layer = self.layers.find(_layers.CLASSES)
        if layer is not None:
            self._follow_control(layer, view.shows_classes)

    def outline_classes(self) -> None:
        """Below another map classes are outlined, alone they are filled."""
        layer = self.layers.find(_layers.CLASSES)
        if layer is None:
            return
        wanted = self._outline
        self.is_outlined = wanted is not None
        ours = layer.metadata["spt"]
        # While it is analysed again, what was drawn stays as it is.
        is_known = self._classes is not None and self.analysis.class_map is not None
        if ours.get("outline") != wanted and is_known:
            self._show_classes(wanted)
        if "is_outlined" not in ours or ours["is_outlined"] != self.is_outlined:
            ours["is_outlined"] = self.is_outlined
            layer.opacity = self._class_opacity

    @property
    def _outline(self) -> int | None:
        """Into how many pixels to divide cells for lines; None fills the classes."""
        heats = (_layers.ATTENTION, _layers.LIKENESS)
        lattice, labels = self.analysis.lattice, self._classes
        if not any(self.is_visible(kind) for kind in heats):
            return None
        if lattice is None or labels is None:
            return 1
        return outline_factor(labels.shape, self._screen_patch)

    def _show_classes(self, outline: int | None) -> Layer:
        found, lattice = self.analysis.class_map, self.analysis.lattice
        layer = self.layers.show_labels(
            _layers.CLASSES,
            self._classes,
            lattice,
            found.classes,
            [class_colour(number) for number in range(len(found.classes))],
            opacity=self._class_opacity,
            has_unsure=True,
            outline=outline,
        )
        layer.metadata["spt"]["outline"] = outline
        return layer

    @property
    def fade(self) -> float:
        """How much of the maps' opacity is left: near by, the tissue is to be seen."""
        if self.analysis.lattice is None:
            return 1.0
        return float(np.interp(np.log2(max(self._screen_patch, 1)), *FADING))

    @property
    def _screen_patch(self) -> float:
        """How many pixels of the screen a patch is wide."""
        lattice = self.analysis.lattice
        if lattice is None:
            return 1.0
        scale = abs(self.analysis.layer.scale[-1])
        return float(lattice.l0_step_xy[0] * scale * camera(self.viewer).zoom)

    def follow_zoom(self, view: MapSettings) -> None:
        fade = self.fade
        for kind, opacity in (
            (_layers.ATTENTION, view.opacity * fade),
            (_layers.LIKENESS, LIKENESS_OPACITY * fade),
            (_layers.CLASSES, self._class_opacity),
            (_layers.KINDS, view.kinds_opacity * fade),
        ):
            layer = self.layers.find(kind)
            if layer is not None and abs(layer.opacity - opacity) > 0.004:
                layer.opacity = opacity
        self.outline_classes()

    def tissue_on_canvas(self, size_xy: tuple[int, int]) -> NDArray[np.float64] | None:
        """Places (n, 2) of tissue on a canvas of such a size, in its pixels (x, y)."""
        tissue, lattice = self.analysis.tissue, self.analysis.lattice
        if tissue is None or lattice is None:
            return None
        rows, cols = np.nonzero(tissue.mask)
        some = slice(None, None, max(1, len(rows) // MOST_TISSUE))
        l0_xy = np.stack([cols[some] + 0.5, rows[some] + 0.5], axis=1)
        l0_xy = l0_xy * np.asarray(tissue.l0_scale_xy)
        origin, right, down = (
            np.asarray(lattice.world(self.analysis.layer, place))
            for place in ((0.0, 0.0), (1.0, 0.0), (0.0, 1.0))
        )
        world = (
            origin + l0_xy[:, :1] * (right - origin) + l0_xy[:, 1:] * (down - origin)
        )
        return on_canvas(self.viewer, world, size_xy)

    def legend_parts(self, view: MapSettings) -> list[Scale | Classes]:
        parts: list[Scale | Classes] = []
        if self.is_visible(_layers.LIKENESS):
            ends = ("unlike", "the same")
            parts.append(Scale("More like this", ends, ramp=LIKENESS_RAMP))
        elif self.is_visible(_layers.ATTENTION):
            parts.append(_attention_scale(view, is_even=self.is_even))
        found = self.analysis.class_map
        if found is not None and self.is_visible(_layers.CLASSES):
            colours = [class_colour(number) for number in range(len(found.classes))]
            parts.append(
                Classes(
                    "Class map, in outline" if self.is_outlined else "Class map",
                    (*found.classes, _layers.UNSURE),
                    (*colours, UNSURE_COLOUR),
                )
            )
        kinds = self.analysis.tissue_map
        if kinds is not None and self.is_visible(_layers.KINDS):
            rgb = tuple(
                (red, green, blue) for red, green, blue in kinds.kinds.rgb.tolist()
            )
            parts.append(Classes("Kinds of tissue", tuple(kinds.kinds.titles), rgb))
        return parts

    @property
    def _class_opacity(self) -> float:
        """Lines cover no tissue: they are not faded."""
        return OUTLINE_OPACITY if self.is_outlined else FILL_OPACITY * self.fade

    def _follow_control(self, layer: Layer, wanted: bool) -> None:
        """Follow the control when it changes; in between, the user's own hiding."""
        kind = layer.metadata["spt"]["map"]
        if self._wanted.get(kind) != wanted:
            self._wanted[kind] = wanted
            self.layers.set_visible(layer, wanted)

    def _move_below_attention(self, layer: Layer) -> None:
        attention = self.layers.find(_layers.ATTENTION)
        layers = self.viewer.layers
        if attention is not None and layers.index(layer) > layers.index(attention):
            layers.move(layers.index(layer), layers.index(attention))

    def _update_hover(self, **known: Any) -> None:
        lattice = self.analysis.lattice
        if lattice is None:
            return
        before = self.hover
        if before is not None:
            known = {
                "times": before.times,
                "shares": before.shares,
                "classes": before.classes,
                "kinds": before.kinds,
                "kind_names": before.kind_names,
                **known,
            }
        self.hover = HoverTable(
            self.analysis.layer, lattice, self.analysis.mpp_xy, **known
        )

    def _raster(self, values: NDArray, l0_xy: NDArray) -> NDArray[np.float32]:
        from spt_core.insight.maps import lattice_map

        lattice = self.analysis.lattice
        step = (1, 1) if lattice is None else lattice.l0_step_xy
        return lattice_map(values, l0_xy, step, self.analysis.slide.l0_size_xy)


def _attention_scale(view: MapSettings, *, is_even: bool) -> Scale:
    low, high = view.limits
    if view.unit == PERCENTILE:
        ends = ("least", "most looked at on this slide")
    else:
        ends = (f"{low:g} ×", f"{high:g} × average or more")
    sentences = (f"<b>{EVEN}</b>", NOT_WHERE) if is_even else (NOT_WHERE,)
    return Scale("Attention", ends, sentences)
