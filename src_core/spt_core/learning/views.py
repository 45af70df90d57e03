"""Views of a slide: split, crop and mask its tokens.

Index first: all three need only coordinates, so a view is an array of row numbers into
the slide's tokens, and embeddings are read for those rows alone. Numpy with an explicit
generator, so that a window can show exactly the views that training uses.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf, sqrt

import numpy as np
from numpy.typing import NDArray

from spt_core.errors import InputError

Rows = NDArray[np.intp]


@dataclass(frozen=True)
class ViewSettings:
    """How views are made; the defaults are the paper's.

    Attributes
    ----------
    views
        How many views of a slide; one for plain classification, where nothing is split.
    split, crop, mask
        Whether each transformation is used.
    split_ratio
        Share of the tokens in the larger of two parts. More than two views split
        evenly. Which view gets which part is chance.
    crop_area, crop_aspect
        Ranges of a crop's area in grid cells and of its width / height.
    mask_keep
        Range of the share of tokens that masking keeps.
    max_tokens
        The most tokens that masking keeps.
    """

    views: int = 2
    split: bool = True
    crop: bool = True
    mask: bool = True
    split_ratio: float = 0.7
    crop_area: tuple[float, float] = (100, 400)
    crop_aspect: tuple[float, float] = (0.5, 2)
    mask_keep: tuple[float, float] = (0.1, 0.8)
    max_tokens: float = 64

    def __post_init__(self) -> None:
        wrong = []
        if self.views < 1:
            wrong.append(f"views is {self.views}; at least one is needed")
        if not 0 < self.split_ratio < 1:
            wrong.append(f"split_ratio is {self.split_ratio}, not between 0 and 1")
        for name, least, most in (
            ("crop_area", 0, inf),
            ("crop_aspect", 0, inf),
            ("mask_keep", 0, 1),
        ):
            low, high = getattr(self, name)
            if not least < low <= high <= most:
                wrong.append(f"{name} is {low} to {high}")
        if self.max_tokens < 1:
            wrong.append(f"max_tokens is {self.max_tokens}; at least one is needed")
        if wrong:
            raise InputError("These view settings do not work: " + "; ".join(wrong))


def view_generator(seed: int, epoch: int, slide: int) -> np.random.Generator:
    """The generator of one slide's views in one epoch.

    A stream of its own for each, so that a view depends neither on the batch it is in,
    nor on how many processes train, nor on where a run was resumed.
    """
    # Philox takes its key as it is: four times quicker to make than a seed sequence.
    key = (seed & (2**64 - 1)) | (epoch & 0xFFFFFFFF) << 64 | (slide & 0xFFFFFFFF) << 96
    return np.random.Generator(np.random.Philox(key=key))


def slide_views(
    p: NDArray[np.integer],
    rng: np.random.Generator,
    settings: ViewSettings = ViewSettings(),
) -> list[Rows]:
    """Row numbers of each view of one slide; never empty.

    Parameters
    ----------
    p : (n, 2) grid (row, col)
    """
    if len(p) == 0:
        raise InputError("A slide without tokens has no views.")
    views = split_rows(len(p), rng, settings)
    if settings.crop:
        views = [crop_rows(p, rows, rng, settings) for rows in views]
    if settings.mask:
        views = [mask_rows(rows, rng, settings) for rows in views]
    return views


def split_rows(n: int, rng: np.random.Generator, settings: ViewSettings) -> list[Rows]:
    """Disjoint parts of all ``n`` tokens, one a view, given to the views at random.

    A slide with fewer tokens than views cannot be split: every view gets it whole.
    """
    views = settings.views
    if not settings.split or views == 1 or n < views:
        return [np.arange(n)] * views
    order = rng.permutation(n)
    if views == 2:
        cut = min(max(int(settings.split_ratio * n), 1), n - 1)
        parts = [order[:cut], order[cut:]]
        return parts[::-1] if rng.random() < 0.5 else parts
    return np.array_split(order, views)  # parts differ by one token at most


def crop_rows(
    p: NDArray[np.integer],
    rows: Rows,
    rng: np.random.Generator,
    settings: ViewSettings,
) -> Rows:
    """Those of ``rows`` within a box around a random one of them."""
    (area_min, area_max), (aspect_min, aspect_max) = (
        settings.crop_area,
        settings.crop_aspect,
    )
    of_area, of_aspect, of_anchor = rng.random(3)
    area = area_min + of_area * (area_max - area_min)
    aspect = aspect_min + of_aspect * (aspect_max - aspect_min)
    height = sqrt(area / aspect)
    width = height * aspect
    g_view = p[rows]
    g_off = np.abs(g_view - g_view[int(of_anchor * len(rows))])
    return rows[(g_off[:, 0] < height / 2) & (g_off[:, 1] < width / 2)]


def mask_rows(rows: Rows, rng: np.random.Generator, settings: ViewSettings) -> Rows:
    """A random few of ``rows``, at least one."""
    keep_min, keep_max = settings.mask_keep
    share = keep_min + rng.random() * (keep_max - keep_min)
    size = int(min(max(share * len(rows), 1), settings.max_tokens))
    return rng.permutation(rows)[:size]


def batch_views(
    ps: Sequence[NDArray[np.integer]],
    rngs: Iterable[np.random.Generator],
    settings: ViewSettings = ViewSettings(),
) -> list[list[Rows]]:
    """Views of several slides: ``result[view][slide]``, each slide by its generator."""
    by_slide = [slide_views(p, rng, settings) for p, rng in zip(ps, rngs, strict=True)]
    return [list(view) for view in zip(*by_slide, strict=True)]
