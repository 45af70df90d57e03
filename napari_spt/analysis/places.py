"""Places of a slide worth a look, with what is said under their pictures."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from napari_spt.analysis.map_settings import TIMES, MapSettings
from spt_core.insight.results import Prediction
from spt_core.insight.tissue_map import TissueMap

if TYPE_CHECKING:
    from napari_spt.analysis.state import ComparedPatch

# Places like no others that are shown.
MOST_ODD = 12


@dataclass(frozen=True)
class Place:
    """One region: where, why, and what is said under its picture."""

    l0_xy: tuple[int, int]
    kind: str
    caption: str


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


def alike_places(compared: "ComparedPatch") -> list[Place]:
    """Places most like a chosen one, which comes first."""
    from spt_core.insight.similarity import most_alike

    analysis = compared.analysis
    known, xy, lattice = analysis.look_alikes, analysis.look_alikes_xy, analysis.lattice
    if known is None or xy is None or lattice is None:
        return []
    like = known.like([compared.row])
    return [
        Place(
            (int(xy[row][0]), int(xy[row][1])),
            "alike",
            "this"
            if row == compared.row
            else f"{100 * max(0.0, float(like[row])):.0f} %",
        )
        for row in most_alike(like, xy, lattice.l0_step_xy)
    ]


def odd_places(found: TissueMap) -> list[Place]:
    """Places like no others on a slide, the strangest first."""
    return [
        Place((int(x), int(y)), "odd", "like no other")
        for x, y in found.xy[found.outliers[:MOST_ODD]]
    ]
