"""Slides: opening, the lazy pyramid, and what may be said about a file."""

from spt_core.slides.array_source import is_ome_zarr
from spt_core.slides.names import SLIDE_ENDINGS, is_slide_name, slide_name
from spt_core.slides.opening import open_slide
from spt_core.slides.slide import Slide
from spt_core.slides.source import UnreadableRegionError

__all__ = [
    "SLIDE_ENDINGS",
    "Slide",
    "UnreadableRegionError",
    "is_ome_zarr",
    "is_slide_name",
    "open_slide",
    "slide_name",
]
