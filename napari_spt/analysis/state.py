"""What the analysis dock knows, and the signals by which it tells of changes. No Qt."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from psygnal import Signal

from napari_spt.analysis.map_settings import MapSettings
from napari_spt.analysis.slide_analysis import Analysis, Change
from napari_spt.slides.slide_source import SlideSource, key_of, slide_source
from spt_core.engine.cache import ROOM_GB
from spt_core.engine.protocol import Ready, Reply
from spt_core.hints import Hint
from spt_core.insight.results import Prediction

if TYPE_CHECKING:
    from napari.layers import Layer


@dataclass(frozen=True)
class Options:
    """How slides are analysed; None takes what is best here.

    Attributes
    ----------
    slide_mpp
        Micrometres per pixel of slides that do not say it themselves.
    channels
        What is seen as red, green and blue of slides in channels.
    """

    encoder: str | None = None
    device: str | None = None
    batch_size: int | None = None
    stain: str | None = None
    slide_mpp: float | None = None
    channels: str | None = None
    room_gb: Annotated[
        int,
        Hint(
            "what was not used for longest goes first",
            label="Keep at most",
            minimum=1,
            maximum=1000,
            unit="GB",
        ),
    ] = ROOM_GB


@dataclass(frozen=True, eq=False)
class ComparedPatch:
    """A patch of an analysis that all others are compared with."""

    analysis: Analysis
    row: int


class AnalysisState:
    """What the panels of one dock show; every change is told by a signal."""

    slides_changed = Signal()
    slide_chosen = Signal()
    model_changed = Signal()
    options_changed = Signal()
    view_changed = Signal()
    preparing_changed = Signal()
    engine_changed = Signal()
    cache_changed = Signal()
    comparison_changed = Signal()
    likeness_changed = Signal(object, object)  # the one before, and the one now
    analysis_changed = Signal(Analysis, Change)

    def __init__(
        self, *, view: MapSettings | None = None, options: Options | None = None
    ) -> None:
        self.layers: tuple[Layer, ...] = ()
        self.layer: Layer | None = None
        self.analyses: dict[str, Analysis] = {}
        self.model: Path | None = None
        self.model_name = ""
        self.view = view or MapSettings()
        self.options = options or Options()
        self.stated_mpp: dict[str, float] = {}  # the user's answers, by slide
        self.stated_sites: dict[str, str] = {}  # the same
        self.is_preparing = False
        self.engine: Ready | None = None
        self.cache_bytes: int | None = None
        self.comparison: Prediction | None = None
        self.likeness: ComparedPatch | None = None

    # Which slide

    @property
    def source(self) -> SlideSource | None:
        """The chosen slide."""
        return slide_source(self.layer)

    @property
    def analysis(self) -> Analysis | None:
        """The analysis of the chosen slide, if there is one."""
        return None if self.layer is None else self.analyses.get(key_of(self.layer))

    def set_layers(self, layers: tuple["Layer", ...]) -> None:
        """Which layers are slides; the chosen one stays chosen where it is there."""
        self.layers = layers
        self.slides_changed.emit()
        if self.layer not in layers:
            self.choose(layers[-1] if layers else None)

    def choose(self, layer: "Layer | None") -> None:
        if layer is self.layer:
            return
        self.layer = layer
        if self.source is not None and self.source.mpp_xy is not None:
            # What was said of other slides is not said of the next one.
            self.set_options(slide_mpp=None)
        self.slide_chosen.emit()

    @property
    def asks_pixel_size(self) -> bool:
        """Whether the user has to say how large the chosen slide's pixels are."""
        source = self.source
        return (
            source is not None
            and source.mpp_xy is None
            and self.options.slide_mpp is None
        )

    @property
    def slide_mpp(self) -> float | None:
        """The user's word on the chosen slide's pixel size; the file's comes first."""
        if self.layer is None or self.source is None or self.source.mpp_xy is not None:
            return None
        return self.options.slide_mpp or self.stated_mpp.get(key_of(self.layer))

    @property
    def channels(self) -> str | None:
        """The channels chosen by the user; of a picture in colour there are none."""
        source = self.source
        is_in_channels = source is not None and source.in_channels
        return self.options.channels if is_in_channels else None

    def state_mpp(self, key: str, mpp: float | None) -> None:
        """The user says how large the pixels of a slide are."""
        if mpp is None:
            self.stated_mpp.pop(key, None)
        else:
            self.stated_mpp[key] = mpp
        self.options_changed.emit()

    @property
    def site(self) -> str | None:
        """The user's word on where the chosen slide is from."""
        return None if self.layer is None else self.stated_sites.get(key_of(self.layer))

    def state_site(self, site: str | None) -> None:
        """The user says where the chosen slide is from."""
        if self.layer is None:
            return
        if site is None:
            self.stated_sites.pop(key_of(self.layer), None)
        else:
            self.stated_sites[key_of(self.layer)] = site
        self.options_changed.emit()

    # How to analyse, and how to show

    def choose_model(self, model: Path | None, name: str) -> None:
        self.model, self.model_name = model, name
        self.model_changed.emit()

    def set_options(self, **values: Any) -> None:
        options = replace(self.options, **values)
        if options != self.options:
            self.options = options
            self.options_changed.emit()

    def set_view(self, **values: Any) -> None:
        view = replace(self.view, **values)
        if view != self.view:
            self.view = view
            self.view_changed.emit()

    # What comes of it

    def set_preparing(self, is_preparing: bool) -> None:
        self.is_preparing = is_preparing
        self.preparing_changed.emit()

    def set_engine(self, ready: Ready | None) -> None:
        if ready is not None and ready is not self.engine:
            self.engine = ready
            self.engine_changed.emit()

    def set_cache_bytes(self, size: int) -> None:
        self.cache_bytes = size
        self.cache_changed.emit()

    def begin(self, analysis: Analysis) -> None:
        """A slide is analysed, in place of what was known of it."""
        self.analyses[analysis.key] = analysis
        self.analysis_changed.emit(analysis, Change.BEGUN)

    def is_known(self, analysis: Analysis) -> bool:
        """Whether an analysis is still the one of its slide."""
        return any(one is analysis for one in self.analyses.values())

    def apply(self, analysis: Analysis, reply: Reply) -> None:
        change = analysis.apply(reply)
        if change is not None and self.is_known(analysis):
            self.analysis_changed.emit(analysis, change)

    def tell(self, analysis: Analysis, change: Change) -> None:
        """Something of an analysis was changed in place."""
        if self.is_known(analysis):
            self.analysis_changed.emit(analysis, change)

    def forget(self, layer: "Layer") -> list[Analysis]:
        """A layer is gone, and what was known of it."""
        gone = [one for one in self.analyses.values() if one.layer is layer]
        for analysis in gone:
            self.analyses = {
                key: one for key, one in self.analyses.items() if one is not analysis
            }
            self.analysis_changed.emit(analysis, Change.FORGOTTEN)
        return gone

    def compare(self, prediction: Prediction | None) -> None:
        """Show another answer beside the slide's own, or none."""
        self.comparison = prediction
        self.comparison_changed.emit()

    def show_likeness(self, likeness: ComparedPatch | None) -> None:
        before, self.likeness = self.likeness, likeness
        if likeness is not before:
            self.likeness_changed.emit(before, likeness)

    def disconnect_all(self) -> None:
        """Nobody is told of anything any more."""
        for name, value in vars(type(self)).items():
            if isinstance(value, Signal):
                getattr(self, name).disconnect()
