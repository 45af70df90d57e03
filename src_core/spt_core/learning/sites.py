"""Which site a slide is of, and what that means for a run: decided once, and said."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from spt_core.errors import InputError
from spt_core.learning.cohort import Cohort
from spt_core.learning.finding_sites import find_sites
from spt_core.learning.model_card import (
    FOUND,
    LABELS,
    NONE,
    SCANNER,
    SITE,
    SLIDE,
    Metrics,
    Standardising,
)
from spt_core.learning.settings import (
    ALL,
    BASELINES,
    NEGATIVES_PER_SITE,
    USUAL_BATCH,
    TrainSettings,
)
from spt_core.learning.standardising import (
    FEWEST_SLIDES,
    Standardiser,
    fit_standardiser,
    standardised,
)
from spt_core.training.signals import AskedOf, tells_site_better

SHOWN = 12
# From fewer, what neighbours tell of a site may be anything.
FEWEST_PATIENTS = 10
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


def with_found_sites(
    cohort: Cohort, settings: TrainSettings, start: Standardising | None = None
) -> Cohort:
    """The same slides with sites that are guessed, if that was asked.

    Groups of their mean tokens, or slides of one kind of scanner.

    Parameters
    ----------
    start
        Of the model that the run begins from, which knows where its slides are from.
    """
    known = [None if start is None else start.known_site(s.facts) for s in cohort]
    names: Sequence[str | None]
    if settings.sites == FOUND:
        names = _groups(cohort, settings.seed, known, start)
    elif settings.sites == SCANNER:
        names = _scanners(cohort)
    else:
        names = [s.site or site for s, site in zip(cohort, known, strict=True)]
    slides = [
        replace(slide, site=site) for slide, site in zip(cohort, names, strict=True)
    ]
    return replace(cohort, slides=slides)


def _groups(
    cohort: Cohort, seed: int, known: list[str | None], start: Standardising | None
) -> list[str | None]:
    """Groups keep their names; those of new slides get names that none has."""
    if start is None or start.sites_from != FOUND:
        return list(find_sites(cohort, seed=seed))
    new = [index for index, site in enumerate(known) if site is None]
    if new:
        found = find_sites(cohort.subset(new), seed=seed, named=len(start.sites))
        for index, site in zip(new, found, strict=True):
            known[index] = site
    return known


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

    Statistics are of the slides that are learned from, and of those that would be if
    they had a label. Slides to validate on of other sites are measured by those of
    their own, whose labels are not looked at.

    Parameters
    ----------
    start
        Of the model that the run begins from.
    resumed
        Runs that were begun before there was a choice go on without.
    """
    notes: list[str] = []
    kind = settings.standardise
    measured = _measured(cohort, learned_from)
    if kind is None:
        kind = NONE if resumed else usual_kind(measured, notes, start)
    elif start is not None and kind != start.kind:
        notes.append(
            f"The model that this run starts from takes tokens {_HOW[start.kind]}, "
            f"this one {_HOW[kind]}: it has to learn them anew."
        )
    by = fit_standardiser(kind, measured, settings.sites or LABELS)
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
            ALL
            if resumed
            else usual_negatives(
                settings.objective,
                kind,
                learned_from,
                batch_size=settings.batch_size,
                site_batches=settings.site_batches,
            )
        )
        if negatives == SITE:
            notes.append("Slides are kept apart from others of their site alone.")
    settings = replace(settings, standardise=kind, negatives=negatives)
    _check_batches(settings, learned_from)
    if settings.negatives == SITE:
        notes += _without_negatives(learned_from)
    everywhere = by.with_sites_of(cohort)
    if settings.sites == FOUND:
        by = by.recognising(cohort)  # who can say of which group a slide was?
    return Settled(
        settings,
        by,
        standardised(cohort, everywhere),
        standardised(learned_from, by),
        tuple(notes),
    )


def _measured(cohort: Cohort, learned_from: Cohort) -> Cohort:
    """The slides that statistics are of: labels have no part in them."""
    learned = {slide.name for slide in learned_from}
    return cohort.subset(
        index
        for index, slide in enumerate(cohort)
        if slide.name in learned
        or (slide.site and not slide.label and slide.split in (None, "train"))
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
                "all slides have one: fill in the column 'site' of the labels, give "
                "--sites found or scanner, or choose --standardise slide or no."
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
        why = (
            "each site has slides of one class alone, so that nobody can tell whether "
            "a model knows the class or the site"
        )
        way = (
            "Add slides of several classes from one site, and believe no score until "
            "then; --standardise site would take the class out too."
        )
    if why is None:
        return SITE
    notes.append(f"Tokens are not standardised per site: {why}. {way}")
    return NONE


def usual_negatives(
    objective: str,
    kind: str,
    cohort: Cohort,
    *,
    batch_size: int | None = None,
    site_batches: bool = False,
) -> str:
    """Whom SimCLR keeps slides apart from where nobody says.

    Slides of one site differ by their tissue alone: among them the scanner is nothing
    to tell them apart by, which statistics of first order do not take out wholly. A
    batch must hold enough slides of a site.
    """
    if objective != "simclr" or kind != SITE:
        return ALL
    sites = {slide.site for slide in cohort}
    at_once = len(cohort)
    if not site_batches:
        at_once = min(at_once, batch_size or USUAL_BATCH)
    enough = at_once >= NEGATIVES_PER_SITE * len(sites)
    return SITE if enough and len(_sites_of_one_patient(cohort)) < len(sites) else ALL


def _sites_of_one_patient(cohort: Cohort) -> list[str]:
    """Sites where no slide has one of another patient beside it."""
    pairs = set(zip((s.site for s in cohort), cohort.patients(), strict=True))
    patients = Counter(site for site, _ in pairs if site)
    return sorted(site for site, count in patients.items() if count == 1)


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


def _without_negatives(cohort: Cohort) -> Iterator[str]:
    """Slides that are kept apart from no other, and so teach next to nothing."""
    alone = _sites_of_one_patient(cohort)
    if not alone:
        return
    if len(alone) == len({slide.site for slide in cohort}):
        raise InputError(
            "No site has slides of two patients: with --negatives site no slide is "
            "kept apart from any other, and nothing is learned. Choose --negatives all."
        )
    yield (
        f"These sites have slides of one patient alone: {_listed(alone)}. They are "
        "kept apart from no other slides, and teach next to nothing."
    )


def site_wins(metrics: Metrics, settings: TrainSettings, asked: AskedOf) -> str:
    """What to do where neighbours share the site sooner than the class; else empty.

    Nothing is said where too few patients were asked, nor where the site is told no
    better than the class but for being one of fewer: chance alone tells it then.
    """
    knn, site = metrics.knn, metrics.site_knn
    if knn is None or site is None:
        return ""
    if asked.patients < FEWEST_PATIENTS:
        return ""
    if not tells_site_better(site, asked.sites, knn, asked.classes):
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
