"""Cohorts in memory, for tests that need no feature files."""

from types import SimpleNamespace

import numpy as np

from spt_core.learning.cohort import Cohort, CohortSlide
from spt_core.tokens import TokenFacts

TOKENS = 4


def made_cohort(rows, features=None):
    """Slides of ``rows``: dictionaries with name, label, patient, site and split.

    ``features`` (n, dim) are the means of the slides' tokens.
    """
    place = np.stack([np.arange(TOKENS)] * 2, axis=1).astype(np.int32)
    if features is None:
        features = np.zeros((len(rows), 2), np.float32)
    slides = []
    for number, (row, mean) in enumerate(zip(rows, features, strict=True)):
        row = dict(row)
        slides.append(
            CohortSlide(
                name=row.pop("name", f"s{number:03d}"),
                p=place,
                facts=TokenFacts(slide_fingerprint=f"pixels-{number}"),
                source=SimpleNamespace(shape=(TOKENS, len(mean)), dtype=mean.dtype),
                x=np.repeat(mean[None], TOKENS, axis=0),
                **row,
            )
        )
    return Cohort(slides)


def plain_cohort(patients=20, each=1, classes="ab", **more):
    """Each patient has one class and ``each`` slides."""
    return made_cohort(
        [
            {"label": classes[i // each % len(classes)], "patient": f"p{i // each}"}
            for i in range(patients * each)
        ],
        **more,
    )
