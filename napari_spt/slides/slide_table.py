"""The slides of one viewer, as on a table: one lies in front, or all side by side.

A slide is a group: its layers, and the maps, shapes and regions over it (their
``metadata["spt"]["of"]`` is the slide's key). What is done with a slide is done with
its group.
"""

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, ref

import numpy as np
from napari.layers import Layer
from numpy.typing import NDArray
from psygnal import Signal
from qtpy.QtCore import QTimer

from napari_spt.parts.viewing import (
    grid,
    is_in_view,
    kept_with,
    show_whole,
    viewbox_size,
    world_box,
)
from napari_spt.slides import slide_keys
from napari_spt.slides.grid_cells import share_cells
from napari_spt.slides.groups import (
    called,
    frame,
    group_name,
    map_of,
    matrix_of,
    moved_by,
)
from napari_spt.slides.opening_trouble import Troubles
from napari_spt.slides.pixel_units import ScaleBarKeeper, known_mpp_xy, use_one_unit
from napari_spt.slides.side_by_side import places_side_by_side
from napari_spt.slides.slide_source import is_file_slide, key_of, slide_layers

if TYPE_CHECKING:
    from napari.viewer import Viewer

_MOVES = ("scale", "translate", "rotate", "shear", "affine")


class SlideTable:
    """Which slide of a viewer lies in front; the others step back with their maps.

    Attributes
    ----------
    slides
        The layers that are slides, in the order of the layer list; of a slide in
        channels the first one stands for all.
    front
        The slide that is looked at.
    is_side_by_side
        Whether all slides are shown beside one another, in micrometres.
    troubles
        What went wrong while slides were opened.
    """

    slides_changed = Signal()
    front_changed = Signal()
    layout_changed = Signal()

    def __init__(self, viewer: "Viewer") -> None:
        self.viewer = viewer
        self.slides: tuple[Layer, ...] = ()
        self.front: Layer | None = None
        self.is_side_by_side = False
        self.troubles = Troubles()
        self._behind: WeakKeyDictionary[Layer, bool] = WeakKeyDictionary()
        self._shift: WeakKeyDictionary[Layer, NDArray] = WeakKeyDictionary()
        self._lies: WeakKeyDictionary[Layer, NDArray] = WeakKeyDictionary()
        self._before: list[ref[Layer]] = []
        self._scale_bar = ScaleBarKeeper()
        layers = viewer.layers
        layers.events.inserted.connect(self._on_inserted)
        layers.events.removed.connect(self._on_removed)
        layers.selection.events.active.connect(self._on_active)
        grid(viewer).events.enabled.connect(self._on_grid)
        share_cells(grid(viewer), group_name)
        slide_keys.register()
        self._look_around()
        if self.slides:
            self.bring(self.slides[-1], moves_pictures=False)

    @property
    def shows_all(self) -> bool:
        """Whether slides lie side by side, here or in napari's grid."""
        return self.is_side_by_side or bool(grid(self.viewer).enabled)

    # Groups

    def parts_of(self, slide: Layer) -> list[Layer]:
        """The layers of a slide itself: one, or its channels."""
        if "channel" not in slide.metadata.get("spt", {}):
            return [slide]
        key = key_of(slide)
        return [
            layer
            for layer in self.viewer.layers
            if "channel" in layer.metadata.get("spt", {}) and key_of(layer) == key
        ]

    def maps_of(self, slide: Layer) -> list[Layer]:
        """Maps, shapes and regions over a slide."""
        key = key_of(slide)
        return [layer for layer in self.viewer.layers if map_of(layer) == key]

    def group_of(self, slide: Layer) -> list[Layer]:
        return [*self.parts_of(slide), *self.maps_of(slide)]

    def slide_of(self, layer: Layer | None) -> Layer | None:
        """The slide whose group a layer belongs to."""
        if layer is None:
            return None
        key = map_of(layer) or key_of(layer)
        if layer in self.slides:
            return layer
        return next((slide for slide in self.slides if key_of(slide) == key), None)

    # In front and behind

    def bring(self, slide: Layer | None, *, moves_pictures: bool = True) -> None:
        """Show a slide whole, in front of the others.

        Pictures that are in the window alone may lie over a slide on purpose: they
        step back only with ``moves_pictures``.
        """
        if slide is None or slide is self.front:
            return
        self.front = slide
        active = self.viewer.layers.selection.active
        if self.slide_of(active) is not slide and slide in self.viewer.layers:
            self.viewer.layers.selection.active = slide
        self._before = [one for one in self._before if one() not in (None, slide)]
        self._before.append(ref(slide))
        if moves_pictures or is_file_slide(slide):
            self._show_front(moves_pictures=moves_pictures)
        self._tend_scale_bar()
        self.front_changed.emit()

    def go_on(self, step: int) -> None:
        """Bring the next slide, or the one before, around the ends."""
        if self.front in self.slides:
            number = self.slides.index(self.front) + step
            self.bring(self.slides[number % len(self.slides)])

    def set_visible(self, layer: Layer, is_visible: bool) -> None:
        """Show or hide a layer of a group; behind another slide it stays hidden."""
        if layer in self._behind:
            self._behind[layer] = is_visible
        elif layer.visible != is_visible:
            layer.visible = is_visible

    def show_whole(self) -> None:
        """Let all of what lies in front be in view."""
        shown = self.slides if self.shows_all else (self.front,)
        slides = [slide for slide in shown if slide is not None]
        if slides:
            show_whole(self.viewer, slides)

    def _show_front(self, *, moves_pictures: bool) -> None:
        front = self.front
        if front is None:
            return
        for slide in self.slides:
            frame(slide, self.is_side_by_side and slide is front)
            if slide is front or self.shows_all:
                self._step_forward(slide)
            elif moves_pictures or is_file_slide(slide):
                self._step_back(slide)
        if not self.shows_all:
            show_whole(self.viewer, [front])
        elif self.is_side_by_side:
            self._lay_out()
            if not is_in_view(self.viewer, [front]):
                show_whole(self.viewer, [front])

    def _step_back(self, slide: Layer) -> None:
        for layer in self.group_of(slide):
            self._hide(layer)

    def _hide(self, layer: Layer) -> None:
        if layer not in self._behind:
            self._behind[layer] = layer.visible
            layer.visible = False

    def _step_forward(self, slide: Layer) -> None:
        for layer in self.group_of(slide):
            was_visible = self._behind.pop(layer, None)
            if was_visible is not None and layer.visible != was_visible:
                layer.visible = was_visible

    # Side by side

    def lay_side_by_side(self, is_on: bool) -> None:
        """Lay all slides beside one another, or show one at a time again."""
        if is_on == self.is_side_by_side:
            return
        self.is_side_by_side = is_on
        if is_on:
            grid(self.viewer).enabled = False
        self._on_layout()

    def _on_grid(self, _event: object = None) -> None:
        if grid(self.viewer).enabled:
            # The grid has its own places.
            self.is_side_by_side = False
        self._on_layout()

    def _on_layout(self) -> None:
        if not self.is_side_by_side:
            for slide in self.slides:
                self._move(slide, np.zeros(2))
        self._show_front(moves_pictures=False)
        self.show_whole()
        self._tend_scale_bar()
        self.layout_changed.emit()

    def _lay_out(self) -> None:
        """Give each slide its place; a slide that has it stays there."""
        slides = [slide for slide in self.slides if is_file_slide(slide)]
        if not slides:
            return
        boxes = [world_box([slide]) for slide in slides]
        sizes = [box[1] - box[0] for box in boxes]
        places = places_side_by_side(sizes, viewbox_size(self.viewer))
        for slide, box, place in zip(slides, boxes, places, strict=True):
            home = box[0] - self._shift.get(slide, np.zeros(2))
            self._move(slide, place - home)

    def _move(self, slide: Layer, shift: NDArray) -> None:
        """Let a slide lie ``shift`` (y, x) beside its own place; its maps follow."""
        step = shift - self._shift.get(slide, np.zeros(2))
        if np.allclose(step, 0):
            return
        self._shift[slide] = shift
        for layer in self.parts_of(slide):
            layer.affine = moved_by(step) @ np.asarray(layer.affine.affine_matrix)

    # Following the viewer

    def _look_around(self) -> None:
        """See which layers are slides."""
        slides = tuple(slide_layers(self.viewer))
        for slide in slides:
            if slide not in self._lies:
                self._watch(slide)
        if slides != self.slides:
            self.slides = slides
            self.state_units()
            self.slides_changed.emit()

    def state_units(self, *, in_um: bool = False) -> None:
        """Measure all slides in one unit: else napari drops the units of all.

        In micrometres where one of them says how large its pixels are, or ``in_um``.
        """
        front = self.front if self.front in self.slides else None
        lay = None if front is None else matrix_of(front)
        groups = [(slide, self.group_of(slide)) for slide in self.slides]
        use_one_unit(groups, in_um=in_um)
        if front is not None and not np.allclose(lay, matrix_of(front)):
            if self.is_side_by_side:
                self._lay_out()
            self.show_whole()
        self._tend_scale_bar()

    def _tend_scale_bar(self) -> None:
        shown = self.slides if self.shows_all else (self.front,)
        self._scale_bar.tend(self.viewer, shown)

    def unit_of_next(self, mpp_xy: tuple[float, float] | None) -> str:
        """The unit for a slide that is about to come, which all others then have too.

        ``mpp_xy`` is what it says of its pixels. Where napari meets two units, it tells
        the user so, and uses none.
        """
        known = [known_mpp_xy(slide) for slide in self.slides]
        in_um = mpp_xy is not None or any(one is not None for one in known)
        self.state_units(in_um=in_um)
        return "um" if in_um else "pixel"

    def _watch(self, slide: Layer) -> None:
        self._lies[slide] = matrix_of(slide)
        for name in _MOVES:
            getattr(slide.events, name).connect(self._on_moved)
        slide.events.name.connect(self._on_renamed)

    def _on_moved(self, event: Any) -> None:
        """A slide was moved, turned or measured anew: so are its maps."""
        slide = event.source
        before, now = self._lies[slide], matrix_of(slide)
        if np.allclose(before, now, rtol=0, atol=1e-12):
            return
        self._lies[slide] = now
        change = now @ np.linalg.inv(before)
        for layer in self.maps_of(slide):
            layer.affine = change @ np.asarray(layer.affine.affine_matrix)

    def _on_renamed(self, event: Any) -> None:
        for layer in self.maps_of(event.source):
            what = layer.metadata["spt"].get("called")
            if what:
                layer.name = called(what, event.source)

    def _on_inserted(self, event: Any) -> None:
        layer = event.value
        self._look_around()
        slide = self.slide_of(layer)
        if slide is None:
            return
        if layer is slide:
            # What is opened is looked at; a picture of memory stays where it is put.
            self.bring(slide, moves_pictures=False)
            if self.is_side_by_side:
                self.show_whole()
        elif slide in self._behind:
            self._hide(layer)

    def _on_active(self, _event: object = None) -> None:
        active = self.viewer.layers.selection.active
        if active is not None and map_of(active) is None:
            self.bring(self.slide_of(active), moves_pictures=False)

    def _on_removed(self, event: Any) -> None:
        gone = event.value
        was_slide = gone in self.slides
        self._look_around()
        if not was_slide:
            return
        key = key_of(gone)
        if not any(key_of(slide) == key for slide in self.slides):
            # Not now: whoever removes several layers at once counts on them.
            QTimer.singleShot(0, lambda: self._remove_maps(key))
        if gone is self.front:
            self.front = None
            self._behind.pop(gone, None)
            left = [one() for one in self._before if one() in self.slides]
            self.bring(left[-1] if left else next(iter(self.slides[-1:]), None))
            if self.front is None:
                self._tend_scale_bar()
                self.front_changed.emit()

    def _remove_maps(self, key: str) -> None:
        if any(key_of(slide) == key for slide in self.slides):
            return
        for layer in list(self.viewer.layers):
            if map_of(layer) == key:
                self.viewer.layers.remove(layer)


def table_of(viewer: "Viewer") -> SlideTable:
    """The table of a viewer, laid at its first slide or dock."""
    return kept_with(viewer, "table", SlideTable)
