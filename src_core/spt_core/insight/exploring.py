"""A slide without a model: kinds of tissue, what stands out, what looks alike.

Numpy alone, on the patch tokens of any encoder.
"""

import numpy as np
from numpy.typing import NDArray

from spt_core.insight.results import MOST_KINDS, Kinds, TissueMap
from spt_core.tokens.tokens import Tokens

KINDS = 6
MOST_FITTED = 8000
AXES = 32
ROUNDS, RESTARTS = 40, 4
NEIGHBOUR, MOST_NEIGHBOURS, CHUNK = 5, 2000, 4096


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
    few = x[np.sort(rng.permutation(len(x))[:MOST_FITTED])]
    mean = few.mean(axis=0)
    axes = _main_axes(few - mean)
    flat = (x - mean) @ axes.T
    starts = None if known is None else (known.centres - mean) @ axes.T
    centres = _k_means((few - mean) @ axes.T, min(kinds, len(few)), rng, starts)
    labels = _nearest(flat, centres)
    used, labels = np.unique(labels, return_inverse=True)
    found = np.stack([x[labels == k].mean(axis=0) for k in range(len(used))])
    score = _strangeness(flat, (few - mean) @ axes.T)
    return TissueMap(facts, xy, labels, Kinds(found, _colours(found, known)), score)


def look_alikes(
    x: NDArray[np.floating], rows: NDArray[np.integer], count: int | None = None
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Patches most like the given ones, the likest first, and how like (-1 to 1).

    Cosine similarity to their mean, counted from the slide's own mean, because tokens
    of one slide have much in common. The asked patches themselves are left out.
    """
    similarity = similarities(x, rows)
    order = np.argsort(-similarity, kind="stable")
    order = order[~np.isin(order, rows)][:count]
    return order, similarity[order]


def similarities(
    x: NDArray[np.floating], rows: NDArray[np.integer]
) -> NDArray[np.float64]:
    """How like (-1 to 1) every patch is to the given ones, (n,)."""
    x = np.asarray(x, np.float32)
    centred = x - x.mean(axis=0)
    asked = centred[rows].mean(axis=0)
    length = np.linalg.norm(centred, axis=1) * np.linalg.norm(asked)
    return ((centred @ asked) / np.maximum(length, 1e-12)).astype(np.float64)


def _main_axes(centred: NDArray[np.float32]) -> NDArray[np.float32]:
    """At most 32 directions in which the tokens differ most, (k, d)."""
    covariance = centred.T @ centred
    values, vectors = np.linalg.eigh(covariance.astype(np.float64))
    keep = min(AXES, max(1, int((values > values[-1] * 1e-6).sum())))
    return vectors[:, ::-1][:, :keep].T.astype(np.float32)


def _k_means(
    x: NDArray[np.float32],
    k: int,
    rng: np.random.Generator,
    starts: NDArray[np.float32] | None = None,
) -> NDArray[np.float32]:
    """The best of Lloyd's rounds from k-means++ starts and from the given ones."""
    found = []
    given = [starts] if starts is not None and len(starts) == k else []
    for start in [*given, *(_spread_out(x, k, rng) for _ in range(RESTARTS))]:
        centres = _lloyd(x, start)
        far = np.square(x - centres[_nearest(x, centres)]).sum()
        found.append((float(far), centres))
    return min(found, key=lambda pair: pair[0])[1]


def _spread_out(
    x: NDArray[np.float32], k: int, rng: np.random.Generator
) -> NDArray[np.float32]:
    centres = x[rng.integers(len(x))][None]
    far = np.square(x - centres[0]).sum(axis=1, dtype=np.float64)
    while len(centres) < k and far.sum() > 0:
        chosen = x[rng.choice(len(x), p=far / far.sum())]
        centres = np.concatenate([centres, chosen[None]])
        far = np.minimum(far, np.square(x - chosen).sum(axis=1, dtype=np.float64))
    return centres


def _lloyd(x: NDArray[np.float32], centres: NDArray[np.float32]) -> NDArray[np.float32]:
    for _ in range(ROUNDS):
        labels = _nearest(x, centres)
        moved = np.stack(
            [
                x[labels == i].mean(axis=0) if (labels == i).any() else centre
                for i, centre in enumerate(centres)
            ]
        )
        if np.allclose(moved, centres):
            break
        centres = moved
    return centres


def _strangeness(
    x: NDArray[np.float32], among: NDArray[np.float32]
) -> NDArray[np.float64]:
    """How far patches are from their nearest others, in robust standard deviations."""
    among = among[:: max(1, len(among) // MOST_NEIGHBOURS)]
    rank = min(NEIGHBOUR, len(among) - 1)
    far = np.empty(len(x))
    for start in range(0, len(x), CHUNK):
        part = _unlikeness(x[start : start + CHUNK], among)
        far[start : start + CHUNK] = np.partition(part, rank, axis=1)[:, rank]
    far = np.sqrt(np.maximum(far, 0))
    middle = np.median(far)
    spread = 1.4826 * np.median(np.abs(far - middle))
    return (far - middle) / max(spread, 0.05 * middle, 1e-6)


def _nearest(x: NDArray[np.float32], centres: NDArray[np.float32]) -> NDArray[np.int64]:
    scores = x @ centres.T - np.square(centres).sum(axis=1) / 2
    return scores.argmax(axis=1)


def _colours(centres: NDArray[np.float32], known: Kinds | None) -> NDArray[np.int64]:
    """A colour for each kind: that of the like known kind, else by its own direction.

    A fixed direction stands for each colour, so that even without known kinds the same
    tissue tends to the same colour.
    """
    colours = np.full(len(centres), -1, np.int64)
    free = list(range(MOST_KINDS))
    if known is not None and len(known.centres):
        for mine, theirs in _pairs(_unlikeness(centres, known.centres)):
            colours[mine] = known.colours[theirs]
            free.remove(int(colours[mine]))
    left = np.flatnonzero(colours < 0)
    if len(left):
        rng = np.random.default_rng(31)
        anchors = rng.normal(size=(MOST_KINDS, centres.shape[1]))[free]
        for mine, anchor in _pairs(_unlikeness(centres[left], anchors)):
            colours[left[mine]] = free[anchor]
    return colours


def _unlikeness(
    a: NDArray[np.floating], b: NDArray[np.floating]
) -> NDArray[np.float64]:
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    return np.square(a).sum(1)[:, None] + np.square(b).sum(1)[None] - 2 * a @ b.T


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
