"""Slide Pre-trained Transformers for whole-slide pathology: the core.

Names are loaded when they are first asked for, so that importing the package costs
nothing and a window that only shows slides never loads torch.
"""

from typing import TYPE_CHECKING, Any

from spt_core._version import __version__

if TYPE_CHECKING:
    from spt_core.learning import SlideEncoder, load_model
    from spt_core.patches import encode_slide
    from spt_core.slides import Slide, open_slide
    from spt_core.tokens import Tokens, read_tokens

_HOMES = {
    "Slide": "spt_core.slides",
    "SlideEncoder": "spt_core.learning",
    "Tokens": "spt_core.tokens",
    "encode_slide": "spt_core.patches",
    "load_model": "spt_core.learning",
    "open_slide": "spt_core.slides",
    "read_tokens": "spt_core.tokens",
}

__all__ = [
    "Slide",
    "SlideEncoder",
    "Tokens",
    "__version__",
    "encode_slide",
    "load_model",
    "open_slide",
    "read_tokens",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'spt_core' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
