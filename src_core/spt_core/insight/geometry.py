"""Where a slide's patches lie and how large they are, from the slide or its tokens."""

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from spt_core.tokens.tokens import TokenFacts

if TYPE_CHECKING:
    from spt_core.slides.slide import Slide


class PixelSizeFrom(StrEnum):
    """Where a pixel size comes from."""

    FILE = "file"
    USER = "user"
    FEATURES = "features"


@dataclass(frozen=True)
class Geometry:
    """What exports need to know of a slide.

    Attributes
    ----------
    um_pixel_xy
        Micrometres per level-0 pixel (x, y), None where they are unknown.
    l0_bounds_xy
        Where the scanned part begins: QuPath counts from there.
    """

    um_pixel_xy: tuple[float, float] | None
    l0_bounds_xy: tuple[int, int] = (0, 0)
    um_from: PixelSizeFrom = PixelSizeFrom.FILE

    @classmethod
    def of(
        cls, facts: TokenFacts, slide: "Slide | None", *, mpp_from_user: bool = False
    ) -> "Geometry":
        """Of an open slide, else of its tokens.

        ``mpp_from_user`` where the user entered the slide's pixel size.
        """
        l0_bounds_xy = (0, 0) if slide is None else slide.bounds[:2]
        if slide is not None and slide.mpp_xy is not None:
            um_from = PixelSizeFrom.USER if mpp_from_user else PixelSizeFrom.FILE
            return cls(slide.mpp_xy, l0_bounds_xy, um_from)
        return cls(_from_patch(facts), l0_bounds_xy, PixelSizeFrom.FEATURES)


def _from_patch(facts: TokenFacts) -> tuple[float, float] | None:
    um, l0_patch = facts.patch_um, facts.l0_patch_xy
    if um is None or l0_patch is None:
        return None
    return um / l0_patch[0], um / l0_patch[1]
