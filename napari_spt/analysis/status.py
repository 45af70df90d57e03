"""What the status bar says of the place under the mouse."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from napari.layers import Layer
from numpy.typing import NDArray

from napari_spt.analysis.lattice import Lattice
from napari_spt.parts.notices import for_napari

_PLAIN = "_spt_plain_status"


@dataclass(frozen=True, eq=False)
class HoverTable:
    """All that is known of every place, made ready: the status is asked for often.

    Attributes
    ----------
    times : (rows, cols)
        Attention in times average, NaN where there is none.
    shares : (rows, cols, k) or None
        Class probabilities.
    kinds : (rows, cols) or None
        Numbers of kinds of tissue, NaN where there is none.
    """

    slide: Layer
    lattice: Lattice
    mpp_xy: tuple[float, float] | None
    times: NDArray[np.float32] | None = None
    shares: NDArray[np.float32] | None = None
    classes: tuple[str, ...] = ()
    kinds: NDArray[np.float32] | None = None
    kind_names: tuple[str, ...] = ()

    def words(self, world_yx: Sequence[float]) -> str:
        row, col = self.lattice.cell(self.slide, world_yx)
        said = []
        times = _at(self.times, row, col)
        if times is not None and np.isfinite(times):
            said.append(f"looked at {float(times):.1f} × average")
        shares = _at(self.shares, row, col)
        if shares is not None:
            if np.isfinite(shares).all():
                best = int(np.argmax(shares))
                said.append(f"{self.classes[best]} {float(shares[best]):.0%}")
            elif times is not None and np.isfinite(times):
                said.append("class unsure")
        kind = _at(self.kinds, row, col)
        if kind is not None and np.isfinite(kind):
            said.append(self.kind_names[int(kind)])
        if not said and self.times is not None:
            said.append("not looked at")
        said.append(self._place(world_yx))
        return ", ".join(said)

    def _place(self, world_yx: Sequence[float]) -> str:
        x, y = self.lattice.l0(self.slide, world_yx)
        if self.mpp_xy is None:
            return f"at x {x:.0f}, y {y:.0f} pixels"
        um_x, um_y = self.mpp_xy
        return f"at x {x * um_x / 1000:.2f}, y {y * um_y / 1000:.2f} mm"


def _at(values: NDArray | None, row: int, col: int) -> Any:
    if values is None or not (0 <= row < len(values) and 0 <= col < values.shape[1]):
        return None
    return values[row, col]


def show_hover(layer: Layer, table: Callable[[], HoverTable | None]) -> None:
    """Let the status bar say what is known of the place under the mouse.

    A patch for napari 0.7 to 0.9 and later: its image layers have no ``features``, the
    only content of the status bar that plugins may add to.
    """
    if not hasattr(layer, _PLAIN):
        setattr(layer, _PLAIN, layer.get_status)
    plain = getattr(layer, _PLAIN)

    def status(position: Any = None, **options: Any) -> dict[str, str]:
        known = table()
        if known is None or position is None or not options.get("world"):
            return plain(position, **options)
        words = for_napari(known.words(np.asarray(position)[-2:]))
        return {
            "layer_name": for_napari(layer.name),
            "layer_base": for_napari(layer.name),
            "source_type": "",
            "plugin": "",
            "coordinates": words,
            "coords": "",
            "value": words,
        }

    layer.get_status = status


def restore_status(layer: Layer) -> None:
    """Give a layer napari's own status back."""
    if hasattr(layer, _PLAIN):
        del layer.get_status
        delattr(layer, _PLAIN)
