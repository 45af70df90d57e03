"""Where a slide's patches lie and how large they are, from the slide or its tokens."""

from dataclasses import dataclass

from spt_core.slides.slide import Slide
from spt_core.tokens.tokens import TokenFacts

STATED_BY_USER = "as stated by the user; the file does not say"
STATED_BY_FEATURES = "as the features state"


@dataclass(frozen=True)
class Geometry:
    """What exports need to know of a slide.

    Attributes
    ----------
    um_pixel_xy
        Micrometres a level-0 pixel (x, y), None where nobody says.
    l0_bounds_xy
        Where the scanned part begins: QuPath counts from there.
    um_note
        Who says the pixel size, where it is not the slide's file.
    """

    um_pixel_xy: tuple[float, float] | None
    l0_bounds_xy: tuple[int, int] = (0, 0)
    um_note: str = ""

    @classmethod
    def of(
        cls, facts: TokenFacts, slide: Slide | None, *, stated_by_user: bool = False
    ) -> "Geometry":
        """Of an open slide, else of its tokens.

        ``stated_by_user`` where the slide's pixel size is its user's word.
        """
        l0_bounds_xy = (0, 0) if slide is None else slide.bounds[:2]
        if slide is not None and slide.mpp_xy is not None:
            note = STATED_BY_USER if stated_by_user else ""
            return cls(slide.mpp_xy, l0_bounds_xy, note)
        um = _from_patch(facts)
        return cls(um, l0_bounds_xy, STATED_BY_FEATURES if um else "")


def _from_patch(facts: TokenFacts) -> tuple[float, float] | None:
    um, l0_patch = facts.patch_um, facts.l0_patch_xy
    if um is None or l0_patch is None:
        return None
    return um / l0_patch[0], um / l0_patch[1]
