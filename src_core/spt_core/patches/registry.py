"""Loading patch encoders by name.

Those that are known are listed in :mod:`spt_core.patches.known`. Others join with
``register``: a card, and a function that builds the module without its weights. Models
of timm need no entry: any of their names will do.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from spt_core import bundled
from spt_core.errors import InputError
from spt_core.patches import weights
from spt_core.patches.encoder import TorchEncoder
from spt_core.patches.encoder_card import (
    FROM_PACKAGE,
    FROM_SEED,
    IMAGENET_MEAN,
    IMAGENET_STD,
    EncoderCard,
    read_encoder_card,
)
from spt_core.patches.encoder_file import encoder_file_of
from spt_core.patches.filling import built_for, fill_from, length_of, matched
from spt_core.patches.known import KNOWN, find_known
from spt_core.patches.known_entry import KnownEncoder
from spt_core.patches.listing import how_to_get
from spt_core.patches.published import published_training
from spt_core.patches.store import stored_file
from spt_core.weights_file import fill, read_weights, refuse_misfit, unwrapped


@dataclass(frozen=True)
class RegisteredEncoder:
    """One encoder: its card, and what makes its module.

    Attributes
    ----------
    layouts
        Names of the layouts in which its weights are published beside its own.
    of_timm
        A model of timm: what its file says beyond the name is options of ``build``.
    """

    card: EncoderCard
    build: Callable[..., nn.Module]
    layouts: tuple[str, ...] = ()
    of_timm: bool = False


_registered: dict[str, RegisteredEncoder] = {}


def register(
    card: EncoderCard,
    build: Callable[[], nn.Module],
    layouts: tuple[str, ...] = (),
) -> None:
    """Add an encoder, or replace the one of that name.

    Parameters
    ----------
    layouts
        Names of the layouts, in :mod:`spt_core.patches.layouts`, in which its weights
        are published beside the module's own names.
    """
    _registered[card.name] = RegisteredEncoder(card, build, layouts)


def known_encoders() -> list[EncoderCard]:
    """The cards of all encoders with a name, the bundled one first."""
    known = {name: one.card for name, one in KNOWN.items()}
    known |= {name: entry.card for name, entry in _registered.items()}
    return [find_card(bundled.ENCODER), *known.values()]


def module_for(
    entry: RegisteredEncoder, state: Mapping[str, Tensor], path: Path
) -> nn.Module:
    """An encoder's module, with what a file in timm's names says beyond the name."""
    return built_for(entry.build, state, path) if entry.of_timm else entry.build()


def known_layouts(architecture: str) -> tuple[str, ...]:
    return find_encoder(architecture).layouts


def find_card(name: str) -> EncoderCard:
    """The card of a registered encoder, an encoder file, or any model of timm."""
    path = bundled.encoder_path() if name == bundled.ENCODER else encoder_file_of(name)
    if path is None:
        return find_encoder(name).card
    return _file_card(path)


def build_module(architecture: str) -> nn.Module:
    """A registered architecture, or any of timm's, without its weights."""
    return find_encoder(architecture).build()


def load_encoder(name: str, weights_file: Path | None = None) -> TorchEncoder:
    """Build an encoder with its weights.

    Parameters
    ----------
    name
        A registered name, an encoder file of ``spt train-patches`` (or the folder of
        its run), or any model of timm.
    weights_file
        A ``.safetensors`` or ``.pth`` of the user's; otherwise what ``spt encoders
        get`` has fetched. An encoder file says by itself what it is.
    """
    own = encoder_file_of(str(weights_file or name))
    if name == bundled.ENCODER and weights_file is None:
        own = bundled.encoder_path()
    if own is not None and (weights_file is None or read_encoder_card(own)):
        card = _file_card(own)
        state = read_weights(own)
        built = str(card.architecture)
        if built not in _registered:
            # By its shapes alone: a large model is not built for a small file.
            with torch.device("meta"):
                refuse_misfit(build_module(built), state, own)
        module = build_module(built)
        fill(module, state, own)
        return TorchEncoder(module, card)
    if name == bundled.ENCODER:
        raise InputError(
            f"{name} has weights of its own: leave {weights_file} out, or say of which "
            "encoder they are."
        )
    entry = find_encoder(name)
    card = entry.card
    if card.weights == FROM_SEED:
        # Deterministic, and leaves the program's own chance alone.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return TorchEncoder(entry.build(), card)
    path = weights_file or stored_file(card.name)
    if not path.exists():
        raise InputError(
            f"The encoder {name} has no weights here ({path}): {how_to_get(card)}."
        )
    state = unwrapped(read_weights(path))
    if entry.of_timm:  # by shapes alone: a small file may ask for any size
        with torch.device("meta"):
            small = module_for(entry, state, path)
        refuse_misfit(small, matched(small, state, path, entry.layouts), path)
    module = module_for(entry, state, path)
    fill_from(module, state, path, entry.layouts)
    return TorchEncoder(module, card)


