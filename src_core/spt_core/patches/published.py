"""Which public collections well-known patch encoders were trained on, as published.

Slides of such a collection are no fair test of what the encoder gives. Only what its
authors state is listed; an encoder that is not here may have seen anything.
"""

TCGA = "TCGA"  # The Cancer Genome Atlas

# By the names that this package, TRIDENT and CLAM give them.
_TRAINED_ON: dict[str, tuple[str, ...]] = {
    "resnet34": ("ImageNet",),
    "mobilenetv2": ("ImageNet",),
    "resnet50": ("ImageNet",),
    "bundled": ("ImageNet", "BreaKHis", "TCGA-CR-7395"),
    # Wang et al. 2022
    "ctranspath": (TCGA, "PAIP"),
    # Chen et al. 2022
    "hipt": (TCGA,),
    # Kang et al. 2023 (Lunit)
    "lunit_vits8": (TCGA,),
    # Filiot et al. 2023 and 2024
    "phikon": (TCGA,),
    "phikon_v2": (TCGA, "CPTAC", "GTEx"),
    # Aben et al. 2024
    "kaiko_vits8": (TCGA,),
    "kaiko_vits16": (TCGA,),
    "kaiko_vitb8": (TCGA,),
    "kaiko_vitb16": (TCGA,),
    "kaiko_vitl14": (TCGA,),
    # Karasikov et al. 2025, and SophontAI 2025
    "midnight": (TCGA,),
    "midnight12k": (TCGA,),
    "openmidnight": (TCGA,),
    # Chen et al. 2024
    "uni": ("Mass-100K", "GTEx"),
    "uni_v1": ("Mass-100K", "GTEx"),
    # Huang et al. 2023, Ikezogwo et al. 2023
    "plip": ("OpenPath",),
    "quiltnet_b_32": ("Quilt-1M",),
    # Filiot et al. 2025
    "h0_mini": (TCGA,),
    "h0_mini_cls_mean": (TCGA,),
    # Ma et al. 2024
    "gpfm": (TCGA, "CPTAC"),
}


def published_training(name: str) -> tuple[str, ...]:
    """What an encoder of this name was trained on; empty where that is not known."""
    key = name.lower().replace("-", "_")
    return _TRAINED_ON.get(name.lower()) or _TRAINED_ON.get(key, ())
