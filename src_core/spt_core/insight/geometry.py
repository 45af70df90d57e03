"""Where a slide's patches lie and how large they are, from the slide or its tokens."""

from dataclasses import dataclass

from spt_core.slides.slide import Slide
from spt_core.tokens.tokens import TokenFacts


@dataclass(frozen=True)
class Geometry:
    """What exports need to know of a slide.

    Attributes
    ----------
    um_pixel_xy
        Micrometres a level-0 pixel (x, y), None where nobody says.
    l0_bounds_xy
        Where the scanned part begins: QuPath counts from there.
    """

    um_pixel_xy: tuple[float, float] | None
    l0_bounds_xy: tuple[int, int] = (0, 0)

    @classmethod
    def of(cls, facts: TokenFacts, slide: Slide | None) -> "Geometry":
        if slide is not None:
            return cls(slide.mpp_xy or _from_patch(facts), slide.bounds[:2])
        return cls(_from_patch(facts))


def _from_patch(facts: TokenFacts) -> tuple[float, float] | None:
    um, l0_patch = facts.patch_um, facts.l0_patch_xy
    if um is None or l0_patch is None:
        return None
    return um / l0_patch[0], um / l0_patch[1]
