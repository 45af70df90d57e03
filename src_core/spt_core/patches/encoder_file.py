"""The encoder file: weights in safetensors, and in its metadata a JSON card.

The card says which architecture the weights fill, what patches the encoder is made for,
what it learned from and on which terms, so that the file alone suffices to use it.
Loading runs no code from it.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from spt_core._version import __version__
from spt_core.card_file import stated_card
from spt_core.errors import InputError
from spt_core.files import written_whole
from spt_core.notice import NOT_FOR_DIAGNOSIS
from spt_core.patches.encoder import EncoderCard

KIND = "spt-patch-encoder"
FORMAT = 1
ENDING = ".safetensors"
# What makes it usable; everything else in a card is for people.
_USED = ("name", "dim", "patch_size", "mpp", "input_size", "mean", "std")
_SAID = ("licence", "citation", "about")


def save_encoder(
    path: Path,
    weights: Mapping[str, Tensor],
    card: EncoderCard,
    architecture: str,
    *,
    half: bool = False,
    **said: Any,
) -> None:
    """Write an encoder file whole.

    Parameters
    ----------
    architecture
        The registered encoder, or model of timm, whose module the weights fill.
    half
        Store numbers in half precision, at half the size.
    said
        More for the card: what it learned from, how, how good it is.
    """
    tensors = {}
    for name, tensor in weights.items():
        if name.endswith("num_batches_tracked"):
            continue
        tensor = tensor.detach().cpu().contiguous()
        if half and tensor.is_floating_point():
            tensor = tensor.half()
            if not torch.isfinite(tensor).all():
                raise InputError(f"The weights {name} do not fit in half precision.")
        tensors[name] = tensor
    facts = asdict(card)
    stated = {
        "kind": KIND,
        "format": FORMAT,
        "notice": NOT_FOR_DIAGNOSIS,
        "version": __version__,
        "architecture": architecture,
        **{name: facts[name] for name in (*_USED, *_SAID)},
        **said,
    }
    content = save(tensors, {"card": json.dumps(stated, ensure_ascii=False)})
    with written_whole(path) as temporary:
        temporary.write_bytes(content)


def read_encoder_card(path: Path) -> dict[str, Any] | None:
    """The whole card of an encoder file; None where the file is bare weights."""
    stated = stated_card(path)
    if stated is None:
        return None
    if stated.get("kind") != KIND:
        raise InputError(
            f"{path.name} is a {stated.get('kind', 'file of another kind')}, not a "
            "patch encoder of 'spt train-patches'."
        )
    if stated.get("format", 0) > FORMAT:
        raise InputError(
            f"{path.name} was written by a newer version ({stated.get('version')}). "
            "Update napari-spt to use it."
        )
    return stated


def usable_card(stated: Mapping[str, Any], *, weights: str = "file") -> EncoderCard:
    """What the pipeline needs of a file's card."""
    known = {name: stated[name] for name in (*_USED, *_SAID) if name in stated}
    for name in ("mean", "std"):
        known[name] = tuple(known[name])
    return EncoderCard(**known, weights=weights)


def encoder_file_of(name: str) -> Path | None:
    """The file that an encoder's name means: a file, or the folder of a run."""
    path = Path(name)
    if name.endswith(ENDING):
        return path
    inside = path / f"encoder{ENDING}"
    return inside if inside.is_file() else None
