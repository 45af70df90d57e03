"""What a model makes of slides: embeddings, and scores of its classifier."""

from collections.abc import Generator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from spt_core.events import Progress
from spt_core.insight.class_map import mean_window_embedding
from spt_core.insight.predicting import (
    device_of,
    fingerprint_of,
    logits,
    predict,
    read_for,
)
from spt_core.insight.results import pseudonym
from spt_core.learning.aggregators import build_encoder
from spt_core.learning.cohort import Cohort, feature_files
from spt_core.learning.model_card import (
    SITE,
    Architecture,
    ModelCard,
    Standardising,
    TokenKind,
    TrainingSummary,
)
from spt_core.learning.model_file import SlideModel
from spt_core.tokens.finding import name_of

# Of the whole slide at once, and the mean over windows of it.
EMBEDDINGS = ("whole", "windows")
# Models that need no training, by their names.
POOLINGS = ("mean", "max")


@dataclass(frozen=True, eq=False)
class EmbeddedSlides:
    """What one model makes of n slides.

    Attributes
    ----------
    h
        By kind of embedding, (n, dim) each.
    scores
        The same of the model's own classifier, (n, classes of the model) each; None
        where the model does not have the cohort's classes.
    own_y : (n,)
        Class numbers in the model's order, where it has scores.
    y : (n,) class numbers in the cohort's order, -1 without a label
    patients, names, pseudonyms
        Of each slide.
    """

    h: dict[str, NDArray[np.float32]]
    scores: dict[str, NDArray[np.float64]] | None
    own_y: NDArray[np.int64] | None
    y: NDArray[np.int64]
    patients: list[str]
    names: list[str]
    pseudonyms: list[str]


def knowing_sites(
    model: SlideModel, cohort: Cohort, others: Cohort | None = None
) -> tuple[SlideModel, list[str]]:
    """The model with the sites of a cohort that it lacks, and what to say of that.

    Their statistics are of the cohort's own slides, whose labels are not looked at.

    Parameters
    ----------
    others
        All slides that there are, where the cohort is a part: those of its sites count.
    """
    before = model.standardiser
    if before.kind != SITE:
        return model, []
    cohort = _with_known_sites(cohort, before.card)
    sites = {slide.site for slide in cohort}
    others = cohort if others is None else _with_known_sites(others, before.card)
    after = before.with_sites_of(
        others.subset(i for i, slide in enumerate(others) if slide.site in sites)
    )
    new = after.card.sites[len(before.card.sites) :]
    remarks = []
    if new:
        counts = ", ".join(f"{one.name} {one.slides}" for one in new)
        remarks.append(
            "The model does not know these sites: each is measured by its slides here, "
            f"without their labels (slides of each: {counts})."
        )
    lacking = sum(not slide.site for slide in cohort)
    if lacking:
        remarks.append(
            f"The model standardises tokens per site, and {lacking} slides have none: "
            "each is standardised by its own patches alone. Give a column 'site', or "
            "--site."
        )
    return model.standardised_by(after), remarks


def _with_known_sites(cohort: Cohort, card: Standardising) -> Cohort:
    slides = [replace(s, site=s.site or card.known_site(s.facts)) for s in cohort]
    return replace(cohort, slides=slides)


def embed_slides(
    model: SlideModel, cohort: Cohort, features: str | Path
) -> Generator[Progress, None, EmbeddedSlides]:
    """Put every slide through ``predict``, as the heatmap does."""
    own = bool(model.classes) and set(cohort.classes) <= set(model.classes)
    paths = {name_of(path): path for path in feature_files(features)}
    h: dict[str, list] = {name: [] for name in EMBEDDINGS}
    scores: dict[str, list] = {name: [] for name in EMBEDDINGS}
    pseudonyms = []
    for done, slide in enumerate(cohort, start=1):
        tokens = read_for(model, paths[slide.name], site=slide.site)
        prediction = predict(model, tokens, always_named=True)
        h["whole"].append(prediction.embedding)
        h["windows"].append(mean_window_embedding(model, tokens))
        pseudonyms.append(pseudonym(fingerprint_of(tokens)))
        if own:
            for name in EMBEDDINGS:
                embedding = torch.from_numpy(h[name][-1]).to(device_of(model))
                scores[name].append(logits(model, embedding))
        yield Progress(done, len(cohort), message="embedding slides")
    own_y = None
    if own:
        numbers = [model.classes.index(s.label) if s.label else -1 for s in cohort]
        own_y = np.array(numbers, np.int64)
    return EmbeddedSlides(
        {name: np.stack(found) for name, found in h.items()},
        {name: np.stack(found) for name, found in scores.items()} if own else None,
        own_y,
        cohort.class_numbers(),
        cohort.patients(),
        [slide.name for slide in cohort],
        pseudonyms,
    )


def pooling_model(name: str, cohort: Cohort) -> SlideModel:
    """Mean or max pooling as a model of a cohort's tokens: nothing is learned."""
    encoder = build_encoder(name, cohort.dim)
    card = ModelCard(
        Architecture(name, encoder.config),
        TokenKind.of(cohort.facts, cohort.dim),
        TrainingSummary(slides=0),
        title=f"{name} pooling",
    )
    return SlideModel(encoder.eval(), card)
