"""From tokens to a slide model: views, slide encoder, objectives, training.

Names are loaded when first asked for: the views are numpy, and a window that previews
them never loads torch.
"""

from typing import TYPE_CHECKING

from spt_core.lazy import lazy_names

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

__getattr__ = lazy_names(__name__, _HOMES)
