"""Where the patches of an open slide are: by its features, or by its tissue."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from napari_spt.slides.slide_source import SlideSource
from spt_core.slides import open_slide, slide_name
from spt_core.slides.grid import lay_grid
from spt_core.slides.tissue import find_tissue
from spt_core.tokens import read_index
from spt_core.tokens.finding import features_in, name_of

MOST_READ = 60


@dataclass(frozen=True, eq=False)
class SlidePlaces:
    """
    Attributes
    ----------
    p : (n, 2)
        Grid (row, col), as training counts them.
    cells : (n, 2)
        The same on the lattice of the whole slide.
    l0_step_xy
        Level-0 pixels that a cell covers.
    number
        Of the slide in its folder of features; None where it is not in one.
    """

    p: NDArray[np.integer]
    cells: NDArray[np.integer]
    l0_step_xy: tuple[int, int]
    number: int | None = None


def find_places(
    source: SlideSource, features: Path | None, mpp: float | None = None
) -> SlidePlaces | None:
    """The patches of a slide; reads files, so not for the window's thread.

    None where it is in the window alone.
    """
    if source.path is None:
        return None
    files = feature_files(features)
    name = slide_name(source.path)
    for number, file in enumerate(files):
        if name_of(file) == name:
            index = read_index(file)
            step = index.facts.l0_step_xy or index.facts.l0_patch_xy
            if step is None or "xy" in index.facts.assumed:
                break  # nobody knows where on the slide they are
            cells = index.xy[:, ::-1] // np.asarray(step[::-1])
            return SlidePlaces(index.p, cells, step, number)
    slide = open_slide(source.path, title=source.name, mpp=mpp)
    grid = lay_grid(slide, find_tissue(slide), allow_upsampling=True)
    return SlidePlaces(grid.g_rc - grid.g_origin, grid.g_rc, grid.l0_step_xy)


def feature_files(features: Path | None) -> list[Path]:
    """The feature files of a folder, in the order in which training numbers them."""
    if features is None or not features.is_dir():
        return []
    return features_in(features)


def cohort_places(features: Path) -> list[NDArray[np.integer]]:
    """Grid places of some slides of a folder, evenly chosen."""
    files = feature_files(features)
    chosen = files[:: max(1, -(-len(files) // MOST_READ))]
    return [read_index(file).p for file in chosen]
