"""What training starts from: an architecture, and weights or none."""

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn

from spt_core import bundled
from spt_core.card_file import ENDING
from spt_core.errors import InputError
from spt_core.patches.encoder_card import EncoderCard, read_encoder_card
from spt_core.patches.encoder_file import run_of_encoder
from spt_core.patches.filling import fill_encoder
from spt_core.patches.registry import build_module, find_card, known_layouts
from spt_core.patches.store import stored_file
from spt_core.training.stages import Stage


@dataclass(frozen=True, eq=False)
class Start:
    """
    Attributes
    ----------
    card
        Of the architecture; ``trained_on`` is what the weights were trained on.
    stages
        The trainings that led to the weights, where their file states them.
    run
        The folder of the last of those, where its key is.
    """

    module: nn.Module
    card: EncoderCard
    stages: tuple[Stage, ...] = ()
    run: Path = Path()


def load_start(arch: str, init: str, seed: int) -> Start:
    """Build an architecture and fill it.

    Parameters
    ----------
    init
        ``imagenet``: what ``spt encoders get`` has fetched; ``bundled``: the encoder of
        the package; ``none``: chance; or a file of weights, be it bare or an encoder of
        an earlier run.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = build_module(arch)
    card = find_card(arch)
    if init == "none":
        return Start(module, replace(card, trained_on=()))
    start = Start(module, card)
    if init == "imagenet":
        path = stored_file(arch)
        if not path.exists():
            raise InputError(
                f"There are no ImageNet weights of {arch} here ({path}): fetch them "
                f"once with 'spt encoders get {arch}', or give --init FILE or --init "
                "none."
            )
    else:
        path = bundled.encoder_path() if init == bundled.ENCODER else Path(init)
        if not path.is_file():
            raise InputError(
                f"--init {init} is neither imagenet, bundled, none nor a file of "
                "weights."
            )
        stated = read_encoder_card(path) if path.suffix == ENDING else None
        if stated is not None and stated.architecture != arch:
            raise InputError(
                f"{path.name} is a {stated.architecture}: give --arch "
                f"{stated.architecture}."
            )
        if init == bundled.ENCODER:
            known = find_card(bundled.ENCODER).trained_on
        else:
            known = stated.trained_on if stated is not None else ()
        start = Start(
            module,
            replace(card, trained_on=known),
            tuple(stated.stages()) if stated is not None else (),
            run_of_encoder(path),
        )
    fill_encoder(module, path, known_layouts(arch))
    return start
