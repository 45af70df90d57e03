"""Sites that nobody has written down, found among the mean tokens of slides.

A guess: slides whose tokens lie together may share a scanner, or an organ. It is made
only where it is asked for, and shown before it is used.
"""

import numpy as np
from numpy.typing import NDArray

from spt_core.errors import InputError
from spt_core.learning.cohort import Cohort
from spt_core.learning.standardising import FEWEST_SLIDES as FEWEST_OF_SITE
from spt_core.learning.standardising import spread_tokens

MOST_SITES = 12
FEWEST_SLIDES = 8
AXES = 10
# Below this mean silhouette slides lie in no groups that are worth a name.
CLEAR = 0.15


def find_sites(cohort: Cohort, *, seed: int = 0, named: int = 0) -> list[str]:
    """A name for each slide's group: ``found-1`` for the largest, and so on.

    k-means of the slides' mean tokens on their main axes; the number of groups, from 2
    to 12 with three slides in each, has the highest silhouette.

    Parameters
    ----------
    named
        So many names are taken: of the groups that a model to start from knows.
    """
    from sklearn.cluster import KMeans
    from sklearn.metrics import silhouette_score

    n = len(cohort)
    if n < FEWEST_SLIDES:
        raise InputError(
            f"Sites cannot be found among {n} slides: {FEWEST_SLIDES} or more are "
            "needed. Give a column 'site' in the labels."
        )
    points = _main_axes(
        np.stack(
            [spread_tokens(slide).mean(axis=0, dtype=np.float64) for slide in cohort]
        )
    )
    best, groups = -1.0, np.zeros(n, int)
    for count in range(2, min(MOST_SITES, n // 3) + 1):
        found = KMeans(count, n_init=10, random_state=seed).fit_predict(points)
        # Two slides that are like no others are no site.
        sizes = np.unique(found, return_counts=True)[1]
        if len(sizes) < 2 or sizes.min() < FEWEST_OF_SITE:
            continue
        score = float(silhouette_score(points, found))
        if score > best:
            best, groups = score, found
    if best < CLEAR:
        raise InputError(
            "The slides' mean tokens lie in no clear groups, so that no sites are "
            "found. Leave --sites found out, or give a column 'site' in the labels."
        )
    order = np.argsort(-np.bincount(groups), kind="stable")
    number = {int(group): place for place, group in enumerate(order, start=named + 1)}
    return [f"found-{number[int(group)]}" for group in groups]


def _main_axes(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Points (n, k) on the few axes along which they differ most."""
    centred = points - points.mean(axis=0)
    left, singular, _ = np.linalg.svd(centred, full_matrices=False)
    k = min(AXES, len(singular))
    return left[:, :k] * singular[:k]
