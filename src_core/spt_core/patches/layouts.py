"""The names that published checkpoints give their weights, as small explicit maps.

Everything here ends in timm's names (see :mod:`spt_core.patches.vit`). What a map does
not name stays as it is, and :func:`spt_core.weights_file.fill` then refuses it.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isqrt

import torch
from torch import Tensor
from torch.nn import functional

Positions = Callable[[Tensor, int], Tensor]


def resampled_by_timm(square: Tensor, cells: int) -> Tensor:
    """Positions (1, dim, h, w) on another number of cells per side."""
    return functional.interpolate(
        square, (cells, cells), mode="bicubic", antialias=True
    )


def resampled_plainly(square: Tensor, cells: int) -> Tensor:
    """The same without smoothing, as transformers does it."""
    return functional.interpolate(square, (cells, cells), mode="bicubic")


def resampled_by_dino(square: Tensor, cells: int) -> Tensor:
    """The same with the tenth of a cell that DINO's code adds."""
    scale = (cells + 0.1) / square.shape[-1]
    return functional.interpolate(square, scale_factor=scale, mode="bicubic")


@dataclass(frozen=True)
class Layout:
    """One way to name a vision transformer's weights.

    Attributes
    ----------
    mark
        A name that no other layout has.
    names
        Patterns of whole names and what they become; an empty word leaves them out.
    positions
        How its own code resamples positions.
    """

    mark: str
    names: tuple[tuple[str, str], ...]
    positions: Positions = resampled_by_timm


_BLOCK = r"\1.\2"  # of the patterns below: the block's number, weight or bias

# transformers' CLIP: PLIP, QuiltNet.
CLIP = Layout(
    mark="vision_model.embeddings.class_embedding",
    names=(
        (r"(?:text_model\..*|text_projection\.weight|logit_scale)", ""),
        (r"vision_model\.embeddings\.position_ids", ""),
        (r"vision_model\.embeddings\.class_embedding", "cls_token"),
        (r"vision_model\.embeddings\.patch_embedding\.(.*)", r"patch_embed.proj.\1"),
        (r"vision_model\.embeddings\.position_embedding\.weight", "pos_embed"),
        (r"vision_model\.pre_layrnorm\.(.*)", r"norm_pre.\1"),
        (r"vision_model\.post_layernorm\.(.*)", r"norm.\1"),
        (r"visual_projection\.weight", "proj.weight"),
        (
            r"vision_model\.encoder\.layers\.(\d+)\.layer_norm(\d.*)",
            r"blocks.\1.norm\2",
        ),
        (
            r"vision_model\.encoder\.layers\.(\d+)\.self_attn\.([qkv])_proj\.(.*)",
            r"blocks.\1.attn.\2.\3",
        ),
        (
            r"vision_model\.encoder\.layers\.(\d+)\.self_attn\.out_proj\.(.*)",
            r"blocks.\1.attn.proj.\2",
        ),
        (r"vision_model\.encoder\.layers\.(\d+)\.mlp\.(.*)", r"blocks.\1.mlp.\2"),
    ),
    positions=resampled_plainly,
)

# open_clip's and OpenAI's: QuiltNet's other file.
OPEN_CLIP = Layout(
    mark="visual.class_embedding",
    names=(
        (r"(?:transformer|token_embedding|ln_final)\..*", ""),
        (r"(?:positional_embedding|text_projection|logit_scale|attn_mask)", ""),
        (r"(?:input_resolution|context_length|vocab_size)", ""),
        (r"visual\.class_embedding", "cls_token"),
        (r"visual\.positional_embedding", "pos_embed"),
        (r"visual\.conv1\.(.*)", r"patch_embed.proj.\1"),
        (r"visual\.ln_pre\.(.*)", r"norm_pre.\1"),
        (r"visual\.ln_post\.(.*)", r"norm.\1"),
        (r"visual\.proj", "proj.weight.turned"),
        (r"visual\.transformer\.resblocks\.(\d+)\.ln_(\d.*)", r"blocks.\1.norm\2"),
        (
            r"visual\.transformer\.resblocks\.(\d+)\.attn\.in_proj_(.*)",
            r"blocks.\1.attn.qkv.\2",
        ),
        (
            r"visual\.transformer\.resblocks\.(\d+)\.attn\.out_proj\.(.*)",
            r"blocks.\1.attn.proj.\2",
        ),
        (
            r"visual\.transformer\.resblocks\.(\d+)\.mlp\.c_fc\.(.*)",
            r"blocks.\1.mlp.fc1.\2",
        ),
        (
            r"visual\.transformer\.resblocks\.(\d+)\.mlp\.c_proj\.(.*)",
            r"blocks.\1.mlp.fc2.\2",
        ),
    ),
    positions=resampled_plainly,
)

_HF_ATTENTION = (
    (
        r"encoder\.layer\.(\d+)\.attention\.attention\.([qkv])(?:uery|ey|alue)\.(.*)",
        r"blocks.\1.attn.\2.\3",
    ),
    (
        r"encoder\.layer\.(\d+)\.attention\.output\.dense\.(.*)",
        r"blocks.\1.attn.proj.\2",
    ),
)
_HF_EMBEDDINGS = (
    (r"embeddings\.cls_token", "cls_token"),
    (r"embeddings\.position_embeddings", "pos_embed"),
    (r"embeddings\.register_tokens", "reg_token"),
    (r"embeddings\.mask_token", ""),
    (r"embeddings\.patch_embeddings\.projection\.(.*)", r"patch_embed.proj.\1"),
    (r"layernorm\.(.*)", r"norm.\1"),
)

