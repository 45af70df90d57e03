"""Tokens standardised per site or per slide, so that a scanner's trace is taken out.

A scanner, stain or laboratory moves and stretches all tokens alike, which is the
easiest thing to tell slides apart by. Here a token is measured from the mean of all
tokens of its site, in their standard deviations. What a model was trained with is kept
in its file and done to every slide that it is asked about. Without torch.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from spt_core.errors import InputError
from spt_core.learning.model_card import NONE, SITE, SLIDE, SiteFacts, Standardising

if TYPE_CHECKING:
    from spt_core.learning.cohort import Cohort, CohortSlide

# Of a longer slide evenly spread tokens count; more of them change nothing.
MOST_TOKENS = 4096
# A dimension that hardly varies is not blown up to the size of the others.
LEAST_SPREAD = 0.01
# What the statistics of sites are called in a model file.
SITE_MEAN, SITE_STD = "site_mean", "site_std"
# From fewer slides a site's statistics are as much of their tissue as of the scanner.
FEWEST_SLIDES = 3


@dataclass(frozen=True, eq=False)
class TokenScale:
    """By which tokens are standardised.

    Attributes
    ----------
    mean, std : (d,) float32
    """

    mean: NDArray[np.float32]
    std: NDArray[np.float32]

    def __call__(self, x: NDArray[np.floating]) -> NDArray[np.float32]:
        """Tokens (n, d) in standard deviations from the mean.

        Each row is computed by itself: a part of a slide is the same as in the whole.
        """
        return (x.astype(np.float32, copy=False) - self.mean) / self.std


class _Moments:
    """Sums over tokens that come slide by slide."""

    def __init__(self, dim: int) -> None:
        self.slides: list[str] = []  # their fingerprints
        self.tokens, self.count = 0, 0
        self.total = np.zeros(dim)
        self.squares = np.zeros(dim)

    def add(self, x: NDArray[np.floating], tokens: int) -> None:
        x = x.astype(np.float64)
        self.tokens += tokens
        self.count += len(x)
        self.total += x.sum(axis=0)
        self.squares += np.square(x).sum(axis=0)

    def scale(self) -> TokenScale:
        mean = self.total / self.count
        std = np.sqrt(np.maximum(self.squares / self.count - np.square(mean), 0))
        usual = float(np.sqrt(np.square(std).mean()))
        # A single token, or many of one kind, have no spread to measure by.
        std = np.maximum(std, LEAST_SPREAD * usual) if usual > 0 else np.ones(len(std))
        return TokenScale(mean.astype(np.float32), std.astype(np.float32))


def own_scale(x: NDArray[np.floating]) -> TokenScale:
    """By which a slide's tokens (n, d) are standardised by themselves."""
    moments = _Moments(x.shape[1])
    moments.add(x, len(x))
    return moments.scale()


@dataclass(frozen=True, eq=False)
class Standardiser:
    """How a model's tokens are standardised, and by which statistics.

    Attributes
    ----------
    card
        The same as a fact of the model's card.
    scales
        By the names of the sites.
    """

    card: Standardising = field(default_factory=Standardising)
    scales: Mapping[str, TokenScale] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        return self.card.kind

    def knows(self, site: str | None) -> bool:
        """Whether a slide of this site is standardised as the model is used to."""
        return self.kind != SITE or site in self.scales

    def scale_for(self, site: str | None, x: NDArray[np.floating]) -> TokenScale | None:
        """By which the tokens (n, d) of a slide are standardised; None leaves them.

        A slide of a site without statistics is measured by its own, never by those of
        another site: see :meth:`knows`.
        """
        if self.kind == NONE or len(x) == 0:
            return None
        known = self.scales.get(site or "") if self.kind == SITE else None
        return own_scale(x) if known is None else known

    def with_sites_of(self, cohort: "Cohort") -> "Standardiser":
        """The same with the sites of a cohort that it lacks, from their own slides."""
        if self.kind != SITE:
            return self
        lacking = [s for s in cohort if s.site and s.site not in self.scales]
        facts, scales = site_scales(lacking)
        card = replace(self.card, sites=(*self.card.sites, *facts))
        return Standardiser(card, {**self.scales, **scales})

    def recognising(self, cohort: "Cohort") -> "Standardiser":
        """The same, where these slides need not be asked where they are from."""
        slides: dict[str, set[str]] = {}
        for slide in cohort:
            slides.setdefault(slide.site or "", set()).add(slide.fingerprint())
        sites = tuple(
            replace(
                one,
                slide_fingerprints=one.slide_fingerprints | slides.get(one.name, set()),
            )
            for one in self.card.sites
        )
        return replace(self, card=replace(self.card, sites=sites))

    def arrays(self) -> dict[str, NDArray[np.float32]]:
        """The statistics as a model file holds them, (sites, d) each."""
        if not self.card.sites:
            return {}
        scales = [self.scales[one.name] for one in self.card.sites]
        return {
            SITE_MEAN: np.stack([scale.mean for scale in scales]),
            SITE_STD: np.stack([scale.std for scale in scales]),
        }


