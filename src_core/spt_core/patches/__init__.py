"""Patch encoders, and the pipeline that turns slides into tokens.

Names are loaded when first asked for: settings and results need no torch.
"""

from typing import TYPE_CHECKING

from spt_core.lazy import lazy_names

if TYPE_CHECKING:
    from spt_core.patches.encode import encode_slide, encode_slides, slide_tasks
    from spt_core.patches.encoder import PatchEncoder, TorchEncoder
    from spt_core.patches.encoder_card import EncoderCard
    from spt_core.patches.registry import (
        find_card,
        known_encoders,
        load_encoder,
        register,
    )
    from spt_core.patches.settings import (
        EncodeSettings,
        PartialTokens,
        SlideResult,
        SlideStarted,
        SlideTask,
    )

_HOMES = {
    "EncodeSettings": "spt_core.patches.settings",
    "EncoderCard": "spt_core.patches.encoder_card",
    "PartialTokens": "spt_core.patches.settings",
    "PatchEncoder": "spt_core.patches.encoder",
    "SlideResult": "spt_core.patches.settings",
    "SlideStarted": "spt_core.patches.settings",
    "SlideTask": "spt_core.patches.settings",
    "TorchEncoder": "spt_core.patches.encoder",
    "encode_slide": "spt_core.patches.encode",
    "encode_slides": "spt_core.patches.encode",
    "find_card": "spt_core.patches.registry",
    "known_encoders": "spt_core.patches.registry",
    "load_encoder": "spt_core.patches.registry",
    "register": "spt_core.patches.registry",
    "slide_tasks": "spt_core.patches.encode",
}

__all__ = [
    "EncodeSettings",
    "EncoderCard",
    "PartialTokens",
    "PatchEncoder",
    "SlideResult",
    "SlideStarted",
    "SlideTask",
    "TorchEncoder",
    "encode_slide",
    "encode_slides",
    "find_card",
    "known_encoders",
    "load_encoder",
    "register",
    "slide_tasks",
]

__getattr__ = lazy_names(__name__, _HOMES)
