"""A slide without a model: kinds of tissue, and what stands out.

It works on the patch tokens of any encoder. scikit-learn takes a second to load, so it
is imported when the first slide is explored.
"""

import warnings

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from spt_core.insight.tissue_map import MOST_KINDS, PALETTE, Kinds, TissueMap
from spt_core.tokens.tokens import Tokens

KINDS = 6
MOST_FITTED = 8000
AXES = 32
ROUNDS, RESTARTS = 40, 4
NEIGHBOUR, MOST_NEIGHBOURS = 5, 2000
# A kind is a known one where their centres are nearer than so many times its spread.
ALIKE = 0.75
_NONE = np.zeros(0, np.int64)


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
        Kinds of earlier slides: each of this slide's takes the number, name and colour
        of the known kind that it is most like, where it is like one.
    """
    if not 1 <= kinds <= MOST_KINDS:
        raise ValueError(f"kinds is {kinds}, not 1 to {MOST_KINDS}")
    facts, xy, x = tokens.facts, tokens.xy, np.asarray(tokens.x, np.float32)
    if len(x) == 0:
        return TissueMap(facts, xy, _NONE, no_kinds(x.shape[1]), _NONE, np.zeros(0))
    rng = np.random.default_rng([seed, 29])
    fitted = np.sort(rng.permutation(len(x))[:MOST_FITTED])
    flat, starts = _main_axes(x, fitted, known)
    labels = _k_means(flat, fitted, kinds, starts, seed)
    used, labels = np.unique(labels, return_inverse=True)
    centres = np.stack([x[labels == k].mean(axis=0) for k in range(len(used))])
    far = np.linalg.norm(x - centres[labels], axis=1)
    spread = np.array([far[labels == k].mean() for k in range(len(used))], np.float32)
    found = _with_known(centres.astype(np.float32), spread, known)
    labels = found.kind[labels]
    typical = np.array(
        [_nearest(far, labels == k) for k in range(len(found))], np.int64
    )
    score = _strangeness(flat, flat[fitted])
    return TissueMap(facts, xy, labels, found, typical, score)


def no_kinds(dim: int) -> Kinds:
    return Kinds(
        np.zeros((0, dim), np.float32),
        np.zeros(0, np.float32),
        _NONE,
        _NONE,
        (),
        np.zeros((0, 3), np.uint8),
    )


def _nearest(far: NDArray[np.floating], those: NDArray[np.bool_]) -> int:
    """The nearest of those to its centre."""
    rows = np.flatnonzero(those)
    return int(rows[far[rows].argmin()])


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
    starts = None
    if known is not None and len(known.centres):
        starts = axes.transform(known.centres - mean)
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


def _with_known(
    centres: NDArray[np.float32], spread: NDArray[np.float32], known: Kinds | None
) -> Kinds:
    """Kinds of a slide's own centres: known ones where they are alike, else new ones.

    Centres that are like two of one known kind are of one kind here too.
    """
    known = no_kinds(centres.shape[1]) if known is None else known
    match = np.full(len(centres), -1, np.int64)
    if len(known.centres):
        cost = cdist(centres, known.centres)
        reach = ALIKE * np.maximum(spread[:, None], known.spread[None])
        cost = np.where(cost <= np.maximum(reach, 1e-6), cost, np.inf)
        for mine, theirs in _pairs(cost):
            match[mine] = known.kind[theirs]
    taken = sorted({int(row) for row in match if row >= 0})
    kind = np.array(
        [taken.index(row) if row >= 0 else -1 for row in match.tolist()], np.int64
    )
    new = np.flatnonzero(kind < 0)
    kind[new] = len(taken) + np.arange(len(new))
    used = set(known.numbers.tolist())
    fresh = [n for n in range(len(used) + len(new)) if n not in used][: len(new)]
    return Kinds(
        centres,
        spread,
        kind,
        np.concatenate([known.numbers[taken], np.array(fresh, np.int64)]),
        (*(known.names[row] for row in taken), *("" for _ in new)),
        np.concatenate([known.rgb[taken], _new_colours(centres[new], known, taken)]),
    )


def _new_colours(
    centres: NDArray[np.float32], known: Kinds, taken: list[int]
) -> NDArray[np.uint8]:
    """Colours that no known kind has, as long as there are; then none of this slide's.

    A fixed direction stands for each colour, so that even without known kinds the same
    tissue tends to the same colour.
    """
    of_all = {tuple(one) for one in known.rgb.tolist()}
    of_these = {tuple(one) for one in known.rgb[taken].tolist()}
    free = [row for row, one in enumerate(PALETTE.tolist()) if tuple(one) not in of_all]
    if len(free) < len(centres):
        free = [
            n for n, one in enumerate(PALETTE.tolist()) if tuple(one) not in of_these
        ]
    # The first ones are told apart best.
    free = free[: max(KINDS, len(centres))]
    colours = np.zeros((len(centres), 3), np.uint8)
    if len(centres):
        rng = np.random.default_rng(31)
        anchors = rng.normal(size=(len(PALETTE), centres.shape[1]))[free]
        for mine, anchor in _pairs(cdist(centres, anchors)):
            colours[mine] = PALETTE[free[anchor]]
    return colours


def _pairs(cost: NDArray[np.float64]) -> list[tuple[int, int]]:
    """Pairs of rows and columns, the likest first; each is used once."""
    pairs = []
    cost = cost.copy()
    for _ in range(min(cost.shape)):
        row, col = np.unravel_index(int(cost.argmin()), cost.shape)
        if not np.isfinite(cost[row, col]):
            break
        pairs.append((int(row), int(col)))
        cost[row, :] = np.inf
        cost[:, col] = np.inf
    return pairs
