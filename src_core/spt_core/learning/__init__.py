"""From tokens to a slide model: views, slide encoder, objectives, training.

Names are loaded when first asked for: the views are numpy, and a window that previews
them never loads torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spt_core.learning.model_file import SlideModel, load_model
    from spt_core.learning.slide_encoder import SlideEncoder
    from spt_core.learning.views import ViewSettings, slide_views

_HOMES = {
    "SlideEncoder": "spt_core.learning.slide_encoder",
    "SlideModel": "spt_core.learning.model_file",
    "ViewSettings": "spt_core.learning.views",
    "load_model": "spt_core.learning.model_file",
    "slide_views": "spt_core.learning.views",
}

__all__ = ["SlideEncoder", "SlideModel", "ViewSettings", "load_model", "slide_views"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'spt_core.learning' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
