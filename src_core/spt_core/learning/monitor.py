"""Is it learning? Signals from the embeddings of slides while a model trains."""

import hashlib
from collections import Counter
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import nn

from spt_core.devices import all_threads
from spt_core.learning.aggregator import Aggregator
from spt_core.learning.cohort import Cohort, CohortSlide
from spt_core.training.knn import knn_probabilities, mean_class_accuracy
from spt_core.training.signals import AskedOf, Validation, effective_rank, spread

# A look, not an evaluation: at most so many slides, and so many tokens of each.
MOST_SLIDES = 512
MOST_TOKENS = 1024


@dataclass(frozen=True, eq=False)
class Seen:
    """The last look: embeddings h (n, dim), and one slide's attention.

    ``p`` (m, 2) are the places of the patches that ``attention`` (m,) is of.
    """

    h: NDArray[np.float32]
    p: NDArray[np.integer]
    attention: NDArray[np.float32]


class SlideMonitor:
    """Looks at a fixed few slides, the labelled ones first.

    kNN votes: slides of the split ``val`` are asked and those that are learned from
    vote, where labels.csv has both; otherwise each is asked in turn and its patient's
    slides do not vote. Slides of the split ``test`` are not looked at: the best model
    is chosen by what is seen here.

    The sites are asked for in the same way, each slide in its turn: where they are
    told better than the classes, the scanner is what was learned. A site of one patient
    could not be told by others of its slides, and is left out.
    """

    def __init__(self, cohort: Cohort, seed: int) -> None:
        self.cohort = cohort
        y = cohort.class_numbers()
        splits = np.array([slide.split or "train" for slide in cohort])
        order = np.random.default_rng([seed, 7]).permutation(len(cohort))
        order = order[splits[order] != "test"]
        order = order[np.argsort(y[order] < 0, kind="stable")][:MOST_SLIDES]
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
        self.sites = _of_several(cohort.site_numbers()[self.chosen], patients)
        known = patients[self.sites >= 0]
        self.same_patient = known[:, None] == known[None, :]
        site_count = len(np.unique(self.sites[self.sites >= 0]))
        self.has_sites = site_count > 1
        class_count = len(np.unique(self.y[self.asked]))
        self.asked_of = AskedOf(class_count, site_count, len(set(known.tolist())))
        self.is_held_out = splits == "val"
        # Whose attention is kept: a slide held out, where there is one.
        self.attended = int(self.is_held_out.argmax()) if len(splits) else 0
        self.seen: Seen | None = None

    @cached_property
    def pseudonyms(self) -> tuple[str, ...]:
        """What files may call the slides."""
        prints = [self.cohort[int(index)].fingerprint() for index in self.chosen]
        return tuple(
            "slide-" + hashlib.sha256(one.encode()).hexdigest()[:10] for one in prints
        )

    def validate(
        self,
        encoder: Aggregator,
        device: torch.device,
        step: int,
        classifier: nn.Linear | None = None,
    ) -> Validation:
        """Look at the slides; ``classifier`` is one that is being trained."""
        slides = [self.cohort[int(index)] for index in self.chosen]
        looks = []
        for number, slide in enumerate(slides):
            rows = sample_rows(slide)
            embedding, attention = _attend(encoder, slide, rows, device)
            looks.append(embedding)
            if number == self.attended:
                kept = (slide.p[rows], attention.mean(dim=0).float().cpu().numpy())
        h = np.stack(looks)
        self.seen = Seen(h, *kept)
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
        site_knn = self._site_knn(h) if self.has_sites else None
        loss = None
        if self.has_labels and self.held_out and classifier is not None:
            loss = _class_mean_loss(classifier, h[self.asked], self.y[self.asked])
        return Validation(step, spread(h), effective_rank(h), knn, loss, site_knn)

    def _site_knn(self, h: NDArray[np.float32]) -> float:
        known = self.sites >= 0
        h, sites = h[known], self.sites[known]
        shares = knn_probabilities(
            h, sites, h, int(sites.max()) + 1, forbidden=self.same_patient
        )
        return mean_class_accuracy(sites, shares.argmax(axis=1))


def _of_several(
    sites: NDArray[np.int64], patients: NDArray[np.object_]
) -> NDArray[np.int64]:
    """The numbers of sites, -1 for those that have slides of one patient alone."""
    pairs = set(zip(sites.tolist(), patients.tolist(), strict=True))
    count = Counter(site for site, _ in pairs)
    alone = np.array([count[site] < 2 for site in sites.tolist()], bool)
    return np.where(alone, -1, sites)


@torch.no_grad()
def _class_mean_loss(
    classifier: nn.Linear, h: NDArray[np.float32], y: NDArray[np.int64]
) -> float:
    """Cross-entropy of the classifier's answers, the mean over the classes present."""
    scores = classifier(torch.from_numpy(h).to(classifier.weight)).float().cpu()
    each = F.cross_entropy(scores, torch.from_numpy(y), reduction="none").numpy()
    return float(np.mean([each[y == one].mean() for one in np.unique(y)]))


@torch.no_grad()
def embed_slide(
    encoder: Aggregator, slide: CohortSlide, device: torch.device
) -> NDArray[np.float32]:
    """The embedding (dim,) of a whole slide."""
    with all_threads(device):
        return _attend(encoder, slide, np.arange(len(slide)), device)[0]


def sample_rows(slide: CohortSlide) -> NDArray[np.integer]:
    """Rows of tokens spread evenly over a slide, the same at every look."""
    step = max(1, -(-len(slide) // MOST_TOKENS))
    return np.arange(0, len(slide), step)


@torch.no_grad()
def _attend(
    encoder: Aggregator,
    slide: CohortSlide,
    rows: NDArray[np.integer],
    device: torch.device,
) -> tuple[NDArray[np.float32], torch.Tensor]:
    """The embedding (dim,) of some tokens, and their attention (heads, rows)."""
    x = np.empty((len(rows), slide.source.shape[1]), np.float32)
    slide.read(rows, x)
    tokens = torch.from_numpy(x).to(device)
    places = torch.from_numpy(slide.p[rows]).to(device)
    h, attention = encoder.attend(tokens, places)
    return h.float().cpu().numpy(), attention
