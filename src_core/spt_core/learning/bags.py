"""Whole slides for the supervised baselines, as far as memory allows.

Attention pooling, mean and max know no places, so that a crop teaches them nothing but
to do with less; TransMIL and HIPT lay out the slide themselves. Those who compare with
them train them on all of a slide's tokens.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from spt_core.devices import CPU_WORKING_BYTES, working_bytes
from spt_core.learning.aggregators import build_encoder
from spt_core.learning.cohort import Cohort
from spt_core.learning.model_card import read_model_card
from spt_core.learning.settings import BASELINES, TrainSettings
from spt_core.learning.views import THE_PAPERS
from spt_core.training.batch import AHEAD


def with_whole_bags(
    settings: TrainSettings, cohort: Cohort, device: torch.device
) -> tuple[TrainSettings, str]:
    """Resolved settings whose views are whole slides where they should be.

    View settings that somebody has changed are left as they are.

    Returns
    -------
    The settings, and what there is to say of the views, if anything.
    """
    name, options = settings.model, dict(settings.architecture)
    if settings.init:
        built = read_model_card(settings.init).architecture
        name, options = built.name, dict(built.options)
    # A moved slide is still a whole one.
    which = replace(settings.views, views=THE_PAPERS.views, turn=False, shift=0)
    unchanged = which == THE_PAPERS
    if settings.objective != "classify" or name not in BASELINES or not unchanged:
        return settings, ""
    batch = int(settings.batch_size or 1)
    lengths = np.sort([len(slide) for slide in cohort])[::-1]
    most = _tokens_in_memory(cohort)
    views = replace(settings.views, crop=False, mask=False)
    said = f"{name} sees whole slides, of up to {lengths[0]:,} tokens."
    if lengths[:batch].sum() > most:
        limit = max(1, most // batch)
        views = replace(views, mask=True, mask_keep=(1.0, 1.0), max_tokens=limit)
        more = int((lengths > limit).sum())
        said = (
            f"{name} sees at most {limit:,} tokens of a slide, drawn anew in each "
            f"step, so that batches of {batch} fit in memory; {more} of "
            f"{len(lengths)} slides have more. A smaller --batch-size allows more."
        )
    of_one = _tokens_in_graph(str(name), {"in_dim": cohort.dim, **options}, device)
    if (views.max_tokens if views.mask else lengths[0]) > of_one:
        views = replace(views, mask=True, mask_keep=(1.0, 1.0), max_tokens=of_one)
        more = int((lengths > of_one).sum())
        said = (
            f"{name} sees at most {of_one:,} tokens of a slide, drawn anew in each "
            f"step, so that training on one slide fits in memory; {more} of "
            f"{len(lengths)} slides have more."
        )
    return replace(settings, views=views), said


def _tokens_in_graph(name: str, options: dict[str, Any], device: torch.device) -> int:
    """How many tokens one slide may have, so that its graph fits in memory."""
    with torch.device("meta"):  # without its weights
        encoder = build_encoder(name, **options)
    floats = working_bytes(device) / 4 - encoder.slide_floats
    return max(1, int(floats / max(encoder.token_floats, 1)))


def _tokens_in_memory(cohort: Cohort) -> int:
    """How many tokens a batch may have, with others made ahead of it."""
    per_token = cohort.dim * cohort.dtype.itemsize
    return CPU_WORKING_BYTES // ((AHEAD + 1) * per_token)
