"""Places worth a look, with what is said under their pictures."""

from typing import Any

import numpy as np

from napari_spt.analysis.display import Shown
from napari_spt.analysis.regions import Place
from napari_spt.analysis.view_controls import TIMES, ViewSettings

# Places like no others that are shown.
MOST_ODD = 12


def top_places(shown: Shown, settings: ViewSettings) -> list[Place]:
    """Places worth a look, with their captions."""
    from spt_core.insight.maps import attention_values
    from spt_core.insight.regions import choose_regions

    reading = shown.analysis.reading
    if reading is None or not len(reading.attention) or not len(reading.l0_xy):
        return []
    head = settings.head if settings.head < len(reading.attention) else -1
    times = attention_values(reading.attention, head=head, unit=TIMES)
    return [
        Place(
            (int(reading.l0_xy[one.row][0]), int(reading.l0_xy[one.row][1])),
            one.kind,
            f"{times[one.row]:.1f} ×",
        )
        for one in choose_regions(reading.g_rc, times)
    ]


def odd_places(kinds: dict[str, Any]) -> list[Place]:
    """Places like no others on a slide, the strangest first."""
    rows = np.asarray(kinds["outliers"], np.int64)[:MOST_ODD]
    return [
        Place((int(x), int(y)), "odd", "like no other") for x, y in kinds["l0_xy"][rows]
    ]
