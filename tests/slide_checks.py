"""What must be true of any slide, made for a test or real."""

import numpy as np
import openslide

from spt_core import open_slide


def check_pyramid(slide):
    """Levels, sizes and steps of a slide agree with one another."""
    x, y, w, h = slide.bounds
    width, height = slide.dimensions
    assert 0 <= x < x + w <= width
    assert 0 <= y < y + h <= height
    assert slide.pyramid[0].shape == (height, width, 3)
    for array, level in zip(slide.pyramid, slide.levels, strict=True):
        assert array.shape == (level.height, level.width, 3)
        assert array.dtype == np.uint8
    assert max(slide.pyramid[-1].shape) <= 2048
    steps = np.array(slide.level_downsamples)
    assert len(steps) == len(slide.pyramid)
    assert steps[0] == 1
    assert (np.diff(steps) > 0).all()


def check_against_openslide(path):
    """Each level of the file reads as openslide itself reads it."""
    slide = open_slide(path)
    for index, level in enumerate(slide.levels):
        if level.is_made:
            continue
        array = slide.pyramid[index]
        step = slide._source.level_downsamples[level.file_level]
        for x, y, w, h in _regions(level.width, level.height):
            got = np.asarray(array[y : y + h, x : x + w]).astype(float)
            reference = _openslide_read(slide.path, level.file_level, x, y, w, h)
            if step == round(step):
                np.testing.assert_allclose(got, reference, atol=1)
        # openslide interpolates wherever a level's downsample is not a whole number,
        # except from the origin: there it gives the file's own pixels.
        w, h = min(level.width, 1400), min(level.height, 1200)
        corner = _openslide_read(slide.path, level.file_level, 0, 0, w, h)
        got = np.asarray(array[:h, :w])
        if level.file_level in slide._source._tiles:
            np.testing.assert_allclose(got, corner, atol=1)
        else:
            assert np.abs(got - corner).mean() < 2


def _regions(width, height):
    """Corners, a piece across chunk borders, and one far inside."""
    w, h = min(width, 300), min(height, 200)
    yield from ((0, 0, w, h), (width - w, height - h, w, h))
    yield max(0, min(400, width - w)), max(0, min(430, height - h)), w, h


def _openslide_read(path, level, x, y, w, h):
    """What openslide itself gives, on white paper."""
    with openslide.OpenSlide(path) as slide:
        step = slide.level_downsamples[level]
        rgba = slide.read_region((round(x * step), round(y * step)), level, (w, h))
    alpha = np.asarray(rgba)[..., 3:] / 255
    return np.asarray(rgba)[..., :3] * alpha + 255 * (1 - alpha)
