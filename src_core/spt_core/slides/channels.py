"""Showing any number of channels, of any number type, as RGB."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spt_core.slides.channel_facts import RGB, ChannelFacts, srh_channels
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
# Added to CH3 - CH2, so that little falls below nothing.
_SRH_BASE = 5000 / 65536


@dataclass(frozen=True)
class ChannelView:
    """How channels become colours.

    ``direct`` pixels are already 8-bit RGB. Others are stretched from ``windows``
    (low, high), one per channel, and added up in their ``colours``. With ``srh``, the
    numbers of CH2 and CH3, they are shown as stimulated Raman histology is by those who
    train on it: CH3 - CH2 + 5000, CH2 and CH3 of 65,536 as red, green and blue.
    ``chosen`` are the numbers of one to three channels, stretched and taken as red,
    green and blue; one alone is grey, and where there are two, blue is nothing.
    """

    direct: bool
    windows: tuple[tuple[float, float], ...] = ()
    colours: tuple[tuple[int, int, int], ...] = ()
    srh: tuple[int, int] | None = None
    chosen: tuple[int, ...] = ()

    @classmethod
    def learn(
        cls,
        overview: NDArray,
        *,
        channels: Sequence[ChannelFacts] = (),
        srh: tuple[int, int] | None = None,
        chosen: tuple[int, ...] = (),
    ) -> "ChannelView":
        """Choose a view from a coarse ``(y, x, c)`` image of the whole slide.

        ``channels`` is what the file says of them, empty for a picture in colour;
        ``srh`` and ``chosen`` are what somebody asks for.
        """
        count = overview.shape[-1]
        facts = channels or [ChannelFacts()] * count
        usual = [(255, 255, 255)] if count == 1 else _COLOURS
        colours = tuple(
            one.colour or usual[number % len(usual)] for number, one in enumerate(facts)
        )
        if chosen:
            is_dye = bool(channels)
            ranges = [
                _window(
                    overview[..., number], low=1.0 if is_dye else None, is_dye=is_dye
                )
                for number in range(count)
            ]
            return cls(False, tuple(ranges), colours, chosen=chosen)
        if not channels and count == 3 and overview.dtype == np.uint8:
            return cls(direct=True)
        if not channels and count == 3:
            # One window for all three keeps the balance of the colours.
            return cls(False, (_window(overview, low=None),) * 3, RGB)
        windows = tuple(
            one.limits or _window(overview[..., number], low=1.0, is_dye=bool(channels))
            for number, one in enumerate(facts)
        )
        if srh is None and overview.dtype == np.uint16:
            srh = srh_channels(facts)
        return cls(False, windows, colours, srh)

    def rgb(self, pixels: NDArray) -> Pixels:
        """Turn ``(y, x, c)`` into ``(y, x, 3)`` uint8."""
        if self.direct:
            return np.ascontiguousarray(pixels[..., :3])
        if self.srh is not None:
            ch2, ch3 = (pixels[..., n].astype(np.float32) / 65536 for n in self.srh)
            light = np.stack([ch3 - ch2 + _SRH_BASE, ch2, ch3], axis=-1)
            return (np.clip(light, 0, 1) * 255 + 0.5).astype(np.uint8)
        total = np.zeros((*pixels.shape[:2], 3), np.float32)
        if self.chosen:
            for place, c in enumerate(self.chosen):
                total[..., place] = 255 * self._share(pixels, c)
            return pick((total + 0.5).astype(np.uint8), range(len(self.chosen)))
        for c in range(len(self.windows)):
            share = self._share(pixels, c)
            total += share[..., None] * np.asarray(self.colours[c], np.float32)
        return np.clip(total + 0.5, 0, 255).astype(np.uint8)

    def _share(self, pixels: NDArray, channel: int) -> NDArray[np.float32]:
        """How far a channel is within its window, 0 to 1."""
        low, high = self.windows[channel]
        share = (pixels[..., channel].astype(np.float32) - low) / max(high - low, 1e-9)
        np.clip(share, 0, 1, out=share)
        if pixels.dtype.kind == "f":  # what is no number is dark
            np.nan_to_num(share, copy=False)
        return share


def pick(rgb: Pixels, chosen: Sequence[int]) -> Pixels:
    """Some channels of ``(y, x, 3)`` as red, green and blue; one alone is grey."""
    if len(chosen) == 1:
        return np.repeat(rgb[..., chosen[0] : chosen[0] + 1], 3, axis=-1)
    out = np.zeros_like(rgb)
    for place, number in enumerate(chosen):
        out[..., place] = rgb[..., number]
    return out


def _window(
    values: NDArray, *, low: float | None, is_dye: bool = False
) -> tuple[float, float]:
    """The range to show; the brightness of a dye says nothing by itself."""
    if values.dtype == np.uint8 and not is_dye:
        return 0.0, 255.0
    finite = values[np.isfinite(values)]
    if finite.size == 0:
        return 0.0, 1.0
    high = float(np.percentile(finite, 99.9))
    bottom = 0.0 if low is None else float(np.percentile(finite, low))
    return (bottom, high) if high > bottom else (bottom, bottom + 1.0)
