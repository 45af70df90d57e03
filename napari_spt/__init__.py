"""napari-spt: Slide Pre-trained Transformers for whole-slide pathology in napari."""

from spt_core._version import __version__

# The name that napari knows this plugin by.
PLUGIN = "napari-spt"

__all__ = ["PLUGIN", "__version__"]