def _file_card(path: Path) -> EncoderCard:
    """The card that an encoder file must have."""
    card = read_encoder_card(path)
    if card is None:
        raise InputError(
            f"{path} holds weights without a card. Say of which encoder they are: "
            f"--encoder NAME --encoder-weights {path}."
        )
    if card.name == bundled.ENCODER:
        known = card.trained_on or published_training(card.name)
        return replace(card, weights=FROM_PACKAGE, trained_on=known)
    return card


def find_encoder(name: str) -> RegisteredEncoder:
    """An encoder's card and what builds it: registered, known, or of timm."""
    if name in _registered:
        return _registered[name]
    known = find_known(name)
    if known is not None:
        if known.unsupported:
            raise InputError(f"The encoder {name}: {known.unsupported}.")
        return RegisteredEncoder(known.card, _builder(known), known.layouts)
    entry = _find_in_timm(name)
    if entry is None:
        raise InputError(
            f"There is no encoder {name!r}. Known are {bundled.ENCODER}, "
            f"{', '.join(sorted({*KNOWN, *_registered}))}, and any model of timm by "
            "its name (such as vit_small_patch16_224); an encoder of your own is given "
            "by its file. 'spt encoders' lists them."
        )
    return entry


def _builder(known: KnownEncoder) -> Callable[[], nn.Module]:
    shape = known.shape
    if shape is not None:
        from spt_core.patches.vit import Vit

        return partial(Vit, shape)
    return _OTHERS[known.card.name]


def _find_in_timm(name: str) -> RegisteredEncoder | None:
    import timm

    architecture = name.removeprefix("timm/").split(".")[0]
    if not timm.is_model(architecture):
        return None
    try:
        cfg = timm.get_pretrained_cfg(name.removeprefix("timm/"))
    except (RuntimeError, ValueError) as error:
        raise InputError(f"timm has no weights {name!r}: {error}.") from error

    def build(**options: Any) -> nn.Module:
        return timm.create_model(
            architecture, pretrained=False, num_classes=0, **options
        )

    side = int(cfg.input_size[-1]) if cfg is not None else 224
    with torch.device("meta"):
        dim = length_of(build(), side)
    fixed = architecture.startswith(("vit", "deit", "swin", "beit", "eva")) or bool(
        cfg is not None and cfg.fixed_input_size
    )
    return RegisteredEncoder(
        EncoderCard(
            name=name,
            dim=dim,
            patch_size=300,
            mpp=0.5,
            input_size=side if fixed else None,
            mean=tuple(cfg.mean) if cfg is not None else IMAGENET_MEAN,
            std=tuple(cfg.std) if cfg is not None else IMAGENET_STD,
            weights=f"{weights.TIMM}{name.removeprefix('timm/')}",
            licence=str(getattr(cfg, "license", None) or "see its page"),
            citation="Wightman, PyTorch Image Models, 2019",
            about="a model of timm",
            trained_on=published_training(name),
        ),
        build,
        of_timm=True,
    )


def _resnet34() -> nn.Module:
    from torchvision.models import resnet34

    model = resnet34(weights=None)
    model.fc = nn.Identity()
    return model


def _mobilenet_v2() -> nn.Module:
    from torchvision.models import mobilenet_v2

    model = mobilenet_v2(weights=None)
    model.classifier = nn.Identity()
    return model


def _small() -> nn.Module:
    """Three strided convolutions: quick enough for tests, and not blind."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 7, stride=4, padding=3),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=4, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, stride=2, padding=1),
        nn.Tanh(),
    )


_OTHERS: dict[str, Callable[[], nn.Module]] = {
    "resnet34": _resnet34,
    "simclr": _resnet34,
    "hidisc": _resnet34,
    "mobilenetv2": _mobilenet_v2,
    "small-random": _small,
}
