"""A site that a model was not trained on: statistics from its own slides."""

from dataclasses import replace

from spt_core.errors import InputError
from spt_core.learning.cohort import Cohort
from spt_core.learning.model_card import SITE
from spt_core.learning.model_file import SlideModel
from spt_core.learning.standardising import (
    FEWEST_SLIDES,
    Standardiser,
    site_scales,
)


def add_site(
    model: SlideModel, site: str, slides: Cohort, *, replace_known: bool = False
) -> tuple[SlideModel, list[str]]:
    """The model with a site's statistics, and what to say of them.

    Parameters
    ----------
    slides
        All of the site, whatever their labels say.
    """
    before = model.standardiser
    if before.kind != SITE:
        raise InputError(
            "This model does not standardise tokens per site, so that it has no use "
            "for another one. 'spt train --standardise site' makes one that does."
        )
    if not site:
        raise InputError("Give the site a name.")
    if site in before.scales and not replace_known:
        raise InputError(
            f"The model knows the site {site} already. Choose another name, or measure "
            "it again with --replace."
        )
    model.refuse_unlike(slides.facts, slides.dim)
    facts, scales = site_scales(replace(slide, site=site) for slide in slides)
    kept = [one for one in before.card.sites if one.name != site]
    sites = (*kept, *(replace(one, added=True) for one in facts))
    after = Standardiser(replace(before.card, sites=sites), {**before.scales, **scales})
    notes = []
    if len(slides) < FEWEST_SLIDES:
        few = "1 slide" if len(slides) == 1 else f"{len(slides)} slides"
        notes.append(
            f"From {few} the site's mean and spread are as much of the tissue as of "
            f"the scanner: {FEWEST_SLIDES} or more are better."
        )
    return model.standardised_by(after), notes
