"""Putting published weights into an encoder's module, strictly."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from spt_core.errors import InputError
from spt_core.patches import layouts
from spt_core.patches.layouts import Layout, fit_positions, renamed
from spt_core.weights_file import fill, read_weights, unwrapped

# Weights files keep these for training alone.
HEADS = ("classifier.", "fc.", "head.", "head_dist.")


def fill_encoder(module: nn.Module, path: Path, names: tuple[str, ...] = ()) -> None:
    """Fill a module from a file in timm's, torchvision's or one of the named layouts.

    Raises
    ------
    InputError
        Where the file cannot be read, or its weights are not exactly those needed.
    """
    fill_from(module, unwrapped(read_weights(path)), path, names)


def fill_from(
    module: nn.Module,
    state: Mapping[str, Tensor],
    path: Path,
    names: tuple[str, ...] = (),
) -> None:
    """The same with weights that are read already."""
    fill(module, matched(module, state, path, names), path)


def matched(
    module: nn.Module,
    state: Mapping[str, Tensor],
    path: Path,
    names: tuple[str, ...] = (),
) -> dict[str, Tensor]:
    """Weights by the module's own names, with positions of its size, without heads."""
    try:
        return _matched(module, state, names)
    # What shapes that do not go together raise depends on where they meet.
    except (RuntimeError, LookupError, ValueError, TypeError) as error:
        raise InputError(
            f"{path} is not for this encoder: its weights do not go together "
            f"({_first_line(error)})."
        ) from error


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")


def _matched(
    module: nn.Module, state: Mapping[str, Tensor], names: tuple[str, ...]
) -> dict[str, Tensor]:
    known: tuple[Layout, ...] = tuple(getattr(layouts, name) for name in names)
    given, positions = renamed(state, known)
    wanted = module.state_dict()
    given = {
        name: tensor
        for name, tensor in given.items()
        if name in wanted or not name.startswith(HEADS)
    }
    if "pos_embed" in wanted and hasattr(module, "patch_embed"):
        bare = getattr(module, "no_embed_class", False)
        prefix = 0 if bare else getattr(module, "num_prefix_tokens", 1)
        cells = _cells_per_side(module)
        fit_positions(given, prefix, cells, positions)
    return given


def _cells_per_side(module: Any) -> int:
    """Of one of timm's vision transformers."""
    return int(module.patch_embed.grid_size[0])


def built_for(
    build: Callable[..., nn.Module], state: Mapping[str, Tensor], path: Path
) -> nn.Module:
    """A model of timm with what a file of its weights says beyond its name."""
    try:
        return build(**timm_options(state))
    # Options that no such model can have fail where they meet.
    except Exception as error:
        raise InputError(
            f"{path} is not for this encoder: none can be built of its weights' shapes "
            f"({_first_line(error)})."
        ) from error


def timm_options(state: Mapping[str, Tensor]) -> dict[str, Any]:
    """What a file in timm's names says of its vision transformer beyond its name.

    LayerScale, registers and SwiGLU are options of timm's, by which the same name
    builds another network.
    """
    options: dict[str, Any] = {}
    if "blocks.0.ls1.gamma" in state:
        options["init_values"] = 1e-5
    if "reg_token" in state:
        options["reg_tokens"] = state["reg_token"].shape[1]
        whole = state["pos_embed"].shape[1] if "pos_embed" in state else 0
        options["no_embed_class"] = round(whole**0.5) ** 2 == whole
    first = state.get("blocks.0.mlp.fc1.weight")
    second = state.get("blocks.0.mlp.fc2.weight")
    if first is not None and second is not None:
        rows, dim = first.shape
        if rows == 2 * second.shape[1]:
            from timm.layers import SwiGLUPacked

            options |= {"mlp_layer": SwiGLUPacked, "act_layer": nn.SiLU}
            # A little more, so that the product does not fall below a whole number.
            options["mlp_ratio"] = rows / dim + 1e-6
    return options


def length_of(module: nn.Module, side: int) -> int:
    """Length of the vectors that a module on the meta device gives.

    timm's ``num_features`` is not it where layers follow the pooling.
    """
    with torch.inference_mode():
        out = module.eval()(torch.empty(1, 3, side, side, device="meta"))
    return int(out.shape[1])
