"""Ways of learning that the package does not have, to see whether it should."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import torch

from spt_core.learning import batches
from spt_core.learning.views import slide_views

LARGE, SMALL = (200, 400), (40, 120)  # grid cells


@contextmanager
def moved_places(*, turned: bool, shifted: bool) -> Iterator[None]:
    """Views are flipped, turned by quarters, or laid anywhere on a 32 by 32 grid."""
    made, rng = batches.padded_chunks, np.random.default_rng(0)

    def chunks(*args, **options):
        found = made(*args, **options)
        return [replace(one, inputs=moved(*one.inputs)) for one in found]

    def moved(x, p, mask):
        p = p.clone()
        for view, real in zip(p, mask, strict=True):
            view[real] = torch.from_numpy(elsewhere(view[real].numpy()))
        return x, p, mask

    def elsewhere(p):
        if turned:
            p = p[:, ::-1] if rng.random() < 0.5 else p
            p = np.where(rng.random(2) < 0.5, 31 - p, p)
        if shifted:
            p = p - p.min(axis=0)
            p = p + rng.integers(np.maximum(32 - p.max(axis=0), 1))
        return np.ascontiguousarray(p, np.int32)

    with patch.object(batches, "padded_chunks", chunks):
        yield


@contextmanager
def two_sizes() -> Iterator[None]:
    """Of four views two are of large crops and two of small ones."""

    def views(ps, rngs, settings):
        by_slide = []
        for p, rng in zip(ps, rngs, strict=True):
            pairs = replace(settings, views=2)
            by_slide.append([
                view
                for area in (LARGE, SMALL)
                for view in slide_views(p, rng, replace(pairs, crop_area=area))
            ])  # fmt: skip
        return [list(view) for view in zip(*by_slide, strict=True)]

    with patch.object(batches, "batch_views", views):
        yield
