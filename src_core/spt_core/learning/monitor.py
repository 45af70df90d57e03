"""Is it learning? Signals from whole-slide embeddings while a model trains."""

from dataclasses import dataclass
from math import sqrt

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from spt_core.devices import all_threads
from spt_core.events import Note
from spt_core.learning.cohort import Cohort, CohortSlide
from spt_core.learning.knn import knn_probabilities, mean_class_accuracy

# A look, not an evaluation: so many slides, and so many tokens spread over each.
LOOK_SLIDES = 512
LOOK_TOKENS = 1024
COLLAPSED_SPREAD = 1e-4


@dataclass(frozen=True)
class Validation:
    """What the embeddings look like at one moment.

    Attributes
    ----------
    spread
        Standard deviation of unit-length embeddings, 1 = in all directions alike,
        0 = one point.
    effective_rank
        How many directions they use (exponential of the singular values' entropy).
    knn
        Mean class accuracy of nearest neighbours, where there are labels.
    """

    step: int
    spread: float
    effective_rank: float
    knn: float | None = None


@dataclass(frozen=True)
class NotLearning(Note):
    """The loss has not left the level of chance."""


@dataclass(frozen=True)
class Collapsed(Note):
    """All slides have one and the same embedding."""


class Monitor:
    """Looks at a fixed few slides, the labelled ones first.

    kNN votes: slides of the split ``val`` are asked and those that are learned from
    vote, where labels.csv has both; otherwise each is asked in turn and its patient's
    slides do not vote. Slides of the split ``test`` are not looked at: the best model
    is chosen by what is seen here.
    """

    def __init__(self, cohort: Cohort, seed: int) -> None:
        self.cohort = cohort
        y = cohort.class_numbers()
        splits = np.array([slide.split or "train" for slide in cohort])
        order = np.random.default_rng([seed, 7]).permutation(len(cohort))
        order = order[splits[order] != "test"]
        order = order[np.argsort(y[order] < 0, kind="stable")][:LOOK_SLIDES]
        self.chosen = np.sort(order)
        self.y = y[self.chosen]
        splits = splits[self.chosen]
        self.held_out = bool(((splits == "val") & (self.y >= 0)).any())
        self.asked = self.y >= 0
        self.voters = self.y >= 0
        if self.held_out:
            self.asked &= splits == "val"
            self.voters &= splits == "train"
        patients = np.array(cohort.patients(), dtype=object)[self.chosen]
        self.forbidden = patients[self.asked][:, None] == patients[self.voters][None, :]
        self.has_labels = bool(
            self.asked.any() and len(np.unique(self.y[self.voters])) > 1
        )

    def look(self, encoder: nn.Module, device: torch.device, step: int) -> Validation:
        slides = [self.cohort[int(index)] for index in self.chosen]
        h = np.stack([glance(encoder, slide, device) for slide in slides])
        knn = None
        if self.has_labels:
            shares = knn_probabilities(
                h[self.voters],
                self.y[self.voters],
                h[self.asked],
                len(self.cohort.classes),
                forbidden=self.forbidden,
            )
            knn = mean_class_accuracy(self.y[self.asked], shares.argmax(axis=1))
        return Validation(step, spread(h), effective_rank(h), knn)


@torch.no_grad()
def embed_slide(
    encoder: nn.Module, slide: CohortSlide, device: torch.device
) -> NDArray[np.float32]:
    """The embedding (dim,) of a whole slide."""
    with all_threads(device):
        return _embed(encoder, slide, np.arange(len(slide)), device)


@torch.no_grad()
def glance(
    encoder: nn.Module, slide: CohortSlide, device: torch.device
) -> NDArray[np.float32]:
    """The embedding (dim,) of tokens spread evenly over a slide."""
    step = max(1, -(-len(slide) // LOOK_TOKENS))
    return _embed(encoder, slide, np.arange(0, len(slide), step), device)


def _embed(
    encoder: nn.Module,
    slide: CohortSlide,
    rows: NDArray[np.integer],
    device: torch.device,
) -> NDArray[np.float32]:
    x = np.empty((len(rows), slide.source.shape[1]), np.float32)
    slide.read(rows, x)
    tokens = torch.from_numpy(x).to(device)
    places = torch.from_numpy(slide.p[rows]).to(device)
    h, _ = encoder.attend(tokens, places)  # type: ignore[operator]
    return h.float().cpu().numpy()


def spread(h: NDArray[np.floating]) -> float:
    unit = h / np.maximum(np.linalg.norm(h, axis=1, keepdims=True), 1e-12)
    return float(unit.std(axis=0).mean() * sqrt(h.shape[1]))


def effective_rank(h: NDArray[np.floating]) -> float:
    values = np.linalg.svd(h - h.mean(axis=0), compute_uv=False)
    total = values.sum()
    if total < 1e-12:
        return 1.0
    share = values / total
    share = share[share > 0]
    return float(np.exp(-(share * np.log(share)).sum()))
