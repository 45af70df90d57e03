"""What training starts from: an architecture, and weights or none."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from spt_core.card_file import ENDING
from spt_core.errors import InputError
from spt_core.patches import weights
from spt_core.patches.encoder_card import EncoderCard, read_encoder_card
from spt_core.patches.registry import HEADS, build_module, find_card


@dataclass(frozen=True, eq=False)
class Start:
    module: nn.Module
    card: EncoderCard


def load_start(arch: str, init: str, seed: int) -> Start:
    """Build an architecture and fill it.

    Parameters
    ----------
    init
        ``imagenet``: what ``spt encoders get`` has fetched; ``none``: chance; or a file
        of weights, be it bare or an encoder of an earlier run.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = build_module(arch)
    start = Start(module, find_card(arch))
    if init == "none":
        return start
    if init == "imagenet":
        path = weights.stored_file(arch)
        if not path.exists():
            raise InputError(
                f"There are no ImageNet weights of {arch} here ({path}): fetch them "
                f"once with 'spt encoders get {arch}', or give --init FILE or --init "
                "none."
            )
    else:
        path = Path(init)
        if not path.is_file():
            raise InputError(
                f"--init {init} is neither 'imagenet', 'none', nor a file of weights."
            )
        stated = read_encoder_card(path) if path.suffix == ENDING else None
        if stated is not None and stated.architecture != arch:
            raise InputError(
                f"{path.name} is a {stated.architecture}: give --arch "
                f"{stated.architecture}."
            )
    weights.fill(module, weights.read(path), path, leave_out=HEADS)
    return start
