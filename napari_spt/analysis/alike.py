"""What needs no model: kinds of tissue, places like no others, and look-alikes."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from napari.utils.notifications import show_error, show_info

from napari_spt.analysis import layers as _layers
from napari_spt.analysis.display import Shown
from napari_spt.analysis.places import odd_places
from napari_spt.analysis.questions import LIKE_SHOWN
from napari_spt.analysis.state import DONE, FAILED
from napari_spt.parts.background import run_in_background
from napari_spt.parts.engine import Message
from napari_spt.parts.post import ENDS, post

if TYPE_CHECKING:
    from napari_spt.analysis.work import Work


class Alike:
    """Asks for what looks alike on a slide that has been seen, and shows it."""

    def __init__(self, work: "Work") -> None:
        self.work = work
        self.dock = work.dock
        self._asked_of: Shown | None = None  # the slide that shows look-alikes

    def prepare(self, shown: Shown) -> None:
        """Read what look-alikes are found by; without a model, map the tissue."""
        features = shown.analysis.features
        if features is None:
            return

        def loaded(found: tuple) -> None:
            shown.look_alikes, shown.likeness_xy = found
            if not self.dock.is_closed:
                self.dock.follow()

        def failed(error: Exception) -> None:
            show_error(f"What looks alike cannot be found: {error}")

        run_in_background(
            lambda: _look_alikes(features), loaded, failed, owner=self.dock
        )
        if shown.analysis.model is None:
            shown.is_sorted = False
            self.dock.follow()
            post().ask(
                "explore",
                lambda message: self._take_kinds(shown, message),
                user=id(self.dock),
                features=str(features),
                title=shown.analysis.slide.name,
            )

    def _take_kinds(self, shown: Shown, message: Message) -> None:
        if self.dock.is_closed or shown is not self.work.analyses.get(shown.maps.key):
            return
        if message.event in ENDS:
            shown.is_sorted = True
            self.dock.follow()
        if message.event == FAILED:
            show_error(str(message.facts.get("sentence")))
        elif message.event == DONE:
            shown.kinds = {**message.facts, **message.arrays}
            self.dock.display.draw(shown, self.dock.controls.settings)
            if shown is self.dock.shown:
                self.show_kinds(shown)
                self.dock.follow()
            else:
                self.dock.redraw()

    def show_kinds(self, shown: Shown) -> None:
        kinds, dock = shown.kinds, self.dock
        odd = np.asarray(kinds["outliers"], np.int64)
        count = len(kinds["names"])
        dock.tissue_words.setText(
            f"{count} kinds of tissue, by looks alone: they have no names, and the "
            f"colours say only what looks alike. {len(odd):,} places are like no "
            "others on this slide."
        )
        dock.strip_words.setText("Places like no others, the strangest first.")
        self.work.fill_strip(shown, odd_places(kinds))

    def show_likeness(self, world_yx: tuple[float, float]) -> None:
        dock, shown = self.dock, self.dock.shown
        if shown is None or shown.lattice is None:
            return
        self._asked_of = shown
        l0_xy = shown.lattice.l0(shown.layer, world_yx)
        if dock.display.draw_likeness(shown, l0_xy):
            # One map at a time: no colour of this one is to be mixed.
            for kind in (_layers.ATTENTION, _layers.CLASSES, _layers.KINDS):
                layer = shown.maps.find(kind)
                if layer is not None:
                    layer.visible = False
            dock.questions.say_hint(LIKE_SHOWN)
            dock.display.follow_layers()
        else:
            show_info(
                "There is no tissue here that was looked at. Click another place."
            )

    def end_likeness(self) -> None:
        shown, self._asked_of = self._asked_of, None
        if shown is None:
            return
        shown.maps.remove(_layers.LIKENESS, _layers.REGION)
        shown.wanted.clear()
        kinds = shown.maps.find(_layers.KINDS)
        if kinds is not None:
            kinds.visible = True
        if shown in self.work.analyses.values():
            self.dock.display.follow_controls(shown, self.dock.controls.settings)
        self.dock.redraw()


def _look_alikes(features: Path) -> tuple:
    from spt_core.insight.similarity import LookAlikes
    from spt_core.tokens import read_tokens

    tokens = read_tokens(features)
    return LookAlikes(tokens.x), tokens.xy
