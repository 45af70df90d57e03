"""A slide without a model: kinds of tissue, and what stands out.

It works on the patch tokens of any encoder. scikit-learn takes a second to load, so it
is imported when the first slide is explored.
"""

import warnings

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from spt_core.insight.tissue_map import MOST_KINDS, Kinds, TissueMap
from spt_core.tokens.tokens import Tokens

KINDS = 6
MOST_FITTED = 8000
AXES = 32
ROUNDS, RESTARTS = 40, 4
NEIGHBOUR, MOST_NEIGHBOURS = 5, 2000


def explore(
    tokens: Tokens,
    *,
    kinds: int = KINDS,
    known: Kinds | None = None,
    seed: int = 0,
) -> TissueMap:
    """Map a slide's tokens to kinds of tissue.

    Parameters
    ----------
    known
        Kinds of an earlier slide: each of this slide's takes the colour of the known
        kind that it is most like.
    """
    if not 1 <= kinds <= MOST_KINDS:
        raise ValueError(f"kinds is {kinds}, not 1 to {MOST_KINDS}")
    facts, xy, x = tokens.facts, tokens.xy, np.asarray(tokens.x, np.float32)
    if len(x) == 0:
        none = Kinds(np.zeros((0, x.shape[1]), np.float32), np.zeros(0, np.int64))
        return TissueMap(facts, xy, np.zeros(0, np.int64), none, np.zeros(0))
    rng = np.random.default_rng([seed, 29])
    fitted = np.sort(rng.permutation(len(x))[:MOST_FITTED])
    flat, starts = _main_axes(x, fitted, known)
    labels = _k_means(flat, fitted, kinds, starts, seed)
    used, labels = np.unique(labels, return_inverse=True)
    centres = np.stack([x[labels == k].mean(axis=0) for k in range(len(used))])
    score = _strangeness(flat, flat[fitted])
    return TissueMap(facts, xy, labels, Kinds(centres, _colours(centres, known)), score)


def _main_axes(
    x: NDArray[np.float32], fitted: NDArray[np.int64], known: Kinds | None
) -> tuple[NDArray[np.float32], NDArray[np.float32] | None]:
    """Tokens and known centres along the few directions in which tokens differ most."""
    from sklearn.decomposition import PCA

    few = x[fitted]
    if (few == few[0]).all():
        # Nothing differs: there are no directions, and PCA would divide by zero.
        return np.zeros((len(x), 1), np.float32), None
    # Exact, and quick where rows are many; it wants centred rows for its precision.
    mean = few.mean(axis=0)
    axes = PCA(min(AXES, *few.shape), svd_solver="covariance_eigh").fit(few - mean)
    starts = None if known is None else axes.transform(known.centres - mean)
    return axes.transform(x - mean), starts


def _k_means(
    x: NDArray[np.float32],
    fitted: NDArray[np.int64],
    kinds: int,
    starts: NDArray[np.float32] | None,
    seed: int,
) -> NDArray[np.int64]:
    """The best of several runs, one of them from the given starts."""
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    count = min(kinds, len(fitted))
    runs = [KMeans(count, n_init=RESTARTS, max_iter=ROUNDS, random_state=seed)]
    if starts is not None and len(starts) == count:
        runs.insert(0, KMeans(count, init=starts, n_init=1, max_iter=ROUNDS))
    with warnings.catch_warnings():
        # Fewer different patches than kinds: there are fewer kinds then.
        warnings.simplefilter("ignore", ConvergenceWarning)
        best = min((run.fit(x[fitted]) for run in runs), key=lambda run: run.inertia_)
    return best.predict(x)


def _strangeness(
    x: NDArray[np.float32], among: NDArray[np.float32]
) -> NDArray[np.float64]:
    """How far patches are from their nearest others, in robust standard deviations."""
    from sklearn.neighbors import NearestNeighbors

    among = among[:: max(1, len(among) // MOST_NEIGHBOURS)]
    rank = min(NEIGHBOUR, len(among) - 1)
    neighbours = NearestNeighbors(n_neighbors=rank + 1, algorithm="brute").fit(among)
    far = neighbours.kneighbors(x)[0][:, rank].astype(np.float64)
    middle = np.median(far)
    spread = 1.4826 * np.median(np.abs(far - middle))
    return (far - middle) / max(spread, 0.05 * middle, 1e-6)


def _colours(centres: NDArray[np.float32], known: Kinds | None) -> NDArray[np.int64]:
    """A colour for each kind: that of the like known kind, else by its own direction.

    A fixed direction stands for each colour, so that even without known kinds the same
    tissue tends to the same colour.
    """
    colours = np.full(len(centres), -1, np.int64)
    free = list(range(MOST_KINDS))
    if known is not None and len(known.centres):
        for mine, theirs in _pairs(cdist(centres, known.centres)):
            colours[mine] = known.colours[theirs]
            free.remove(int(colours[mine]))
    left = np.flatnonzero(colours < 0)
    if len(left):
        rng = np.random.default_rng(31)
        anchors = rng.normal(size=(MOST_KINDS, centres.shape[1]))[free]
        for mine, anchor in _pairs(cdist(centres[left], anchors)):
            colours[left[mine]] = free[anchor]
    return colours


def _pairs(cost: NDArray[np.float64]) -> list[tuple[int, int]]:
    """Pairs of rows and columns, the likest first; each is used once."""
    pairs = []
    cost = cost.copy()
    for _ in range(min(cost.shape)):
        row, col = np.unravel_index(int(cost.argmin()), cost.shape)
        pairs.append((int(row), int(col)))
        cost[row, :] = np.inf
        cost[:, col] = np.inf
    return pairs
