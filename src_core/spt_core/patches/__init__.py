"""Patch encoders, and the pipeline that turns slides into tokens."""

from spt_core.patches.encode import encode_slide, encode_slides, slide_tasks
from spt_core.patches.encoder import EncoderCard, PatchEncoder, TorchEncoder
from spt_core.patches.registry import find_card, known_encoders, load_encoder, register
from spt_core.patches.settings import (
    EncodeSettings,
    PartialTokens,
    SlideResult,
    SlideStarted,
    SlideTask,
)

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
