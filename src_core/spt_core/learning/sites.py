"""Which site a slide is of, and what that means for a run: decided once, and said."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from spt_core.errors import InputError
from spt_core.learning.cohort import Cohort
from spt_core.learning.finding_sites import find_sites
from spt_core.learning.model_card import NONE, SITE, SLIDE, Metrics
from spt_core.learning.settings import (
    ALL,
    BASELINES,
    FOUND,
    LABELS,
    NEGATIVES_PER_SITE,
    SCANNER,
    TrainSettings,
)
from spt_core.learning.standardising import (
    FEWEST_SLIDES,
    Standardiser,
    fit_standardiser,
    standardised,
)

SHOWN = 12
_HOW = {
    SITE: "standardised per site",
    SLIDE: "standardised per slide",
    NONE: "as they are",
}


@dataclass(frozen=True, eq=False)
class Settled:
    """Slides as a run takes them, and what was decided for them.

    Attributes
    ----------
    settings
        With ``standardise`` decided.
    standardiser
        Of the slides that are learned from.
    cohort, learned_from
        With tokens standardised as they are read.
    notes
        What to tell the user before the first step.
    """

    settings: TrainSettings
    standardiser: Standardiser
    cohort: Cohort
    learned_from: Cohort
    notes: tuple[str, ...]


def with_found_sites(cohort: Cohort, settings: TrainSettings) -> Cohort:
    """The same slides with sites that are guessed, if that was asked.

    Groups of their mean tokens, or slides of one kind of scanner.
    """
    if settings.sites == FOUND:
        names = find_sites(cohort, seed=settings.seed)
    elif settings.sites == SCANNER:
        names = _scanners(cohort)
    else:
        return cohort
    slides = [
        replace(slide, site=site) for slide, site in zip(cohort, names, strict=True)
    ]
    return replace(cohort, slides=slides)


def _scanners(cohort: Cohort) -> list[str]:
    names = [slide.facts.scanner for slide in cohort]
    if lacking := names.count(None):
        raise InputError(
            f"{lacking} of {len(cohort)} feature files do not state the scanner: "
            "encode the slides again, or choose --sites found."
        )
    return [str(name) for name in names]


def settle_sites(
    settings: TrainSettings,
    cohort: Cohort,
    learned_from: Cohort,
    start: Standardiser | None = None,
    *,
    resumed: bool = False,
) -> Settled:
    """Decide how tokens are standardised, and do it.

    Statistics are of the slides that are learned from. Slides to validate on of other
    sites are measured by those of their own, whose labels are not looked at.

    Parameters
    ----------
    start
        Of the model that the run begins from.
    resumed
        Runs that were begun before there was a choice go on without.
    """
    notes: list[str] = []
    kind = settings.standardise
    if kind is None:
        kind = NONE if resumed else usual_kind(learned_from, notes, start)
    elif start is not None and kind != start.kind:
        notes.append(
            f"The model that this run starts from takes tokens {_HOW[start.kind]}, "
            f"this one {_HOW[kind]}: it has to learn them anew."
        )
    by = fit_standardiser(kind, learned_from, settings.sites or LABELS)
    if kind == SITE:
        if start is not None:
            by = _taken_over(by, start)
        notes.append(_per_site(by))
        few = [one.name for one in by.card.sites if one.slides < FEWEST_SLIDES]
        if few:
            notes.append(
                f"These sites have fewer than {FEWEST_SLIDES} slides: {_listed(few)}. "
                "Their statistics are as much of the tissue as of the scanner."
            )
        alone = _sites_of_one_class(learned_from)
        if alone:
            notes.append(
                f"These sites have slides of one class alone: {_listed(alone)}. What "
                "is special of the class is in part taken out with the scanner."
            )
    elif kind == SLIDE:
        notes.append("Tokens are standardised by the mean and spread of their slide.")
    negatives = settings.negatives
    if negatives is None:
        negatives = (
            ALL if resumed else usual_negatives(settings.objective, kind, learned_from)
        )
        if negatives == SITE:
            notes.append("Slides are kept apart from others of their site alone.")
    settings = replace(settings, standardise=kind, negatives=negatives)
    _check_batches(settings, learned_from)
    everywhere = by.with_sites_of(cohort)
    return Settled(
        settings,
        by,
        standardised(cohort, everywhere),
        standardised(learned_from, by),
        tuple(notes),
    )


def usual_kind(
    cohort: Cohort, notes: list[str], start: Standardiser | None = None
) -> str:
    """What is done where nobody says: per site, where that can take out the site.

    Parameters
    ----------
    notes
        Gets what there is to say of it.
    start
        Of the model that a run begins from, which goes on as it was trained.
    """
    if start is not None:
        if start.kind == SITE and not all(slide.site for slide in cohort):
            raise InputError(
                "The model to start from takes tokens standardised per site, and not "
                "all slides have one: fill in the column 'site' of the labels, or "
                "choose --standardise slide or no."
            )
        return start.kind
    sites = Counter(slide.site for slide in cohort if slide.site)
    if len(sites) < 2:
        if sites:
            notes.append("Tokens are left as they are: there is only one site.")
        return NONE
    why, way = None, "Choose --standardise site to do it all the same."
    if lacking := sum(not slide.site for slide in cohort):
        why = f"{lacking} of {len(cohort)} slides have no site"
        way = "Fill in the column 'site', or choose --standardise slide."
    elif len(cohort) < FEWEST_SLIDES * len(sites):
        why = f"{len(cohort)} slides of {len(sites)} sites are too few per site"
    elif _site_tells_class(cohort):
        why = "each site has slides of one class alone, which would be taken out too"
    if why is None:
        return SITE
    notes.append(f"Tokens are not standardised per site: {why}. {way}")
    return NONE


def usual_negatives(objective: str, kind: str, cohort: Cohort) -> str:
    """Whom SimCLR keeps slides apart from where nobody says.

    Slides of one site differ by their tissue alone: among them the scanner is nothing
    to tell them apart by, which statistics of first order do not take out wholly.
    """
    sites = {slide.site for slide in cohort}
    enough = len(cohort) >= NEGATIVES_PER_SITE * len(sites)
    return SITE if objective == "simclr" and kind == SITE and enough else ALL


def _site_tells_class(cohort: Cohort) -> bool:
    alone = _sites_of_one_class(cohort)
    sites = {slide.site for slide in cohort if slide.site and slide.label}
    return bool(alone) and sites == set(alone)


def _sites_of_one_class(cohort: Cohort) -> list[str]:
    """Sites whose labelled slides have one class, where there are several classes."""
    pairs = {(slide.site, slide.label) for slide in cohort if slide.label}
    if len({label for _, label in pairs}) < 2:
        return []
    classes = Counter(site for site, _ in pairs if site)
    return sorted(site for site, count in classes.items() if count == 1)


def _taken_over(by: Standardiser, start: Standardiser) -> Standardiser:
    """The statistics of the sites that the model to start from knows stay its own."""
    facts = {one.name: one for one in (*by.card.sites, *start.card.sites)}
    order = sorted(facts)
    return Standardiser(
        replace(by.card, sites=tuple(facts[name] for name in order)),
        {**by.scales, **start.scales},
    )


def _per_site(by: Standardiser) -> str:
    counts = [f"{one.name} {one.slides:,}" for one in by.card.sites]
    return (
        f"Tokens are standardised by the mean and spread of their site; slides of "
        f"each: {_listed(counts)}."
    )


def _check_batches(settings: TrainSettings, cohort: Cohort) -> None:
    if not settings.by_site:
        return
    counts = Counter(slide.site for slide in cohort)
    if None in counts:
        raise InputError(
            f"{counts[None]} of {len(cohort)} slides have no site: batches and "
            "negatives of one site need a column 'site' in the labels, or --sites "
            "found or scanner."
        )
    few = sorted(str(site) for site, count in counts.items() if count < 2)
    if few and settings.site_batches:
        raise InputError(
            f"Batches of one site need 2 slides of each: {_listed(few)} "
            f"{'has' if len(few) == 1 else 'have'} one. Leave --site-batches out, or "
            "put small sites together."
        )


def site_wins(metrics: Metrics, settings: TrainSettings) -> str:
    """What to do where neighbours share the site sooner than the class; else empty."""
    knn, site = metrics.knn, metrics.site_knn
    if knn is None or site is None or site <= knn:
        return ""
    ways = []
    if settings.standardise != SITE:
        ways.append("--standardise site")
    if not settings.site_batches:
        ways.append("--site-batches")
    if settings.objective == "simclr" and settings.negatives != SITE:
        ways.append("--negatives site")
    if settings.views.crop and settings.model not in BASELINES:
        ways.append("--no-crop")
    advice = f" Try {_either(ways)}." if ways else ""
    return (
        f"The slides' nearest neighbours tell the site ({site:.3f}) better than the "
        f"class ({knn:.3f}): the model has learned the scanner more than the "
        f"tissue.{advice}"
    )


def site_table(cohort: Cohort) -> str:
    """The slides of each site, as a table to look at before it is used."""
    sites = sorted({slide.site for slide in cohort if slide.site})
    width = max(map(len, ("site", *sites)))
    lines = [f"{'site':{width}}  slides  such as"]
    for site in sites:
        names = [slide.name for slide in cohort if slide.site == site]
        lines.append(f"{site:{width}}  {len(names):6}  {_listed(names, 4)}")
    return "\n".join(lines)


def _either(words: Sequence[str]) -> str:
    return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _listed(words: Sequence[str], most: int = SHOWN) -> str:
    more = ", ..." if len(words) > most else ""
    return ", ".join(words[:most]) + more