def standardiser_from(
    card: Standardising, arrays: Mapping[str, NDArray[np.float32]]
) -> Standardiser:
    """What a model file states and holds."""
    if not card.sites:
        return Standardiser(card)
    try:
        mean, std = arrays[SITE_MEAN], arrays[SITE_STD]
        pairs = zip(card.sites, mean, std, strict=True)
        return Standardiser(card, {one.name: TokenScale(m, s) for one, m, s in pairs})
    except (KeyError, ValueError) as error:
        raise InputError(
            "The model file does not hold the statistics of the sites that its card "
            "names: it is damaged."
        ) from error


def site_scales(
    slides: Iterable["CohortSlide"],
) -> tuple[tuple[SiteFacts, ...], dict[str, TokenScale]]:
    """The statistics of each site, from tokens as they are stored; no label is read."""
    found: dict[str, _Moments] = {}
    for slide in slides:
        if not slide.site:
            continue
        moments = found.setdefault(slide.site, _Moments(slide.source.shape[1]))
        moments.add(spread_tokens(slide), len(slide))
        moments.slides.append(slide.fingerprint())
    facts = tuple(
        SiteFacts(
            name,
            len(one.slides),
            one.tokens,
            slide_fingerprints=frozenset(one.slides),
        )
        for name, one in sorted(found.items())
    )
    return facts, {name: one.scale() for name, one in found.items()}


def spread_tokens(slide: "CohortSlide") -> NDArray[np.floating]:
    """Tokens spread evenly over a slide, as they are stored."""
    step = max(1, -(-len(slide) // MOST_TOKENS))
    rows = np.arange(0, len(slide), step)
    x = np.empty((len(rows), slide.source.shape[1]), slide.source.dtype)
    slide.read_stored(rows, x)
    return x


def fit_standardiser(kind: str, cohort: "Cohort", sites_from: str) -> Standardiser:
    """Standardise by these slides: those that a model learns from."""
    if kind != SITE:
        return Standardiser(Standardising(kind))
    lacking = sum(not slide.site for slide in cohort)
    if lacking:
        raise InputError(
            f"{lacking} of {len(cohort)} slides have no site, so their tokens cannot "
            "be standardised per site. Fill in the column 'site', or choose "
            "--standardise slide or no."
        )
    facts, scales = site_scales(cohort)
    return Standardiser(Standardising(SITE, facts, sites_from), scales)


def standardised(cohort: "Cohort", by: Standardiser) -> "Cohort":
    """The same slides, whose tokens are standardised as they are read.

    Slides of sites that ``by`` lacks are measured by their own tokens.
    """
    if by.kind == NONE:
        return cohort
    slides = [
        replace(slide, scale=by.scale_for(slide.site, _whole(slide, by)))
        for slide in cohort
    ]
    # Augmented tokens are of the same scanner: its trace is the original's.
    augmented = tuple(
        replace(
            other,
            slides=[
                replace(one, scale=slide.scale)
                for one, slide in zip(other, slides, strict=True)
            ],
        )
        for other in cohort.augmented
    )
    return replace(cohort, slides=slides, augmented=augmented)


def _whole(slide: "CohortSlide", by: Standardiser) -> NDArray[np.floating]:
    """All tokens, where the slide is measured by itself; else one is enough."""
    if by.kind == SLIDE or slide.site not in by.scales:
        return slide.stored()
    return np.zeros((1, slide.source.shape[1]), np.float32)
