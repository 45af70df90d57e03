"""Showing any number of channels, of any number type, as RGB."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spt_core.slides.source import Pixels

# Blue first, because the first fluorescence channel is nearly always the nuclei.
_COLOURS = (
    (0, 0, 255),
    (0, 255, 0),
    (255, 0, 0),
    (255, 255, 0),
    (255, 0, 255),
    (0, 255, 255),
    (255, 255, 255),
)


@dataclass(frozen=True)
class ChannelView:
    """How channels become colours.

    ``direct`` pixels are already 8-bit RGB. Others are stretched from ``windows``
    (low, high), one per channel, and added up in their ``colours``.
    """

    direct: bool
    windows: tuple[tuple[float, float], ...] = ()
    colours: tuple[tuple[int, int, int], ...] = ()

    @classmethod
    def learn(
        cls,
        overview: NDArray,
        *,
        colours: Sequence[tuple[int, int, int]] | None = None,
    ) -> "ChannelView":
        """Choose a view from a coarse ``(y, x, c)`` image of the whole slide."""
        channels = overview.shape[-1]
        if channels == 3 and overview.dtype == np.uint8:
            return cls(direct=True)
        if channels == 3 and colours is None:
            # One window for all three keeps the balance of the colours.
            colours = ((255, 0, 0), (0, 255, 0), (0, 0, 255))
            windows = [_window(overview, low=None)] * 3
        else:
            windows = [_window(overview[..., c], low=1.0) for c in range(channels)]
        if colours is None:
            colours = (
                ((255, 255, 255),)
                if channels == 1
                else [_COLOURS[c % len(_COLOURS)] for c in range(channels)]
            )
        return cls(direct=False, windows=tuple(windows), colours=tuple(colours))

    def rgb(self, pixels: NDArray) -> Pixels:
        """Turn ``(y, x, c)`` into ``(y, x, 3)`` uint8."""
        if self.direct:
            return np.ascontiguousarray(pixels[..., :3])
        total = np.zeros((*pixels.shape[:2], 3), np.float32)
        for c, (low, high) in enumerate(self.windows):
            share = (pixels[..., c].astype(np.float32) - low) / max(high - low, 1e-9)
            np.clip(share, 0, 1, out=share)
            total += share[..., None] * np.asarray(self.colours[c], np.float32)
        return np.clip(total + 0.5, 0, 255).astype(np.uint8)


def _window(values: NDArray, *, low: float | None) -> tuple[float, float]:
    if values.dtype == np.uint8:
        return 0.0, 255.0
    finite = values[np.isfinite(values)]
    if finite.size == 0:
        return 0.0, 1.0
    high = float(np.percentile(finite, 99.9))
    bottom = 0.0 if low is None else float(np.percentile(finite, low))
    return (bottom, high) if high > bottom else (bottom, bottom + 1.0)
