"""Slide Pre-trained Transformers for whole-slide pathology: the core.

Names are loaded when they are first asked for, so that importing the package costs
nothing and a window that only shows slides never loads torch.
"""

from typing import TYPE_CHECKING, Any

from spt_core._version import __version__

if TYPE_CHECKING:
    from spt_core.slides import Slide, open_slide

_HOMES = {
    "Slide": "spt_core.slides",
    "open_slide": "spt_core.slides",
}

__all__ = ["Slide", "__version__", "open_slide"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'spt_core' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
