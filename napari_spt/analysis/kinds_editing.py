"""Names and colours of kinds of tissue, given here and kept for the next slide."""

from collections.abc import Callable
from threading import Lock

from qtpy.QtWidgets import QWidget

from napari_spt.analysis.slide_analysis import Analysis, Change
from napari_spt.analysis.state import AnalysisState
from napari_spt.parts.background import run_in_background
from napari_spt.parts.notices import show_error
from napari_spt.parts.settings import kinds_folder
from spt_core.insight.tissue_map import Kinds, TissueMap

Edit = Callable[[TissueMap], TissueMap]
EditKinds = Callable[[Kinds], Kinds]
_writing = Lock()


class KindsEditor:
    """Changes kinds on every open slide that knows them, and in the user's folder."""

    def __init__(self, state: AnalysisState, *, owner: QWidget) -> None:
        self._state = state
        self._owner = owner

    def rename(self, number: int, name: str) -> None:
        self._apply(
            lambda found: found.renamed(number, name),
            lambda kinds: kinds.renamed(number, name),
        )

    def recolour(self, number: int, rgb: tuple[int, int, int]) -> None:
        self._apply(
            lambda found: found.recoloured(number, rgb),
            lambda kinds: kinds.recoloured(number, rgb),
        )

    def merge(self, number: int, into: int) -> None:
        """Take one kind for another."""
        chosen = self._state.analysis
        if chosen is None or chosen.tissue_map is None:
            return
        like = chosen.tissue_map.kinds

        def merged(found: TissueMap) -> TissueMap:
            if found.kinds.row(into) is None:
                return found.taken_for(number, like, into)
            return found.merged(number, into)

        self._apply(merged, lambda kinds: kinds.merged(number, into))

    def _apply(self, edit: Edit, edit_kinds: EditKinds) -> None:
        from spt_core.insight.codebook import (
            codebook_file,
            read_codebook,
            write_codebook,
        )

        chosen = self._state.analysis
        if chosen is None or chosen.tissue_map is None:
            return
        before = chosen.tissue_map
        file = codebook_file(kinds_folder(), before.facts)

        def is_alike(analysis: Analysis) -> bool:
            found = analysis.tissue_map
            return found is not None and (
                codebook_file(kinds_folder(), found.facts) == file
            )

        for analysis in [one for one in self._state.analyses.values() if is_alike(one)]:
            if analysis.tissue_map is not None:
                analysis.tissue_map = edit(analysis.tissue_map)
                self._state.tell(analysis, Change.TISSUE_MAP)

        def keep() -> None:
            with _writing:
                write_codebook(file, edit_kinds(read_codebook(file) or before.kinds))

        run_in_background(
            keep,
            lambda _: None,
            lambda error: show_error(f"The kinds of tissue are not kept: {error}"),
            owner=self._owner,
        )
