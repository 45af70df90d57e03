"""Which layers are slides, and what of a plain picture must be known to be one."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from napari.layers import Image, Layer

from napari_spt.analysis.state import SlideSource

if TYPE_CHECKING:
    from napari.viewer import Viewer

# Below this side nothing on a picture is tissue.
SMALLEST = 64
_UM = {"micrometer": 1.0, "millimeter": 1000.0, "nanometer": 0.001}


def slide_layers(viewer: "Viewer") -> list[Layer]:
    """Layers that can be analysed, the topmost last."""
    return [layer for layer in viewer.layers if slide_source(layer) is not None]


def slide_source(layer: Layer | None) -> SlideSource | None:
    """A layer as a slide; None where it is none."""
    if not isinstance(layer, Image):
        return None
    facts = layer.metadata.get("spt") or {}
    if facts.get("path"):
        mpp_xy = facts.get("mpp_xy")
        return SlideSource(
            layer.name,
            Path(facts["path"]),
            None if mpp_xy is None else (float(mpp_xy[0]), float(mpp_xy[1])),
            _pair(facts["dimensions"]),
            _pair(facts["bounds"]),
        )
    if not layer.rgb or layer.ndim != 2:
        return None
    height, width = _pixels(layer).shape[:2]
    if min(height, width) < SMALLEST:
        return None
    return SlideSource(layer.name, None, _stated_size(layer), (width, height))


def picture_pixels(layer: Image) -> np.ndarray:
    """The pixels of a plain picture, (y, x, 3) uint8."""
    pixels = np.asarray(_pixels(layer))[..., :3]
    if pixels.dtype == np.uint8:
        return pixels
    if pixels.dtype.kind == "f":
        return np.clip(pixels * 255 + 0.5, 0, 255).astype(np.uint8)
    return (pixels // 257).astype(np.uint8)


def key_of(layer: Layer) -> str:
    """What our maps of a slide are known by: its file, or the layer itself."""
    source = slide_source(layer)
    if source is not None and source.path is not None:
        return str(source.path)
    return f"picture {layer.unique_id}"


def _pixels(layer: Image) -> Any:
    return layer.data[0] if layer.multiscale else layer.data


def _stated_size(layer: Image) -> tuple[float, float] | None:
    """Micrometres a pixel, where somebody gave the layer a scale in such a unit."""
    factors = [_UM.get(str(unit)) for unit in layer.units[-2:]]
    if None in factors:
        return None
    y, x = (s * f for s, f in zip(layer.scale[-2:], factors, strict=True))
    return float(x), float(y)


def _pair(values: Any) -> tuple[int, int]:
    return int(values[0]), int(values[1])
