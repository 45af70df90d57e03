"""Whether attention matters: the class probability as patches are removed."""

from collections.abc import Generator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from spt_core.errors import InputError
from spt_core.events import Progress
from spt_core.insight.maps import attention_values
from spt_core.insight.predicting import predict
from spt_core.insight.results import MARGIN, Faithfulness, WhatIf
from spt_core.insight.wording import prediction_sentence
from spt_core.learning.model_file import SlideModel
from spt_core.learning.standardising import TokenScale
from spt_core.tokens import Tokens

REMOVED = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
# Enough for a curve; a larger slide is thinned evenly to this many patches.
MOST_PATCHES = 4096
REPEATS = 3


class NoClassError(InputError):
    """A model names no class whose probability could be followed."""


def faithfulness(
    model: SlideModel,
    tokens: Tokens,
    *,
    class_name: str | None = None,
    seed: int = 0,
) -> Generator[Progress, None, Faithfulness]:
    """Check whether what the model attends to is what it decides by.

    Parameters
    ----------
    class_name
        The class whose probability to follow; the most likely one if not given.
    """
    if not model.classes:
        raise NoClassError("This model names no classes: there is nothing to follow.")
    if len(tokens) == 0:
        raise InputError("An empty slide has no patches to remove.")
    count = len(tokens)
    if count > MOST_PATCHES:
        tokens = tokens.take(
            np.linspace(0, count - 1, MOST_PATCHES).round().astype(int)
        )
    scale = model.scale_for(tokens)  # of the whole: removing patches moves no other
    whole = predict(model, tokens, scale=scale)
    if whole.probabilities is None:
        raise NoClassError(f"There is no class to follow. {prediction_sentence(whole)}")
    if class_name is None:
        class_name = model.classes[whole.top or 0]
    elif class_name not in model.classes:
        raise InputError(
            f"There is no class {class_name!r}; there are {', '.join(model.classes)}."
        )
    which = model.classes.index(class_name)
    n = len(tokens)
    looked_at = np.argsort(-attention_values(whole.attention), kind="stable")
    rng = np.random.default_rng([seed, 23])
    orders = [looked_at, looked_at[::-1], *(rng.permutation(n) for _ in range(REPEATS))]
    curves = np.empty((len(orders), len(REMOVED)))
    for row, order in enumerate(orders):
        for col, share in enumerate(REMOVED):
            gone = min(round(share * n), n - 1)
            left = tokens.take(np.sort(order[gone:])) if gone else tokens
            shares = whole.probabilities if gone == 0 else _shares(model, left, scale)
            curves[row, col] = shares[which]  # type: ignore[index]
            done = row * len(REMOVED) + col + 1
            yield Progress(done, curves.size, message="removing patches")
    return Faithfulness(
        class_name,
        np.array(REMOVED),
        curves[0],
        curves[2:].mean(axis=0),
        curves[1],
        n,
        n < count,
    )


def what_if(
    model: SlideModel,
    tokens: Tokens,
    without: NDArray[np.bool_],
    *,
    margin: float = MARGIN,
) -> WhatIf:
    """The prediction without the patches that are True in ``without`` (n,)."""
    scale = model.scale_for(tokens)
    before = predict(model, tokens, margin=margin, scale=scale)
    left = tokens.take(np.flatnonzero(~without))
    # The rest is predicted as a slide of its own, not as the beginning of one.
    after = predict(model, left, margin=margin, scale=scale)
    after = replace(after, total=len(left), calibrated=False)  # a part of the slide
    return WhatIf(before, after, int(np.count_nonzero(without)))


def patches_within(
    l0_polygon: NDArray[np.floating], tokens: Tokens
) -> NDArray[np.bool_]:
    """Which patches (n,) have their middle within a polygon of level-0 (x, y)."""
    size = np.asarray(tokens.facts.l0_patch_xy or (1, 1), float)
    x, y = (tokens.xy + size / 2).T
    inside = np.zeros(len(tokens), bool)
    ends = np.roll(l0_polygon, -1, axis=0)
    for (x0, y0), (x1, y1) in zip(l0_polygon, ends, strict=True):
        crosses = (y0 > y) != (y1 > y)
        if y0 != y1:
            inside ^= crosses & (x < (x1 - x0) * (y - y0) / (y1 - y0) + x0)
    return inside


def _shares(
    model: SlideModel, tokens: Tokens, scale: TokenScale | None
) -> NDArray[np.float64] | None:
    return predict(model, tokens, always_named=True, scale=scale).probabilities
