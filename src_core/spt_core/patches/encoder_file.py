"""The encoder file: weights in safetensors, and in its metadata a JSON card.

The card says which architecture the weights fill, what patches the encoder is made for,
what it learned from and on which terms, so that the file alone suffices to use it.
Loading runs no code from it.
"""

from collections.abc import Mapping
from pathlib import Path, PureWindowsPath

import torch
from safetensors.torch import save
from torch import Tensor

from spt_core.card_file import ENDING
from spt_core.errors import InputError
from spt_core.files import written_whole
from spt_core.patches.encoder_card import EncoderCard, encoder_metadata
from spt_core.patients_key import KEY_FILE
from spt_core.weights_file import counts_batches

# The encoder in the folder of a run.
ENCODER_FILE = f"encoder{ENDING}"


def save_encoder(
    path: Path, weights: Mapping[str, Tensor], card: EncoderCard, *, half: bool = False
) -> None:
    """Write an encoder file whole.

    Parameters
    ----------
    half
        Store numbers in half precision, at half the size.
    """
    tensors = {}
    for name, tensor in weights.items():
        if counts_batches(name):
            continue
        tensor = tensor.detach().cpu().contiguous()
        if half and tensor.is_floating_point():
            tensor = tensor.half()
            if not torch.isfinite(tensor).all():
                raise InputError(f"The weights {name} do not fit in half precision.")
        tensors[name] = tensor
    content = save(tensors, encoder_metadata(card))
    with written_whole(path) as temporary:
        temporary.write_bytes(content)


def is_place(name: str) -> bool:
    """Whether a file leads to another by what it calls its encoder.

    Users say where encoders are. What a model or a feature file says is a name: it
    shall open no file, nor call a computer that a path of Windows names.
    """
    return bool(
        name.endswith(ENDING)
        or "\\" in name
        or name.startswith(("/", ".", "~"))
        or ".." in name.split("/")
        or PureWindowsPath(name).drive
    )


def encoder_file_of(name: str) -> Path | None:
    """The file that an encoder's name means: a file, or the folder of a run."""
    path = Path(name)
    if name.endswith(ENDING):
        return path
    inside = path / ENCODER_FILE
    return inside if inside.is_file() else None


def run_of_encoder(path: Path) -> Path:
    """The folder of the run that wrote an encoder file, where its key is kept."""
    beside = path.with_suffix(".run")
    return beside if (beside / KEY_FILE).is_file() else path.parent
