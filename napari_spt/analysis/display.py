"""From what is known of a slide to what is seen: layers, legend, status, regions."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import numpy as np
from napari.layers import Layer
from numpy.typing import NDArray
from qtpy.QtWidgets import QWidget

from napari_spt.analysis import layers as _layers
from napari_spt.analysis.layers import Lattice, SlideMaps
from napari_spt.analysis.legends import ClassPart, HeatPart, Legend
from napari_spt.analysis.state import Analysis
from napari_spt.analysis.status import HoverTable, tell_by, tell_plainly
from napari_spt.analysis.view_controls import PERCENTILE, TIMES, WEAK, ViewSettings
from napari_spt.parts.viewing import camera, main_window
from spt_core.insight.colours import EVEN, NOT_WHERE

if TYPE_CHECKING:
    from napari.viewer import Viewer

CLASS_OPACITY = 0.35
# Over it the attention's colours are to be seen as they are: classes in outline alone.
OUTLINE_OPACITY = 0.6
# From patches of 40 to 200 screen pixels (as powers of 2) maps fade to a fifth.
FADING = ((5.3, 7.6), (1.0, 0.2))
UNSURE = "unsure"
OVERLAYS = (
    _layers.ATTENTION,
    _layers.CLASSES,
    _layers.KINDS,
    _layers.LIKENESS,
    _layers.TISSUE,
    _layers.REGION,
)


@dataclass(eq=False)
class Shown:
    """One analysis with the layers that show it."""

    analysis: Analysis
    layer: Layer
    maps: SlideMaps
    hover: HoverTable | None = None
    is_even: bool = False
    is_outlined: bool = False
    kinds: dict[str, Any] = field(default_factory=dict)
    wanted: dict[str, bool] = field(default_factory=dict)
    look_alikes: Any = None
    likeness_xy: NDArray[np.int64] | None = None
    is_sorted: bool = True

    def take_over(self, before: "Shown") -> None:
        """Show what an analysis before this one found, until there is something new."""
        self.analysis.take_over(before.analysis)
        self.hover, self.kinds = before.hover, before.kinds
        self.is_even, self.is_outlined = before.is_even, before.is_outlined
        self.wanted = before.wanted
        self.look_alikes, self.likeness_xy = before.look_alikes, before.likeness_xy

    @property
    def lattice(self) -> Lattice | None:
        analysis = self.analysis
        if analysis.l0_step_xy is None:
            return None
        slide = analysis.slide
        return Lattice(analysis.l0_step_xy, slide.l0_size_xy, slide.l0_bounds_xy)

    def raster(self, values: NDArray, l0_xy: NDArray) -> NDArray[np.float32]:
        from spt_core.insight.maps import lattice_map

        step = self.analysis.l0_step_xy or (1, 1)
        return lattice_map(values, l0_xy, step, self.analysis.slide.l0_size_xy)


class Display:
    """Draws what is known; the same layers are brought up to date."""

    def __init__(self, viewer: "Viewer", dock: QWidget) -> None:
        self.viewer = viewer
        self.dock = dock
        self._legend: Legend | None = None
        self._told: list[Layer] = []
        self._drawn: tuple[Shown, ViewSettings] | None = None
        self._watched: WeakSet[Layer] = WeakSet()

    @property
    def legend(self) -> Legend | None:
        if self._legend is None:
            window = main_window(self.dock)
            if window is not None and window.centralWidget() is not None:
                self._legend = Legend(window.centralWidget())
        return self._legend

    def draw(self, shown: Shown, settings: ViewSettings) -> None:
        """Everything of an analysis that there is."""
        self.draw_attention(shown, settings)
        self.draw_classes(shown, settings)
        self.draw_kinds(shown)
        self.draw_legend(shown, settings)
        self._watch(shown, settings)

    def follow_layers(self) -> None:
        """Layers were shown, hidden or removed by hand: so are outlines and legend."""
        if self._drawn is not None:
            self._outline_classes(self._drawn[0])
            self.draw_legend(*self._drawn)

    def _watch(self, shown: Shown, settings: ViewSettings) -> None:
        """Follow layers that are shown or hidden by hand."""
        self._drawn = (shown, settings)
        for layer in self.overlays(shown):
            if layer not in self._watched:
                self._watched.add(layer)
                layer.events.visible.connect(self.follow_layers)

    def follow_controls(self, shown: Shown, settings: ViewSettings) -> None:
        """What a control of the view changes; all else stays as it was drawn."""
        self.draw_attention(shown, settings)
        classes = shown.maps.find(_layers.CLASSES)
        if classes is not None:
            self._let_be_seen(shown, classes, settings.shows_classes)
        self._outline_classes(shown)
        self.draw_legend(shown, settings)
        self._watch(shown, settings)

    def draw_attention(self, shown: Shown, settings: ViewSettings) -> None:
        from spt_core.insight.maps import attention_values, smoothed
        from spt_core.insight.regions import stands_out

        reading, lattice = shown.analysis.reading, shown.lattice
        if reading is None or lattice is None or not len(reading.attention):
            return
        head = settings.head if settings.head < len(reading.attention) else -1
        times = attention_values(reading.attention, head=head, unit=TIMES)
        shown.is_even = not stands_out(times)
        values = times
        if settings.unit == PERCENTILE:
            values = attention_values(reading.attention, head=head, unit=PERCENTILE)
        drawn = smoothed(shown.raster(values, reading.l0_xy), settings.smoothing)
        if settings.hides_weak:
            drawn = np.where(drawn >= WEAK[settings.unit], drawn, np.nan)
        layer = shown.maps.show_heat(
            _layers.ATTENTION,
            drawn.astype(np.float32),
            lattice,
            settings.limits,
            opacity=settings.opacity,
        )
        layer.opacity = settings.opacity * self.fade(shown)
        self._let_be_seen(shown, layer, settings.shows_attention)
        self._tell(shown, times=shown.raster(times, reading.l0_xy))

    def draw_classes(self, shown: Shown, settings: ViewSettings) -> None:
        from spt_core.insight.colours import UNSURE_COLOUR, class_colour

        found, lattice = shown.analysis.class_reading, shown.lattice
        if found is None or lattice is None:
            return
        reading = shown.analysis.reading
        if reading is not None and reading.probabilities is None:
            # A model that names nothing of the slide names nothing of its parts.
            shown.maps.remove(_layers.CLASSES)
            return
        drawn = shown.raster(found.labels, found.l0_xy)
        colours = [class_colour(i) for i in range(len(found.classes))]
        layer = shown.maps.show_labels(
            _layers.CLASSES,
            np.nan_to_num(drawn, nan=0).astype(np.uint8),
            lattice,
            [*found.classes, UNSURE],
            [*colours, UNSURE_COLOUR],
            opacity=CLASS_OPACITY,
        )
        self._let_be_seen(shown, layer, settings.shows_classes)
        self._outline_classes(shown)
        self._below_attention(shown, layer)
        shares = np.stack(
            [shown.raster(column, found.l0_xy) for column in found.probabilities.T],
            axis=-1,
        )
        # Of a patch that is unsure no class is told, however slightly it leads.
        shares[np.nan_to_num(drawn) == len(found.classes) + 1] = np.nan
        self._tell(shown, shares=shares, classes=found.classes)

    def draw_kinds(self, shown: Shown) -> None:
        kinds, lattice = shown.kinds, shown.lattice
        if not kinds or lattice is None:
            return
        drawn = shown.raster(kinds["cluster"] + 1, kinds["l0_xy"])
        shown.maps.show_labels(
            _layers.KINDS,
            np.nan_to_num(drawn, nan=0).astype(np.uint8),
            lattice,
            kinds["names"],
            kinds["colours"],
            opacity=CLASS_OPACITY,
        )
        self._tell(shown)

    def draw_likeness(self, shown: Shown, l0_xy: tuple[float, float]) -> bool:
        """How like a place the rest is; False where there is no patch."""
        lattice, places = shown.lattice, shown.likeness_xy
        if lattice is None or places is None or shown.look_alikes is None:
            return False
        step = np.asarray(lattice.l0_step_xy)
        cell = np.asarray(l0_xy) // step * step
        rows = np.flatnonzero((places == cell).all(axis=1))
        if len(rows) == 0:
            return False
        like = shown.raster(shown.look_alikes.like(rows), places)
        shown.maps.show_heat(
            _layers.LIKENESS, np.maximum(like, 0), lattice, (0.0, 1.0), opacity=0.75
        ).visible = True
        left, top = (int(part) for part in cell)
        box = (left, top, left + int(step[0]), top + int(step[1]))
        shown.maps.show_box(box, lattice)
        self._tell(shown)
        if self._drawn is not None:
            self._watch(shown, self._drawn[1])
        return True

    def draw_tissue(self, shown: Shown) -> None:
        """The mask of the tissue, where it explains that there is none."""
        mask = shown.analysis.tissue
        if mask is None:
            return
        slide = shown.analysis.slide
        lattice = Lattice(
            shown.analysis.l0_tissue_scale, slide.l0_size_xy, slide.l0_bounds_xy
        )
        shown.maps.show_labels(
            _layers.TISSUE,
            mask.astype(np.uint8),
            lattice,
            ["tissue"],
            [_layers.TISSUE_COLOUR],
            opacity=CLASS_OPACITY,
        )

    def draw_legend(self, shown: Shown, settings: ViewSettings) -> None:
        legend = self.legend
        if legend is None:
            return
        parts: list[HeatPart | ClassPart] = []
        if self._is_seen(shown, _layers.LIKENESS):
            parts.append(HeatPart("More like this", ["unlike", "the same"], []))
        elif self._is_seen(shown, _layers.ATTENTION):
            parts.append(_attention_part(shown, settings))
        if self._is_seen(shown, _layers.CLASSES):
            from spt_core.insight.colours import UNSURE_COLOUR, class_colour

            found = shown.analysis.class_reading
            names = [] if found is None else list(found.classes)
            colours = [class_colour(i) for i in range(len(names))]
            title = "Class map, in outline" if shown.is_outlined else "Class map"
            parts.append(ClassPart(title, [*names, UNSURE], [*colours, UNSURE_COLOUR]))
        kinds = shown.kinds
        if kinds and self._is_seen(shown, _layers.KINDS):
            parts.append(ClassPart("Kinds of tissue", kinds["names"], kinds["colours"]))
        legend.show_parts(parts)

    def fade(self, shown: Shown) -> float:
        """How much of the maps' opacity is left: near by, the tissue is to be seen."""
        step = shown.analysis.l0_step_xy
        if step is None:
            return 1.0
        screen = step[0] * abs(shown.layer.scale[-1]) * camera(self.viewer).zoom
        return float(np.interp(np.log2(max(screen, 1)), *FADING))

    def follow_zoom(self, shown: Shown, settings: ViewSettings) -> None:
        fade = self.fade(shown)
        for kind, opacity in (
            (_layers.ATTENTION, settings.opacity),
            (_layers.CLASSES, _class_opacity(shown)),
            (_layers.KINDS, CLASS_OPACITY),
        ):
            layer = shown.maps.find(kind)
            if layer is not None and abs(layer.opacity - opacity * fade) > 0.004:
                layer.opacity = opacity * fade

    def is_drawn(self, shown: Shown) -> bool:
        return self._drawn is not None and self._drawn[0] is shown

    def hide_legend(self) -> None:
        self._drawn = None
        if self._legend is not None:
            self._legend.hide()

    def overlays(self, shown: Shown) -> list[Layer]:
        found = (shown.maps.find(kind) for kind in OVERLAYS)
        return [layer for layer in found if layer is not None]

    def close(self) -> None:
        for layer in self._told:
            tell_plainly(layer)
        self._told = []
        self._drawn = None
        for layer in self._watched:
            layer.events.visible.disconnect(self.follow_layers)
        self._watched.clear()
        if self._legend is not None:
            self._legend.hide()
            self._legend.deleteLater()
            self._legend = None

    def _let_be_seen(self, shown: Shown, layer: Layer, wanted: bool) -> None:
        """Follow the control when it changes; in between, the user's own hiding."""
        if shown.wanted.get(layer.name) != wanted:
            shown.wanted[layer.name] = wanted
            layer.visible = wanted

    def _outline_classes(self, shown: Shown) -> None:
        """Below another map classes are outlined, alone they are filled."""
        layer = shown.maps.find(_layers.CLASSES)
        if layer is None:
            return
        heats = (_layers.ATTENTION, _layers.LIKENESS)
        shown.is_outlined = any(self._is_seen(shown, kind) for kind in heats)
        ours = layer.metadata["spt"]
        if ours.get("is_outlined") != shown.is_outlined:
            ours["is_outlined"] = shown.is_outlined
            layer.contour = int(shown.is_outlined)
            layer.opacity = _class_opacity(shown) * self.fade(shown)

    def _is_seen(self, shown: Shown, kind: str) -> bool:
        layer = shown.maps.find(kind)
        return layer is not None and layer.visible

    def _below_attention(self, shown: Shown, layer: Layer) -> None:
        attention = shown.maps.find(_layers.ATTENTION)
        layers = self.viewer.layers
        if attention is not None and layers.index(layer) > layers.index(attention):
            layers.move(layers.index(layer), layers.index(attention))

    def _tell(self, shown: Shown, **known: Any) -> None:
        """Let the slide and its maps say in the status bar what is known."""
        lattice = shown.lattice
        if lattice is None:
            return
        before = shown.hover
        facts: dict[str, Any] = {}
        if before is not None:
            facts = {
                "times": before.times,
                "shares": before.shares,
                "classes": before.classes,
            }
        shown.hover = HoverTable(
            shown.layer, lattice, shown.analysis.um_pixel_xy, **{**facts, **known}
        )
        for layer in (shown.layer, *self.overlays(shown)):
            # Always anew: the layer may have told of an analysis before this one.
            tell_by(layer, lambda: shown.hover)
            if layer not in self._told:
                self._told.append(layer)


def _class_opacity(shown: Shown) -> float:
    return OUTLINE_OPACITY if shown.is_outlined else CLASS_OPACITY


def _attention_part(shown: Shown, settings: ViewSettings) -> HeatPart:
    low, high = settings.limits
    if settings.unit == PERCENTILE:
        ends = ["least", "most looked at on this slide"]
    else:
        ends = [f"{low:g} ×", f"{high:g} × average or more"]
    sentences = [NOT_WHERE]
    if shown.is_even:
        sentences.insert(0, f"<b>{EVEN}</b>")
    return HeatPart("Attention", ends, sentences)
