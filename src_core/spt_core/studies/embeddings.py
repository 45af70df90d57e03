"""What a model makes of labelled slides: embeddings, and scores of its classifier."""

from collections.abc import Generator
from dataclasses import dataclass
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
from spt_core.learning.cohort import Cohort, feature_files
from spt_core.learning.model_file import SlideModel

# of the whole slide at once, and the mean over windows of it
EMBEDDINGS = ("whole", "windows")


@dataclass(frozen=True, eq=False)
class EmbeddedSlides:
    """What is known of n slides.

    Attributes
    ----------
    h
        By kind of embedding, (n, dim) each.
    scores
        The same of the model's own classifier, (n, classes) each, in the order of the
        cohort's classes; None where the model does not have these classes.
    y : (n,) class numbers
    patients, pseudonyms
        Of each slide.
    """

    h: dict[str, NDArray[np.float32]]
    scores: dict[str, NDArray[np.float64]] | None
    y: NDArray[np.int64]
    patients: list[str]
    pseudonyms: list[str]


def embed_slides(
    model: SlideModel, cohort: Cohort, features: str | Path
) -> Generator[Progress, None, EmbeddedSlides]:
    """Put every slide through ``predict``, as the heatmap does."""
    classes = cohort.classes
    own = bool(model.classes) and set(classes) <= set(model.classes)
    columns = [model.classes.index(name) for name in classes] if own else []
    paths = {path.stem: path for path in feature_files(features)}
    h: dict[str, list] = {name: [] for name in EMBEDDINGS}
    scores: dict[str, list] = {name: [] for name in EMBEDDINGS}
    pseudonyms = []
    for done, slide in enumerate(cohort, start=1):
        tokens = read_for(model, paths[slide.name])
        prediction = predict(model, tokens, always_named=True)
        h["whole"].append(prediction.embedding)
        h["windows"].append(mean_window_embedding(model, tokens))
        pseudonyms.append(pseudonym(fingerprint_of(tokens)))
        if own:
            for name in EMBEDDINGS:
                embedding = torch.from_numpy(h[name][-1]).to(device_of(model))
                scores[name].append(logits(model, embedding)[columns])
        yield Progress(done, len(cohort), message="embedding slides")
    return EmbeddedSlides(
        {name: np.stack(found) for name, found in h.items()},
        {name: np.stack(found) for name, found in scores.items()} if own else None,
        cohort.class_numbers(),
        cohort.patients(),
        pseudonyms,
    )
