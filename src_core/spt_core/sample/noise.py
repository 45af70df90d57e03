"""Randomness that depends on the position alone, so that neighbouring blocks agree.

Hashes stand in for a random generator wherever a block is painted: the same place of
the same slide gives the same number, whichever block asks and in whatever order.
"""

from functools import lru_cache

import numpy as np
import scipy.fft
from numpy.typing import NDArray
from PIL import Image

Floats = NDArray[np.floating]  # float32 wherever a block is painted
# Textures in use: few, each cut at many offsets, because they take memory.
FINE = (12, 14.0, 3.0)
MIDDLE = (16, 120.0, 12.0)
SLOW = (31, 140.0, 22.0)
ROUGH = (11, 90.0, 5.0)
PERIOD = 1024  # a texture repeats after this many pixels

_MIX = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_STEP = 0x9E3779B97F4A7C15


def mix(*keys: int | NDArray[np.integer]) -> NDArray[np.uint64]:
    """Hash integers (arrays broadcast against each other) to 64 bits: splitmix64."""
    state = np.zeros(np.broadcast_shapes(*(np.shape(k) for k in keys)), np.uint64)
    with np.errstate(over="ignore"):
        for key in keys:
            state = state ^ np.asarray(key).astype(np.int64).astype(np.uint64)
            state = state + np.uint64(_STEP)
            state = (state ^ (state >> np.uint64(30))) * np.uint64(_MIX[0])
            state = (state ^ (state >> np.uint64(27))) * np.uint64(_MIX[1])
            state = state ^ (state >> np.uint64(31))
    return state


def uniform(*keys: int | NDArray[np.integer]) -> Floats:
    """Hash integers to float32 in [0, 1)."""
    return ((mix(*keys) >> np.uint64(40)).astype(np.float32)) * np.float32(2**-24)


def repeated(texture: NDArray) -> NDArray:
    """Repeat 5/8 of a texture at its end, so that windows need no copy."""
    more = len(texture) * 5 // 8
    sides = [(0, more), (0, more)] + [(0, 0)] * (texture.ndim - 2)
    return np.pad(texture, sides, mode="wrap")


def window(texture: NDArray, top: int, left: int, height: int, width: int) -> NDArray:
    """A window of a ``repeated`` texture, as if it went on forever; a view."""
    period = len(texture) * 8 // 13
    top, left = top % period, left % period
    return texture[top : top + height, left : left + width]


def somewhere(texture: NDArray, side: int, rng: np.random.Generator) -> NDArray:
    """A square window of a ``repeated`` texture, anywhere."""
    top, left = rng.integers(0, len(texture) * 8 // 13, 2).tolist()
    return window(texture, top, left, side, side)


def enlarge(
    field: Floats,
    box: tuple[float, float, float, float],
    size: tuple[int, int],
    *,
    smooth: bool = False,
) -> Floats:
    """Enlarge ``box`` (left, top, right, bottom) of a field to ``size`` (w, h)."""
    image = Image.fromarray(np.ascontiguousarray(field, dtype=np.float32))
    how = Image.Resampling.BICUBIC if smooth else Image.Resampling.BILINEAR
    return np.array(image.resize(size, how, box=box))


def _standard(field: NDArray) -> Floats:
    field = field - field.mean()
    return (field / field.std()).astype(np.float32)


def _frequencies(period: int) -> tuple[NDArray, NDArray]:
    fy = scipy.fft.fftfreq(period)[:, None].astype(np.float32)
    fx = scipy.fft.rfftfreq(period)[None, :].astype(np.float32)
    return fy, fx


def _filtered(seed: int, response: NDArray) -> Floats:
    shape = (len(response), len(response))
    white = np.random.default_rng(seed).standard_normal(shape, np.float32)
    spectrum = scipy.fft.rfft2(white) * response
    return _standard(scipy.fft.irfft2(spectrum, shape))


@lru_cache(maxsize=16)
def cloud(
    seed: int,
    longest: float,
    shortest: float,
    slope: float = 1.0,
    period: int = PERIOD,
) -> Floats:
    """Isotropic noise with wavelengths between two limits, in pixels; for window()."""
    fy, fx = _frequencies(period)
    f = np.hypot(fy, fx)
    band = np.exp(-((f * shortest) ** 2)) * (1 - np.exp(-((f * longest) ** 2)))
    return repeated(_filtered(seed, band / np.maximum(f, 1 / period) ** slope))


def strands(seed: int, width: float, length: float) -> Floats:
    """Noise drawn out along x: strands of ``width`` by ``length`` pixels."""
    fy, fx = _frequencies(PERIOD)
    across = np.exp(-((fy * width * 2.2) ** 2)) * (1 - np.exp(-((fy * width * 9) ** 2)))
    return _filtered(seed, across * np.exp(-((fx * length * 2.2) ** 2)))


def fractal(
    shape: tuple[int, int],
    rng: np.random.Generator,
    feature: float,
    octaves: int = 4,
    gain: float = 0.5,
) -> Floats:
    """Smooth random field, features of about ``feature`` pixels at the coarsest."""
    height, width = shape
    total = np.zeros(shape, np.float32)
    for octave in range(octaves):
        cell = max(feature / 2**octave, 1.0)
        grid = rng.standard_normal((int(height / cell) + 4, int(width / cell) + 4))
        box = (1.0, 1.0, 1.0 + width / cell, 1.0 + height / cell)
        total += gain**octave * enlarge(
            grid.astype(np.float32), box, (width, height), smooth=True
        )
    return _standard(total)
