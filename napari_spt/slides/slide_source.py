"""Which layers are slides: files that we read, and colour images in memory."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from napari.layers import Image, Layer
    from napari.viewer import Viewer

# On images with a side below this there is no tissue to see.
SMALLEST = 64
# Of a scan at 20x, for slides that do not say it, beside others that do.
USUAL_MPP = 0.5
_UM_PER_UNIT = {"micrometer": 1.0, "millimeter": 1000.0, "nanometer": 0.001}


@dataclass(frozen=True)
class SlideSource:
    """A slide as a layer shows it.

    Attributes
    ----------
    path
        None for an image that exists in the window alone.
    mpp_xy
        Micrometres per level-0 pixel, None where neither file nor layer states it.
    l0_size_xy, l0_bounds_xy
        Size of the canvas, and where on it the layer's first pixel lies.
    doubted_mpp_xy
        What the file says of its pixels, where that is not believed.
    in_channels
        Whether the file has channels rather than colours.
    """

    name: str
    path: Path | None
    mpp_xy: tuple[float, float] | None
    l0_size_xy: tuple[int, int]
    l0_bounds_xy: tuple[int, int] = (0, 0)
    doubted_mpp_xy: tuple[float, float] | None = None
    in_channels: bool = False


def slide_layers(viewer: "Viewer") -> list["Layer"]:
    """Layers that can be analysed, the topmost last; of channels the first alone."""
    found, in_channels = [], set()
    for layer in viewer.layers:
        if slide_source(layer) is None:
            continue
        if "channel" in layer.metadata.get("spt", {}):
            if key_of(layer) in in_channels:
                continue
            in_channels.add(key_of(layer))
        found.append(layer)
    return found


def is_file_slide(layer: "Layer") -> bool:
    """Whether a slide is of a file that we read, not a picture of memory."""
    return bool(layer.metadata.get("spt", {}).get("path"))


def slide_source(layer: "Layer | None") -> SlideSource | None:
    """A layer as a slide; None where it is not one."""
    # Here, so that SlideSource can be used without napari.
    from napari.layers import Image

    if not isinstance(layer, Image):
        return None
    facts = layer.metadata.get("spt") or {}
    if facts.get("path"):
        mpp_xy, doubted = facts.get("mpp_xy"), facts.get("doubted_mpp_xy")
        return SlideSource(
            facts.get("name") or layer.name,
            Path(facts["path"]),
            None if mpp_xy is None else (float(mpp_xy[0]), float(mpp_xy[1])),
            _pair(facts["dimensions"]),
            _pair(facts["bounds"]),
            None if doubted is None else (float(doubted[0]), float(doubted[1])),
            "channel" in facts,
        )
    if not layer.rgb or layer.ndim != 2:
        return None
    height, width = _pixels(layer).shape[:2]
    if min(height, width) < SMALLEST:
        return None
    return SlideSource(layer.name, None, _stated_mpp(layer), (width, height))


def picture_pixels(layer: "Image") -> np.ndarray:
    """The pixels of an image in memory, (y, x, 3) uint8."""
    pixels = np.asarray(_pixels(layer))[..., :3]
    if pixels.dtype == np.uint8:
        return pixels
    if pixels.dtype.kind == "f":
        return np.clip(pixels * 255 + 0.5, 0, 255).astype(np.uint8)
    return (pixels // 257).astype(np.uint8)


def key_of(layer: "Layer") -> str:
    """Identifies a slide among our maps: its file, or else the layer itself."""
    source = slide_source(layer)
    if source is not None and source.path is not None:
        return str(source.path)
    return f"picture {layer.unique_id}"


def _pixels(layer: "Image") -> Any:
    return layer.data[0] if layer.multiscale else layer.data


def _stated_mpp(layer: "Image") -> tuple[float, float] | None:
    """Micrometres per pixel, where the layer's scale is in a unit of length."""
    factors = [_UM_PER_UNIT.get(str(unit)) for unit in layer.units[-2:]]
    if None in factors:
        return None
    y, x = (s * f for s, f in zip(layer.scale[-2:], factors, strict=True))
    return float(x), float(y)


def _pair(values: Any) -> tuple[int, int]:
    return int(values[0]), int(values[1])
