"""What a dock asks of the engine, and what it does with the replies."""

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread

from napari.layers import Layer
from qtpy.QtWidgets import QWidget

from napari_spt.analysis.slide_analysis import Analysis, Change
from napari_spt.analysis.state import AnalysisState
from napari_spt.analysis.words import failure_words, notice_words
from napari_spt.parts.background import run_in_background
from napari_spt.parts.notices import show_error, show_info, show_warning
from napari_spt.parts.post import Callback, post
from napari_spt.parts.settings import kinds_folder
from napari_spt.slides.slide_source import SlideSource, key_of, picture_pixels
from spt_core.encoder_terms import terms_sentence
from spt_core.engine.cache import (
    GIGABYTE,
    features_folder,
    kept_bytes,
    make_room,
    pictures_folder,
)
from spt_core.engine.protocol import (
    END_TYPES,
    Analyse,
    Analysed,
    Cancelled,
    Failed,
    MapTissue,
    Noticed,
    Question,
    Reply,
)
from spt_core.files import private_folder

# What the first maps need. napari itself loads pandas at its first labels layer.
NEEDED = ("pandas", "spt_core.insight.maps", "spt_core.insight.regions")

ViewCentre = Callable[[Analysis], tuple[float, float] | None]


class Session:
    """The requests of one dock; replies change its state.

    Parameters
    ----------
    owner
        The dock: what is done in a thread ends silently where it is gone.
    view_centre
        Level-0 (x, y) of what is on the screen, where that is a part only.
    """

    def __init__(
        self, state: AnalysisState, *, owner: QWidget, view_centre: ViewCentre
    ) -> None:
        self.state = state
        self.is_closed = False
        self._owner = owner
        self._user = id(owner)
        self._view_centre = view_centre
        self._looked_at: tuple[float, float] | None = None
        self._prepared: object = None
        self._report: object = None

    def take_up(self) -> None:
        """Prepare what a dock before this one did not come to."""
        for analysis in self.state.analyses.values():
            if analysis.look_alikes is None and analysis.features is not None:
                self._prepare_look_alikes(analysis)

    def close(self) -> None:
        """Ask for no more; what was found so far stays known."""
        self.is_closed = True
        for analysis in self.state.analyses.values():
            post().forget(analysis.request)
            post().forget(analysis.tissue_request)
            analysis.is_mapping_tissue = False
            if analysis.is_open:
                self.state.apply(analysis, Cancelled())
        if self.state.is_preparing:
            self.state.set_preparing(False)

    # Analyses

    def begin(self) -> None:
        """Analyse the chosen slide."""
        state = self.state
        layer, source = state.layer, state.source
        if layer is None or source is None:
            show_error("This layer is not a slide. Open one with “Open slide…”.")
            return
        if state.analysis is not None and state.analysis.is_open:
            return
        Thread(target=_import_needed, name="napari-spt imports").start()
        if source.path is None:
            self._write_picture(layer, source)
        else:
            self._ask(layer, source, source.path, state.slide_mpp)

    def _write_picture(self, layer: Layer, source: SlideSource) -> None:
        """A picture that is in the window alone is first written to a file."""
        from napari_spt.slides.picture_slide import write_picture_slide

        um = self.state.slide_mpp
        mpp_xy = (um, um) if um is not None else source.mpp_xy
        if mpp_xy is None:
            return

        self._prepared = prepared = object()

        def written(path: Path) -> None:
            if self._prepared is not prepared:
                return  # cancelled meanwhile
            self.state.set_preparing(False)
            if not self.is_closed and layer in self.state.layers:
                self._ask(layer, source, path, um)

        def failed(error: Exception) -> None:
            if self._prepared is not prepared:
                return
            self.state.set_preparing(False)
            show_error(f"The picture cannot be prepared: {error}")

        self.state.set_preparing(True)
        self._in_background(
            lambda: write_picture_slide(
                picture_pixels(layer),
                mpp_xy=mpp_xy,
                folder=private_folder(pictures_folder()),
            ),
            written,
            failed,
        )

    def _ask(
        self, layer: Layer, source: SlideSource, path: Path, mpp: float | None
    ) -> None:
        state, options = self.state, self.state.options
        asked = Analyse(
            slide=path,
            title=source.name,
            features=private_folder(features_folder()),
            model=state.model,
            slide_mpp=mpp,
            encoder=options.encoder,
            device=options.device,
            batch_size=options.batch_size,
            stain=options.stain,
            channels=state.channels,
            class_map=state.model is not None,
            site=state.site,
        )
        analysis = Analysis(
            layer, replace(source, path=path), asked, model_name=state.model_name
        )
        before = state.analyses.get(key_of(layer))
        if before is not None and before.asks_the_same(analysis):
            analysis.carry_over(before)
        analysis.asked = replace(asked, l0_from=self._view_centre(analysis))
        analysis.request = post().ask(
            analysis.asked,
            lambda reply: self._on_reply(analysis, reply),
            user=self._user,
        )
        state.begin(analysis)

    def cancel(self) -> None:
        """Stop what is done for the chosen slide; what was found so far stays."""
        analysis = self.state.analysis
        if self.state.is_preparing:
            self._prepared = None
            self.state.set_preparing(False)
        elif analysis is not None and analysis.is_mapping_tissue:
            self.drop(analysis.tissue_request)
            analysis.is_mapping_tissue = False
            self.state.tell(analysis, Change.PROGRESS)
        elif analysis is not None and analysis.request is not None:
            post().cancel(analysis.request)
            analysis.is_stopping = True
            self.state.tell(analysis, Change.PROGRESS)

    def look_here(self) -> None:
        """What is on the screen now is looked at next."""
        analysis = self.state.analysis
        if analysis is None or not analysis.is_open or analysis.request is None:
            return
        place = self._view_centre(analysis)
        if place != self._looked_at:
            self._looked_at = place
            post().look_here(analysis.request, place)

    def forget(self, layer: Layer) -> None:
        """A layer is gone: end what was asked of it."""
        for analysis in self.state.forget(layer):
            post().forget(analysis.request)

    def _on_reply(self, analysis: Analysis, reply: Reply) -> None:
        self.state.set_engine(post().ready)
        self.state.apply(analysis, reply)
        if self.is_closed or not self.state.is_known(analysis):
            return
        if isinstance(reply, Noticed):
            show_warning(notice_words(reply))
        elif isinstance(reply, Failed):
            show_error(failure_words(reply, analysis.slide.name))
        elif isinstance(reply, Analysed):
            self.make_room()
            self._prepare_look_alikes(analysis)
            if analysis.asked.model is None:
                self._map_tissue(analysis)

    # What needs no model

    def _map_tissue(self, analysis: Analysis) -> None:
        if analysis.features is None:
            return
        analysis.is_mapping_tissue = True
        self.state.tell(analysis, Change.PROGRESS)

        def answered(reply: Reply) -> None:
            if not isinstance(reply, END_TYPES):
                return
            analysis.is_mapping_tissue = False
            self.state.tell(analysis, Change.PROGRESS)
            if isinstance(reply, Failed):
                show_error(failure_words(reply, analysis.slide.name))
            else:
                self.state.apply(analysis, reply)

        question = MapTissue(analysis.features, analysis.slide.name, kinds_folder())
        analysis.tissue_request = self.ask(question, answered)

    def _prepare_look_alikes(self, analysis: Analysis) -> None:
        """Read what look-alikes are found by."""
        features = analysis.features
        if features is None:
            return

        def loaded(found: tuple) -> None:
            analysis.look_alikes, analysis.look_alikes_xy = found
            self.state.tell(analysis, Change.LOOK_ALIKES)

        def failed(error: Exception) -> None:
            show_error(f"What looks alike cannot be found: {error}")

        self._in_background(lambda: _look_alikes(features), loaded, failed)

    # Questions

    def ask(self, question: Question, callback: Callback) -> int:
        """Ask about an analysed slide; ``callback`` gets every reply."""
        return post().ask(question, callback, user=self._user)

    def drop(self, request: int | None) -> None:
        """Nobody waits for the answer to a question any more."""
        post().forget(request)

    # Reports

    def write_report(
        self, path: Path, *, with_name: bool, finished: Callable[[], None]
    ) -> None:
        """Write what is shown, in the format of the file's ending."""
        from spt_core.insight.exporting import Findings, write_findings

        analysis = self.state.analysis
        if analysis is None or analysis.prediction is None:
            return
        started = analysis.started
        findings = Findings(
            analysis.prediction,
            analysis.asked.slide,
            class_map=analysis.class_map if analysis.names_class else None,
            model=analysis.asked.model,
            mpp_from_user=started is not None and started.mpp_from_user,
            slide_mpp=analysis.asked.slide_mpp,
            title=analysis.slide.name if with_name else None,
            faithfulness=analysis.faithfulness,
            what_ifs=tuple(analysis.what_ifs),
            tissue_map=analysis.tissue_map,
        )
        self._report = this = object()

        def work() -> bool:
            """Written beside its place, and put there unless it was cancelled."""
            with TemporaryDirectory(prefix=".spt-", dir=path.parent) as folder:
                made = Path(folder) / path.name
                write_findings(made, findings)
                if self._report is this:
                    made.replace(path)
                return self._report is this

        def written(is_there: bool) -> None:
            if is_there:
                terms = terms_sentence(findings.prediction.facts.encoder)
                show_info(f"Written: {path}. {terms}".strip())
                finished()

        def failed(error: Exception) -> None:
            if self._report is this:
                show_error(f"The report cannot be written: {error}")
                finished()

        self._in_background(work, written, failed)

    def cancel_report(self) -> None:
        """Nobody wants the report any more that is being written."""
        self._report = None

    # What is kept

    def measure_cache(self) -> None:
        """See how much room kept features take."""
        self.state.set_engine(post().ready)
        self._tend_cache(kept_bytes)

    def make_room(self) -> None:
        """Let what was not used for longest go, until the limit holds."""
        limit = self.state.options.room_gb * GIGABYTE
        self._tend_cache(lambda: make_room(limit))

    def clear_cache(self) -> None:
        self._tend_cache(lambda: make_room(-1))

    def _tend_cache(self, work: Callable[[], int]) -> None:
        """In a thread: a folder may be large, or on a slow disk."""
        self._in_background(
            work,
            self.state.set_cache_bytes,
            lambda error: show_error(f"The kept features cannot be tended: {error}"),
        )

    def _in_background(
        self,
        work: Callable,
        then: Callable,
        failed: Callable[[Exception], None],
    ) -> None:
        run_in_background(work, then, failed, owner=self._owner)


def _look_alikes(features: Path) -> tuple:
    from spt_core.insight.similarity import LookAlikes
    from spt_core.tokens import read_tokens

    tokens = read_tokens(features)
    return LookAlikes(tokens.x), tokens.xy


def _import_needed() -> None:
    """In a thread: the window would stand still for it later."""
    for name in NEEDED:
        import_module(name)
