"""Places of a slide worth a look, with what is said under their pictures."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from napari_spt.analysis.map_settings import TIMES, MapSettings
from spt_core.insight.results import Prediction
from spt_core.insight.tissue_map import TissueMap

if TYPE_CHECKING:
    from napari_spt.analysis.slide_analysis import Analysis
    from napari_spt.analysis.state import ComparedPatch

# Places like no others that are shown.
MOST_ODD = 12
# Most like a chosen one, on its slide and on each other.
MOST_ALIKE, MOST_ELSEWHERE = 8, 4
SHORT = 9


@dataclass(frozen=True)
class Place:
    """One region: where, why, and what is said under its picture.

    ``of`` is the analysis of its slide, where that is not the chosen one.
    """

    l0_xy: tuple[int, int]
    kind: str
    caption: str
    of: "Analysis | None" = None


def top_places(prediction: Prediction, view: MapSettings) -> list[Place]:
    """Where the model looked most, with others to compare."""
    from spt_core.insight.maps import attention_values
    from spt_core.insight.regions import choose_regions

    if not len(prediction.attention) or not len(prediction):
        return []
    head = view.head_of(len(prediction.attention))
    times = attention_values(prediction.attention, head=head, unit=TIMES)
    xy = prediction.xy
    return [
        Place(
            (int(xy[one.row][0]), int(xy[one.row][1])),
            one.kind,
            f"{times[one.row]:.1f} ×",
        )
        for one in choose_regions(prediction.p, times)
    ]


def alike_places(
    compared: "ComparedPatch", analyses: Iterable["Analysis"]
) -> list[Place]:
    """Places most like a chosen one, which comes first; then those of other slides."""
    from spt_core.insight.similarity import most_alike

    chosen = compared.analysis
    found = []
    for analysis in (chosen, *(one for one in analyses if one is not chosen)):
        xy, lattice = analysis.look_alikes_xy, analysis.lattice
        like = analysis.likeness_to(chosen, compared.row)
        if like is None or xy is None or lattice is None:
            continue
        is_other = analysis is not chosen
        count = MOST_ELSEWHERE if is_other else MOST_ALIKE
        for row in most_alike(like, xy, lattice.l0_step_xy, count=count):
            words = f"{100 * max(0.0, float(like[row])):.0f} %"
            if is_other:
                words = f"{words}\n{_short(analysis.slide.name)}"
            elif row == compared.row:
                words = "this"
            corner = (int(xy[row][0]), int(xy[row][1]))
            found.append(Place(corner, "alike", words, analysis if is_other else None))
    return found


def _short(name: str) -> str:
    return name if len(name) <= SHORT else f"{name[: SHORT - 1]}…"


def odd_places(found: TissueMap) -> list[Place]:
    """Places like no others on a slide, the strangest first."""
    return [
        Place((int(x), int(y)), "odd", "like no other")
        for x, y in found.xy[found.outliers[:MOST_ODD]]
    ]
