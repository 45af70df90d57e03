"""The patch encoders by name.

Others join with ``register``: a card, and a function that builds the module without its
weights. Models of timm need no entry: any of their names will do.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn

from spt_core import bundled
from spt_core.errors import InputError
from spt_core.patches import weights
from spt_core.patches.encoder import TorchEncoder
from spt_core.patches.encoder_card import (
    FROM_FILE,
    FROM_PACKAGE,
    FROM_SEED,
    IMAGENET_MEAN,
    IMAGENET_STD,
    EncoderCard,
    read_encoder_card,
)
from spt_core.patches.encoder_file import encoder_file_of
from spt_core.patches.published import published_training

_TORCHVISION = "https://download.pytorch.org/models/"
# Weights files keep these for training alone.
HEADS = ("classifier.", "fc.", "head.", "head_dist.")


@dataclass(frozen=True)
class RegisteredEncoder:
    """One encoder: its card, and what makes its module."""

    card: EncoderCard
    build: Callable[[], nn.Module]


_registered: dict[str, RegisteredEncoder] = {}


def register(card: EncoderCard, build: Callable[[], nn.Module]) -> None:
    """Add an encoder, or replace the one of that name."""
    _registered[card.name] = RegisteredEncoder(card, build)


def known_encoders() -> list[EncoderCard]:
    """The cards of all registered encoders, the bundled one first."""
    return [find_card(bundled.ENCODER), *(entry.card for entry in _registered.values())]


def find_card(name: str) -> EncoderCard:
    """The card of a registered encoder, an encoder file, or any model of timm."""
    path = bundled.encoder_path() if name == bundled.ENCODER else encoder_file_of(name)
    if path is None:
        return _find(name).card
    return _file_card(path)


def build_module(architecture: str) -> nn.Module:
    """A registered architecture, or any of timm's, without its weights."""
    return _find(architecture).build()


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
        module = build_module(str(card.architecture))
        weights.fill(module, weights.read(own), own)
        return TorchEncoder(module, card)
    entry = _find(name)
    card = entry.card
    if card.weights == FROM_SEED:
        # Deterministic, and leaves the program's own chance alone.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return TorchEncoder(entry.build(), card)
    path = weights_file or weights.stored_file(name)
    if not path.exists():
        how = (
            "give its weights with --encoder-weights FILE"
            if card.weights == FROM_FILE
            else f"fetch its weights once with 'spt encoders get {name}', or give them "
            "with --encoder-weights FILE"
        )
        raise InputError(f"The encoder {name} has no weights here ({path}): {how}.")
    module = entry.build()
    weights.fill(module, weights.read(path), path, leave_out=HEADS)
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


def _find(name: str) -> RegisteredEncoder:
    if name in _registered:
        return _registered[name]
    entry = _find_in_timm(name)
    if entry is None:
        names = ", ".join(sorted(_registered))
        raise InputError(
            f"There is no encoder {name!r}. Known are {bundled.ENCODER}, {names}, and "
            "any model of timm by its name (such as vit_small_patch16_224); an encoder "
            "of your own is given by its file. 'spt encoders' lists them."
        )
    return entry


def _find_in_timm(name: str) -> RegisteredEncoder | None:
    import timm

    architecture = name.removeprefix("timm/").split(".")[0]
    if not timm.is_model(architecture):
        return None
    try:
        cfg = timm.get_pretrained_cfg(name.removeprefix("timm/"))
    except (RuntimeError, ValueError) as error:
        raise InputError(f"timm has no weights {name!r}: {error}.") from error

    def build() -> nn.Module:
        return timm.create_model(architecture, pretrained=False, num_classes=0)

    side = int(cfg.input_size[-1]) if cfg is not None else 224
    with torch.device("meta"):
        dim = _length(build(), side)
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
    )


def _length(module: nn.Module, side: int) -> int:
    """Length of the vectors that a module on the meta device gives.

    timm's ``num_features`` is not it where layers follow the pooling.
    """
    with torch.inference_mode():
        out = module.eval()(torch.empty(1, 3, side, side, device="meta"))
    return int(out.shape[1])


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


register(
    EncoderCard(
        name="resnet34",
        dim=512,
        patch_size=300,
        mpp=0.5,
        weights=_TORCHVISION + "resnet34-b627a593.pth",
        licence="BSD-3-Clause (torchvision), trained on ImageNet",
        citation="He et al., Deep Residual Learning for Image Recognition, 2016",
        about="ImageNet; the encoder of the SPT paper",
        trained_on=published_training("resnet34"),
    ),
    _resnet34,
)
register(
    EncoderCard(
        name="mobilenetv2",
        dim=1280,
        patch_size=300,
        mpp=0.5,
        weights=_TORCHVISION + "mobilenet_v2-7ebf99e0.pth",
        licence="BSD-3-Clause (torchvision), trained on ImageNet",
        citation="Sandler et al., MobileNetV2, 2018",
        about="ImageNet; quick without a GPU",
        trained_on=published_training("mobilenetv2"),
    ),
    _mobilenet_v2,
)
register(
    EncoderCard(
        name="small-random",
        dim=64,
        patch_size=300,
        mpp=0.5,
        weights=FROM_SEED,
        licence="BSD-3-Clause",
        citation="none: a fixed random network",
        about="untrained, always the same; for trying things out",
    ),
    _small,
)