# transformers' ViT: Phikon.
HF_VIT = Layout(
    mark="encoder.layer.0.layernorm_before.weight",
    names=(
        *_HF_EMBEDDINGS,
        *_HF_ATTENTION,
        (r"pooler\..*", ""),
        (r"encoder\.layer\.(\d+)\.layernorm_before\.(.*)", r"blocks.\1.norm1.\2"),
        (r"encoder\.layer\.(\d+)\.layernorm_after\.(.*)", r"blocks.\1.norm2.\2"),
        (r"encoder\.layer\.(\d+)\.intermediate\.dense\.(.*)", r"blocks.\1.mlp.fc1.\2"),
        (r"encoder\.layer\.(\d+)\.output\.dense\.(.*)", r"blocks.\1.mlp.fc2.\2"),
    ),
    positions=resampled_plainly,
)

# transformers' DINOv2, with registers or without: Midnight, Phikon-v2, Hibou.
HF_DINOV2 = Layout(
    mark="encoder.layer.0.layer_scale1.lambda1",
    names=(
        *_HF_EMBEDDINGS,
        *_HF_ATTENTION,
        (
            r"encoder\.layer\.(\d+)\.layer_scale(\d)\.lambda1",
            r"blocks.\1.ls\2.gamma",
        ),
        (r"encoder\.layer\.(\d+)\.(norm\d\..*)", rf"blocks.{_BLOCK}"),
        (r"encoder\.layer\.(\d+)\.mlp\.weights_in\.(.*)", r"blocks.\1.mlp.fc1.\2"),
        (r"encoder\.layer\.(\d+)\.mlp\.weights_out\.(.*)", r"blocks.\1.mlp.fc2.\2"),
        (r"encoder\.layer\.(\d+)\.(mlp\.fc\d\..*)", rf"blocks.{_BLOCK}"),
    ),
    positions=resampled_plainly,
)

# DINO's own code: HIPT.
DINO = Layout(
    mark="cls_token",
    names=((r"head\..*", ""),),
    positions=resampled_by_dino,
)

# DINOv2's own code: GPFM, OpenMidnight.
DINOV2 = Layout(
    mark="mask_token",
    names=(
        (r"mask_token", ""),
        (r"register_tokens", "reg_token"),
        (r"blocks\.\d+\.(\d+\..*)\.w12\.(.*)", r"blocks.\1.fc1.\2"),
        (r"blocks\.\d+\.(\d+\..*)\.w3\.(.*)", r"blocks.\1.fc2.\2"),
        (r"blocks\.(\d+)\.mlp\.w12\.(.*)", r"blocks.\1.mlp.fc1.\2"),
        (r"blocks\.(\d+)\.mlp\.w3\.(.*)", r"blocks.\1.mlp.fc2.\2"),
        (r"blocks\.\d+\.(\d+\..*)", r"blocks.\1"),
    ),
    positions=resampled_by_dino,
)


def renamed(
    state: Mapping[str, Tensor], layouts: tuple[Layout, ...]
) -> tuple[dict[str, Tensor], Positions]:
    """Weights by timm's names, and how their positions are resampled."""
    layout = next((one for one in layouts if one.mark in state), None)
    if layout is None:
        return dict(state), resampled_by_timm
    found: dict[str, Tensor] = {}
    for name, tensor in state.items():
        found[_renamed(name, layout)] = tensor
    found.pop("", None)
    _join_qkv(found)
    for name, shape in (("cls_token", (1, 1, -1)), ("pos_embed", (1, -1))):
        if name in found and found[name].ndim < 3:
            last = found[name].shape[-1]
            found[name] = found[name].reshape(*shape[:2], last)
    if "proj.weight.turned" in found:
        found["proj.weight"] = found.pop("proj.weight.turned").T.contiguous()
    return found, layout.positions


def fit_positions(
    state: dict[str, Tensor], prefix: int, cells: int, positions: Positions
) -> None:
    """Resample ``pos_embed`` to ``cells`` per side, and give it the prefix it needs.

    Parameters
    ----------
    prefix
        How many tokens before the patches' have a position in the module. A file in
        which the class token has one and a module in which it has none agree: what is
        added to a token that never changes can be part of it.
    """
    stored = state.get("pos_embed")
    if stored is None or stored.ndim != 3:
        return
    length = stored.shape[1]
    fitting = [
        n for n in (prefix, 1, 0) if isqrt(max(0, length - n)) ** 2 == length - n
    ]
    if not fitting:
        return
    beside = fitting[0]
    before, square = stored[:, :beside], stored[:, beside:]
    side = isqrt(length - beside)
    if side != cells:
        planes = square.transpose(1, 2).unflatten(2, (side, side)).float()
        square = positions(planes, cells).flatten(2).transpose(1, 2).to(stored.dtype)
    if beside == 1 and prefix == 0 and "cls_token" in state:
        state["cls_token"] = state["cls_token"] + before
        before = before[:, :0]
    state["pos_embed"] = torch.cat([before, square], dim=1)


def _is_square(count: int) -> bool:
    return count > 0 and isqrt(count) ** 2 == count


def _renamed(name: str, layout: Layout) -> str:
    for pattern, becomes in layout.names:
        match = re.fullmatch(pattern, name)
        if match:
            return match.expand(becomes)
    return name


def _join_qkv(state: dict[str, Tensor]) -> None:
    """Queries, keys and values one below the other, as timm keeps them."""
    for name in [
        name for name in state if re.search(r"\.attn\.q\.(weight|bias)$", name)
    ]:
        parts = [name.replace(".attn.q.", f".attn.{one}.") for one in "qkv"]
        if all(part in state for part in parts):
            joined = torch.cat([state.pop(part) for part in parts])
            state[name.replace(".attn.q.", ".attn.qkv.")] = joined
