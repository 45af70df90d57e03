"""Stain normalisation of the pixels that an encoder is about to see."""

import torch
from torch import Tensor

from spt_core.devices import full_precision
from spt_core.slides import Slide
from spt_core.slides.grid import PatchGrid
from spt_core.slides.recipe import RGB_RECIPE
from spt_core.slides.stain import (
    LIGHT,
    NO_STAIN,
    NoStainsError,
    Stains,
    slide_stains,
)
from spt_core.slides.tissue import Tissue


class StainStep:
    """Converts pixels to the reference's stains, as ``Stains.normalised`` does.

    It belongs to one slide, and goes with that slide's batches to the encoder.
    """

    def __init__(self, stains: Stains) -> None:
        # (red, green, blue) @ this; float32, because some devices have nothing wider.
        self._matrix = torch.tensor(stains.matrix.T, dtype=torch.float32)

    def __call__(self, pixels: Tensor) -> Tensor:
        """Convert float32 pixels (b, 3, h, w) of 0 to 255, ideally channels last."""
        # Half precision is too coarse for logarithms: a colour would drift.
        with full_precision(pixels.device):
            od = (pixels + 1).mul_(1 / LIGHT).log_().neg_()
            od = od.permute(0, 2, 3, 1) @ self._matrix.to(od.device)  # (b, h, w, 3)
            rgb = od.neg_().exp_().mul_(LIGHT).sub_(1).clamp_(0, 255)
        return rgb.permute(0, 3, 1, 2)


def stain_step(
    stain: str, title: str, slide: Slide, tissue: Tissue, grid: PatchGrid
) -> tuple[StainStep | None, list[str], str | None]:
    """What converts a slide's stains, or a message that says why nothing does.

    The last is what the slide's file states of it; None where nothing was asked for.

    It is not stored with unfinished work: the same slide and settings give it again.
    """
    if stain == NO_STAIN:
        return None, [], None
    try:
        if slide.recipe != RGB_RECIPE:
            raise NoStainsError("its colours are channels, not stains")
        return StainStep(slide_stains(slide, tissue, grid)), [], stain
    except NoStainsError as error:
        sentence = f"{title} is encoded in its own colours: {error}."
        return None, [sentence], f"{NO_STAIN}: {error}"
