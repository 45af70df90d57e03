"""Views of a slide: split, crop and mask its tokens, and move the places of the rest.

Index first: all of it needs only coordinates, so a view is an array of row numbers into
the slide's tokens, and embeddings are read for those rows alone. Numpy with an explicit
generator, so that a window can show exactly the views that training uses.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, sqrt
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from spt_core.errors import InputError
from spt_core.hints import Hint, check

Rows = NDArray[np.intp]  # row numbers of tokens, (m,)
Members = NDArray[np.bool_]  # for each token whether it is in a view, (n,)
Places = NDArray[np.integer]  # grid (row, col) of each token of a view, (m, 2)


@dataclass(frozen=True)
class ViewSettings:
    """How views are made; the defaults are the paper's."""

    views: Annotated[
        int,
        Hint(
            "views of each slide; one for plain classification, where nothing is split",
            above=0,
        ),
    ] = 2
    split: Annotated[
        bool,
        Hint("split the tokens between the views", flags=("--no-split",)),
    ] = True
    crop: Annotated[
        bool, Hint("crop views to a part of the slide", flags=("--no-crop",))
    ] = True
    mask: Annotated[
        bool, Hint("leave tokens out of views at random", flags=("--no-mask",))
    ] = True
    split_ratio: Annotated[
        float,
        Hint(
            "share of the tokens in the larger of two parts; more than two views are "
            "split evenly",
            above=0,
            below=1,
            metavar="SHARE",
        ),
    ] = 0.7
    crop_area: Annotated[
        tuple[float, float],
        Hint("area of a crop", above=0, is_range=True, unit="grid cells", digits=1),
    ] = (100, 400)
    crop_aspect: Annotated[
        tuple[float, float],
        Hint("width of a crop divided by its height", above=0, is_range=True),
    ] = (0.5, 2)
    mask_keep: Annotated[
        tuple[float, float],
        Hint(
            "share of the tokens that masking keeps", above=0, maximum=1, is_range=True
        ),
    ] = (0.1, 0.8)
    max_tokens: Annotated[
        float,
        Hint(
            "most tokens that masking keeps in a view",
            label="Most tokens",
            minimum=1,
            digits=0,
        ),
    ] = 64
    turn: Annotated[
        bool,
        Hint(
            "flip the positions of a view, or turn them by quarters, at random; the "
            "patches stay as they are",
            label="Turn positions",
        ),
    ] = False
    shift: Annotated[
        int,
        Hint(
            "shift the positions of a view at random, by up to so many cells each way",
            label="Shift positions",
            minimum=0,
            maximum=10_000,
            unit="grid cells",
            digits=0,
            metavar="CELLS",
        ),
    ] = 0

    def __post_init__(self) -> None:
        check(self)


THE_PAPERS = ViewSettings()


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
    settings: ViewSettings = THE_PAPERS,
) -> list[Rows]:
    """Row numbers of each view of one slide; never empty.

    Which tokens they are does not depend on whether their places are moved.

    Parameters
    ----------
    p : (n, 2) grid (row, col)
    """
    if len(p) == 0:
        raise InputError("A slide without tokens has no views.")
    views = split(len(p), rng, settings)
    if settings.crop:
        views = [crop(p, members, rng, settings) for members in views]
    rows = [np.flatnonzero(members) for members in views]
    if settings.mask:
        rows = [mask(view, rng, settings) for view in rows]
    return rows


def split(n: int, rng: np.random.Generator, settings: ViewSettings) -> list[Members]:
    """Disjoint parts of all ``n`` tokens, one per view, given to the views at random.

    A slide with fewer tokens than views cannot be split: every view gets it whole.
    """
    views = settings.views
    if not settings.split or views == 1 or n < views:
        return [np.ones(n, bool)] * views
    if views == 2:
        size = n - min(max(int(settings.split_ratio * n), 1), n - 1)
        smaller = np.zeros(n, bool)
        smaller[rng.choice(n, size, replace=False, shuffle=False)] = True
        parts = [~smaller, smaller]
        return parts[::-1] if rng.random() < 0.5 else parts
    part = rng.permutation(np.arange(n) % views)  # sizes differ by one at most
    return [part == view for view in range(views)]


def crop(
    p: NDArray[np.integer],
    members: Members,
    rng: np.random.Generator,
    settings: ViewSettings,
) -> Members:
    """Those members within a box around a random one of them."""
    area_min, area_max = settings.crop_area
    aspect_min, aspect_max = settings.crop_aspect
    of_area, of_aspect, of_anchor = rng.random(3)
    area = area_min + of_area * (area_max - area_min)
    aspect = aspect_min + of_aspect * (aspect_max - aspect_min)
    height = sqrt(area / aspect)
    width = height * aspect
    rows = np.flatnonzero(members)
    anchor = p[rows[int(of_anchor * len(rows))]]
    # "nearer than half a side", on integers: a comparison of floats takes twice as long
    near_row = np.abs(p[:, 0] - anchor[0]) <= ceil(height / 2) - 1
    near_col = np.abs(p[:, 1] - anchor[1]) <= ceil(width / 2) - 1
    return members & near_row & near_col


def mask(rows: Rows, rng: np.random.Generator, settings: ViewSettings) -> Rows:
    """A random few of ``rows``, at least one, in their order."""
    keep_min, keep_max = settings.mask_keep
    share = keep_min + rng.random() * (keep_max - keep_min)
    size = int(min(max(share * len(rows), 1), settings.max_tokens))
    return np.sort(rng.choice(rows, size, replace=False, shuffle=False))


def move(p: Places, rng: np.random.Generator, settings: ViewSettings) -> Places:
    """Places of a view for the encoder: turned within their box, then shifted.

    The generator is the one that the slide's rows were drawn from; it is drawn from
    only where something moves.

    Parameters
    ----------
    p : (m, 2) grid (row, col) of the tokens of one view
    """
    if settings.turn:
        transposed, *mirrored = rng.random(3) < 0.5  # each of the 8 symmetries alike
        low = p.min(axis=0)
        inside = (p - low)[:, ::-1] if transposed else p - low
        p = low + np.where(mirrored, inside.max(axis=0) - inside, inside)
    if settings.shift:
        p = p + rng.integers(-settings.shift, settings.shift, size=2, endpoint=True)
    return p


def batch_views(
    ps: Sequence[NDArray[np.integer]],
    rngs: Iterable[np.random.Generator],
    settings: ViewSettings = THE_PAPERS,
) -> list[list[Rows]]:
    """Views of several slides: ``result[view][slide]``, each slide by its generator."""
    by_slide = [slide_views(p, rng, settings) for p, rng in zip(ps, rngs, strict=True)]
    return [list(view) for view in zip(*by_slide, strict=True)]
