"""The class map: the model's answers for windows, blended for each patch."""

from collections.abc import Generator, Iterator
from math import ceil

import numpy as np
import torch
from numpy.typing import NDArray

from spt_core.devices import copy_to
from spt_core.errors import InputError
from spt_core.events import Progress
from spt_core.insight.predicting import device_of, probabilities
from spt_core.insight.results import MARGIN, ClassMap
from spt_core.insight.windows import (
    STRIDE,
    Rows,
    WindowSettings,
    slide_windows,
    thinned,
    windows_like_training,
)
from spt_core.learning.model_file import SlideModel
from spt_core.tokens import Tokens

BATCH_TOKENS = 4096


def class_map(
    model: SlideModel,
    tokens: Tokens,
    *,
    stride: int = STRIDE,
    seed: int = 0,
    settings: WindowSettings | None = None,
    margin: float = MARGIN,
) -> Generator[Progress, None, ClassMap]:
    """Class scores of every patch; a generator of progress.

    Those of a patch are the mean over the windows around it; a window counts the more,
    the nearer its middle is. Where classes are closer than ``margin``, none is named.
    """
    if not model.classes:
        raise InputError(
            "This model names no classes, so there is no class map. Its attention and "
            "the tissue map need none."
        )
    model.refuse_unlike(tokens.facts, tokens.dim)
    settings = settings or windows_like_training(model.card.views, stride)
    windows = slide_windows(tokens.p, settings)
    total = np.zeros((len(tokens), len(model.classes)))
    weight = np.zeros(len(tokens))
    done = 0
    for chosen, h in window_embeddings(model, tokens, windows.members, settings, seed):
        shares = probabilities(model, h)
        for index, share in zip(chosen, shares, strict=True):
            rows = windows.members[index]
            near = _nearness(tokens.p[rows], windows.g_middle[index], settings.side)
            total[rows] += near[:, None] * share
            weight[rows] += near
        done += len(chosen)
        yield Progress(done, len(windows.members), message="class map")
    blended = np.full(total.shape, np.nan)
    np.divide(total, weight[:, None], out=blended, where=weight[:, None] > 0)
    return ClassMap(
        tuple(model.classes),
        tokens.xy,
        blended.astype(np.float32),
        False,  # a temperature is fitted on whole slides, never on windows
        settings.side,
        settings.stride,
        settings.limit,
        len(windows.members),
        margin,
    )


@torch.no_grad()
def window_embeddings(
    model: SlideModel,
    tokens: Tokens,
    members: list[Rows],
    settings: WindowSettings,
    seed: int = 0,
) -> Iterator[tuple[NDArray[np.intp], torch.Tensor]]:
    """Indices of windows and their embeddings (b, dim), batch by batch."""
    device = device_of(model)
    rng = np.random.default_rng([seed, 17])
    rows = [thinned(one, settings.limit, rng) for one in members]
    lengths = np.array([len(one) for one in rows], int)
    x = torch.from_numpy(model.prepared(tokens).x)
    p = torch.from_numpy(tokens.p)
    # Windows of one length need neither padding nor a mask, and most have the limit.
    for length in np.unique(lengths)[::-1]:
        alike = np.flatnonzero(lengths == length)
        batch = max(1, BATCH_TOKENS // int(length))
        for start in range(0, len(alike), batch):
            chosen = alike[start : start + batch]
            which = torch.from_numpy(np.stack([rows[i] for i in chosen]))
            h = model.encoder(
                copy_to(x[which], device).float(), copy_to(p[which], device)
            )
            yield chosen, h


def mean_window_embedding(
    model: SlideModel, tokens: Tokens, *, seed: int = 0
) -> NDArray[np.float32]:
    """The mean embedding (dim,) of windows laid side by side over a slide."""
    like = windows_like_training(model.card.views)
    side = WindowSettings(like.side, like.side, like.limit, 1)
    windows = slide_windows(tokens.p, side)
    total: NDArray[np.float64] = np.zeros(model.encoder.dim)
    count = 0
    for chosen, h in window_embeddings(model, tokens, windows.members, side, seed):
        # A window is weighted by the number of its tokens.
        sizes = np.array([len(windows.members[i]) for i in chosen], np.float64)
        total += (h.cpu().double().numpy() * sizes[:, None]).sum(axis=0)
        count += int(sizes.sum())
    return (total / max(count, 1)).astype(np.float32)


def _nearness(
    p: NDArray[np.integer], g_middle: NDArray[np.float64], side: int
) -> NDArray[np.float64]:
    """Weights of patches: 1 in a window's middle, nearly 0 at its edge."""
    off = np.abs(p - g_middle) / ceil(side / 2 + 0.5)
    return np.clip(1 - off, 0.01, 1).prod(axis=1)
