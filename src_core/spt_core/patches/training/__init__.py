"""Training a patch encoder on one's own slides or tiles: SimCLR and HiDisc.

Pixels are sampled into memory once (:mod:`pool`), each step draws some of them
(:mod:`plan`) and makes views (:mod:`augment`); the loop is that of slide training.
"""

from spt_core.patches.training.settings import PatchTrainSettings
from spt_core.patches.training.training import (
    PatchTrainResult,
    resume_patches,
    train_patches,
)

__all__ = [
    "PatchTrainResult",
    "PatchTrainSettings",
    "resume_patches",
    "train_patches",
]
