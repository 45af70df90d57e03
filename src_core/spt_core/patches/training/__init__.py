"""Training a patch encoder on one's own slides or tiles: SimCLR and HiDisc.

Pixels are sampled into memory once (:mod:`pool`), each step draws some of them
(:mod:`plan`) and makes views (:mod:`augment`); the loop is that of slide training.
"""

from typing import TYPE_CHECKING

from spt_core.lazy import lazy_names

if TYPE_CHECKING:
    from spt_core.patches.training.settings import PatchTrainSettings
    from spt_core.patches.training.training import (
        PatchTrainResult,
        resume_patches,
        train_patches,
    )

_HOMES = {
    "PatchTrainResult": "spt_core.patches.training.training",
    "PatchTrainSettings": "spt_core.patches.training.settings",
    "resume_patches": "spt_core.patches.training.training",
    "train_patches": "spt_core.patches.training.training",
}

__all__ = [
    "PatchTrainResult",
    "PatchTrainSettings",
    "resume_patches",
    "train_patches",
]

__getattr__ = lazy_names(__name__, _HOMES)
