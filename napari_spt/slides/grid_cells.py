"""A patch: napari's grid gives each layer a cell of its own, a map beside its slide.

Versions: napari 0.9, where ``GridCanvas._viewbox_groups`` says which layers share a
cell. In others the grid stays as it is.
Upstream problem: layers share a cell by their number in the list alone (``stride``).
"""

from collections.abc import Callable, Sequence
from types import MethodType
from typing import Any

from napari.layers import Layer

_METHOD = "_viewbox_groups"

GroupOf = Callable[[Layer], object]


def can_share_cells(grid: Any) -> bool:
    return hasattr(type(grid), _METHOD)


def share_cells(grid: Any, group_of: GroupOf) -> None:
    """Let layers of one group lie in one cell of the grid.

    ``group_of`` gives what names a layer's group, or None where it has none: then it
    has a cell of its own. The user's stride wins over groups.
    """
    if not can_share_cells(grid):
        return
    plain = getattr(type(grid), _METHOD)

    def grouped(self: Any, layers: Sequence[Layer]) -> tuple[dict[int, int], list[int]]:
        if self.stride != 1:
            return plain(self, layers)
        cells: dict[object, int] = {}
        cell_of = {
            number: cells.setdefault(_name(layer, group_of), len(cells))
            for number, layer in enumerate(layers)
        }
        shown = {cell_of[number] for number, one in enumerate(layers) if one.visible}
        return cell_of, sorted(shown)

    # The grid is a model of pydantic's, which refuses attributes that it does not know.
    object.__setattr__(grid, _METHOD, MethodType(grouped, grid))


def _name(layer: Layer, group_of: GroupOf) -> object:
    found = group_of(layer)
    return layer.unique_id if found is None else found
