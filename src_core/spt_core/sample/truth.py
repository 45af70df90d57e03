"""The truth beside a slide: which tissue is where."""

import json
from pathlib import Path

import numpy as np
from PIL import Image

from spt_core.files import written_whole
from spt_core.sample.layout import SCALE, Layout, SlideSpec
from spt_core.sample.tissue import DESCRIPTIONS, UM_PER_PIXEL, TissueClass

MASK_ENDING = ".truth.png"
CLASSES_ENDING = ".truth.json"


def truth_paths(slide: Path) -> tuple[Path, Path]:
    """Where the mask and its classes lie for a slide's path."""
    return (
        slide.with_name(slide.stem + MASK_ENDING),
        slide.with_name(slide.stem + CLASSES_ENDING),
    )


def write_truth(slide: Path, spec: SlideSpec, layout: Layout) -> tuple[Path, Path]:
    """Write the mask (a palette PNG; pixel value = class) and what its values mean."""
    mask_path, classes_path = truth_paths(slide)
    image = Image.fromarray(layout.classes)
    palette = np.zeros((256, 3), np.uint8)
    for tissue, described in DESCRIPTIONS.items():
        palette[tissue] = described.colour
    image.putpalette(palette.tobytes())
    with written_whole(mask_path) as temporary:
        image.save(temporary, format="PNG")
    counts = np.bincount(layout.classes.ravel(), minlength=len(TissueClass))
    tissue_pixels = max(int(counts[1:].sum()), 1)
    facts = {
        "slide": slide.name,
        "label": spec.kind,
        "scale": SCALE,
        "um_per_pixel": SCALE * UM_PER_PIXEL,
        "l0_width": spec.width,
        "l0_height": spec.height,
        "classes": [
            {
                "value": int(tissue),
                "name": described.name,
                "text": described.text,
                "tumour": tissue >= TissueClass.GLANDULAR,
                "fraction_of_tissue": (
                    round(int(counts[tissue]) / tissue_pixels, 6) if tissue else 0.0
                ),
            }
            for tissue, described in DESCRIPTIONS.items()
        ],
    }
    with written_whole(classes_path) as temporary:
        temporary.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    return mask_path, classes_path
