"""What an entry of the list of known patch encoders is made of. Without torch."""

from dataclasses import dataclass, replace
from typing import Any

from spt_core.encoder_terms import terms_of
from spt_core.patches.encoder_card import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    EncoderCard,
)
from spt_core.patches.published import published_training
from spt_core.patches.vit_shape import CLS, CLS_AND_MEAN, VitShape

TORCHVISION = "https://download.pytorch.org/models/"
HUB = "hub:"  # then the repository and the file in it
HALF = ((0.5,) * 3, (0.5,) * 3)
CLIP_NORM = (
    (0.48145466, 0.4578275, 0.40821073),
    (0.26862954, 0.26130258, 0.27577711),
)
BIOPTIMUS = ((0.707223, 0.578729, 0.703617), (0.211883, 0.230117, 0.177517))
HIBOU = ((0.7068, 0.5755, 0.722), (0.195, 0.2316, 0.1816))
LUNIT = (
    (0.70322989, 0.53606487, 0.66096631),
    (0.21716536, 0.26081574, 0.20723464),
)
GENBIO = ((0.697, 0.575, 0.728), (0.188, 0.240, 0.187))

NC_ND = "CC-BY-NC-ND-4.0"
APACHE = "Apache-2.0"


@dataclass(frozen=True)
class KnownEncoder:
    """One encoder that is known by name.

    Attributes
    ----------
    shape
        Of the vision transformer; None for other networks.
    layouts
        The names of the layouts, in :mod:`spt_core.patches.layouts`, in which its
        weights are published beside timm's.
    also
        The names that other tools give it.
    unsupported
        Why it is listed and yet cannot be loaded here; empty where it can.
    """

    card: EncoderCard
    shape: VitShape | None = None
    layouts: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    unsupported: str = ""


def cnn(name: str, dim: int, **more: Any) -> KnownEncoder:
    facts = {"patch_size": 300, "mpp": 0.5, "output": "mean"}
    card = EncoderCard(name, dim, **{**facts, **more})
    return KnownEncoder(replace(card, trained_on=published_training(name)))


def vit(
    name: str,
    shape: VitShape | None,
    where: str,
    licence: str,
    citation: str,
    norm: tuple[tuple[float, ...], tuple[float, ...]] = (IMAGENET_MEAN, IMAGENET_STD),
    *,
    layouts: tuple[str, ...] = (),
    also: tuple[str, ...] = (),
    unsupported: str = "",
    **more: Any,
) -> KnownEncoder:
    """An encoder on the hub; ``where`` is its repository and the file in it."""
    owner, repository, _ = where.split("/", 2)
    side = shape.side if shape else int(more.pop("side", 224))
    output = "projection" if shape and shape.projected else shape and shape.output
    facts: dict[str, Any] = {
        "dim": shape.length if shape else 0,
        "patch_size": side,
        "mpp": 0.5,
        "input_size": side,
        "mean": norm[0],
        "std": norm[1],
        "weights": HUB + where,
        "licence": f"{licence}, as published",
        "terms": terms_of(name),
        "citation": citation,
        "page": f"https://huggingface.co/{owner}/{repository}",
        "output": output or CLS,
        "precision": "float16",
    }
    card = EncoderCard(name, **{**facts, **more})
    for one in (name, *also):
        card = replace(card, trained_on=card.trained_on or published_training(one))
    return KnownEncoder(card, shape, layouts, also, unsupported)


def giant(depth: int = 40, **more: Any) -> VitShape:
    """DINOv2's giant: ViT-g/14 with SwiGLU."""
    facts = {"mlp": "swiglu", "mlp_ratio": 5.33334, "layer_scale": True}
    return VitShape(1536, depth, 24, 14, **{**facts, **more})


def huge(**more: Any) -> VitShape:
    """Virchow's: ViT-H/14 with SwiGLU, class token and mean."""
    return VitShape(
        1280,
        32,
        16,
        14,
        mlp="swiglu",
        mlp_ratio=5.3375,
        layer_scale=True,
        output=CLS_AND_MEAN,
        **more,
    )


CLIP_B32 = VitShape(
    768, 12, 12, 32, mlp="quick_gelu", norm_first=True, eps=1e-5, projected=512
)
_KAIKO = "kaiko-ai non-commercial"
_KAIKO_PAPER = "Aben et al., Towards Large-Scale Training of Pathology FMs, 2024"
NOT_BUILT = "its network is not built in: encode with TRIDENT and give its features"


def kaiko(size: str, timm: str, shape: VitShape) -> KnownEncoder:
    where = f"1aurent/{timm}.kaiko_ai_towards_large_pathology_fms/model.safetensors"
    return vit(
        f"kaiko-{size}",
        shape,
        where,
        _KAIKO,
        _KAIKO_PAPER,
        HALF,
        precision=None,
        about="DINO or DINOv2 on TCGA",
        also=(f"kaiko_{size}",),
    )
