"""How much views of a patch may differ; plain data."""

from dataclasses import dataclass
from typing import Annotated

from spt_core.hints import Hint, check


def _change(what: str) -> Hint:
    return Hint(f"largest relative change of {what}", minimum=0)


@dataclass(frozen=True)
class Augmentation:
    """How much views differ."""

    scale: Annotated[
        tuple[float, float],
        Hint(
            "pixel sizes of views, as multiples of the patches'",
            above=0,
            is_range=True,
        ),
    ] = (0.7, 1.4)
    stretch: Annotated[float, _change("width against height")] = 0.15
    stain: Annotated[
        float,
        Hint(
            "largest relative change of each stain's strength; a quarter of it is "
            "added or taken away as well",
            minimum=0,
        ),
    ] = 0.2
    brightness: Annotated[float, _change("brightness")] = 0.2
    contrast: Annotated[float, _change("contrast")] = 0.2
    saturation: Annotated[float, _change("saturation")] = 0.2
    hue: Annotated[
        float,
        Hint(
            "largest turn of the hue",
            minimum=0,
            unit="degrees",
            digits=1,
            metavar="DEGREES",
        ),
    ] = 8.0
    grey: Annotated[
        float,
        Hint(
            "share of views without colour",
            minimum=0,
            maximum=1,
            metavar="SHARE",
        ),
    ] = 0.0
    blur: Annotated[
        float,
        Hint("share of blurred views", minimum=0, maximum=1, metavar="SHARE"),
    ] = 0.25
    blur_px: Annotated[
        float,
        Hint(
            "largest standard deviation of the blur",
            label="Largest blur",
            minimum=0,
            unit="px",
            metavar="PX",
        ),
    ] = 1.5

    def __post_init__(self) -> None:
        check(self)
