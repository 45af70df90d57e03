"""The views that training would make of a slide, to be looked at; with numpy alone."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from spt_core.learning.views import Rows, ViewSettings, slide_views, view_generator

# Areas of crops that are tried, in grid cells.
AREAS = (16, 25, 50, 100, 200, 400, 800, 1600, 3200, 6400)
# A crop should hold so many patches of the smaller part, and not most of a slide.
WANTED = 16
MOST_OF_SLIDE = 0.5
_DRAWS = 5
_MOST_SLIDES = 60


@dataclass(frozen=True, eq=False)
class PreviewedViews:
    """The views of one slide.

    Attributes
    ----------
    rows
        Of each view, the numbers of its patches.
    shared
        Patches that are in more than one view.
    same_place
        How much of the first two views' boxes is the same place, from 0 to 1.
    """

    rows: tuple[Rows, ...]
    shared: int
    same_place: float


def preview(
    p: NDArray[np.integer],
    settings: ViewSettings,
    *,
    seed: int = 0,
    epoch: int = 0,
    slide: int = 0,
) -> PreviewedViews:
    """The views of the ``slide``-th slide of a cohort in an epoch, as in training.

    Parameters
    ----------
    p : (n, 2) grid (row, col)
    """
    rows = slide_views(p, view_generator(seed, epoch, slide), settings)
    count = np.zeros(len(p), np.int64)
    for view in rows:
        count[view] += 1
    return PreviewedViews(
        tuple(rows),
        int((count > 1).sum()),
        _same_place(p[rows[0]], p[rows[1]]) if len(rows) > 1 else 1.0,
    )


def suggested_crop(
    ps: Sequence[NDArray[np.integer]], settings: ViewSettings, *, seed: int = 0
) -> tuple[float, float] | None:
    """Areas of crops, in grid cells, that suit the tissue of some slides.

    From the least in which the smaller view still has a few patches, to the largest
    that is not most of a slide. None where the slides are too small to be cropped.
    """
    ps = [p for p in ps if len(p) > 1][:: max(1, len(ps) // _MOST_SLIDES)]
    if not ps:
        return None
    held: list[float] = []
    share: list[float] = []
    for area in AREAS:
        plain = replace(settings, crop=True, mask=False, crop_area=(area, area))
        smaller, part = [], []
        for number, p in enumerate(ps):
            for draw in range(_DRAWS):
                views = slide_views(p, view_generator(seed, draw, number), plain)
                smaller.append(min(len(view) for view in views))
                part.append(sum(len(view) for view in views) / len(views) / len(p))
        held.append(float(np.median(smaller)))
        share.append(float(np.median(part)) * (settings.views if settings.split else 1))
    low = next((n for n, count in enumerate(held) if count >= WANTED), None)
    if low is None:
        return None
    high = max((n for n, part in enumerate(share) if part <= MOST_OF_SLIDE), default=0)
    return float(AREAS[low]), float(AREAS[max(low, high)])


def _same_place(one: NDArray[np.integer], other: NDArray[np.integer]) -> float:
    """Intersection over union of two views' boxes."""
    low = np.maximum(one.min(axis=0), other.min(axis=0))
    high = np.minimum(one.max(axis=0), other.max(axis=0))
    common = float(np.prod(np.maximum(high - low + 1, 0)))
    sizes = [float(np.prod(np.ptp(part, axis=0) + 1)) for part in (one, other)]
    return common / (sum(sizes) - common)
