"""napari-spt: Slide Pre-trained Transformers for whole-slide pathology in napari."""

from spt_core._version import __version__

__all__ = ["__version__"]
