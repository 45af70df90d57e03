"""The files of slides whose features are known, and small pictures of them."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from spt_core.errors import InputError
from spt_core.slides import open_slide, slide_name
from spt_core.slides.folders import slides_in
from spt_core.studies.study_settings import StudySettings
from spt_core.tokens import read_index

# Of a picture's longer side, in pixels.
SIDE = 112
# Not the pixels of a whole slide for a picture of that size.
_MOST_PIXELS = 4096 * 4096
_TISSUE, _GLASS = (150, 110, 150), (240, 240, 240)


def likely_folders(features: Path) -> list[Path]:
    """Where the slides of a folder of features may be."""
    found = []
    study = features.parent / "study.yaml"
    if study.exists():
        try:
            told = StudySettings.read(study).slides
        except (InputError, OSError):
            told = None
        if told:
            found.append(Path(told))
    found += [features.parent / "slides", features.parent]
    return [one for one in found if one.is_dir()]


def slide_files(folders: Iterable[Path]) -> dict[str, Path]:
    """The slides of some folders by their names; earlier folders come first."""
    found: dict[str, Path] = {}
    for folder in folders:
        try:
            for path in slides_in(folder):
                found.setdefault(slide_name(path), path)
        except OSError:
            continue
    return found


def picture_of(slide: Path | None, features: Path | None, side: int = SIDE) -> NDArray:
    """A slide at a glance, (h, w, 3); the shape of its tissue where no file is found.

    Of tissue alone: never a scanner's label or macro image.
    """
    if slide is not None:
        try:
            return _picture(slide, side)
        except (InputError, OSError):
            pass
    if features is None:
        raise InputError("Neither the slide nor its features are found.")
    return _shape(features, side)


def _picture(path: Path, side: int) -> NDArray:
    slide = open_slide(path, title=path.name)
    l0_x, l0_y, l0_w, l0_h = slide.bounds
    wanted = max(l0_w, l0_h) / side
    downsamples = slide.level_downsamples
    level = max(i for i, n in enumerate(downsamples) if i == 0 or n <= wanted)
    step = downsamples[level]
    width, height = max(1, int(l0_w / step)), max(1, int(l0_h / step))
    if width * height > _MOST_PIXELS:
        raise InputError("The slide has no small level.")
    pixels = slide.read(level, int(l0_x / step), int(l0_y / step), width, height)
    picture = Image.fromarray(pixels)
    picture.thumbnail((side, side))
    return np.asarray(picture)


def _shape(features: Path, side: int) -> NDArray:
    try:
        p = read_index(features).p
    except (InputError, OSError):
        p = np.zeros((0, 2), int)
    if len(p) == 0:
        return np.full((8, 8, 3), _GLASS, np.uint8)
    p = p - p.min(axis=0)
    rows, cols = p.max(axis=0) + 1
    picture = np.full((rows, cols, 3), _GLASS, np.uint8)
    picture[p[:, 0], p[:, 1]] = _TISSUE
    scale = side / max(rows, cols)
    size = (max(1, round(cols * scale)), max(1, round(rows * scale)))
    return np.asarray(Image.fromarray(picture).resize(size, Image.Resampling.NEAREST))
