"""One self-contained HTML page of what a slide is made of, found without a model."""

import platform
import time
from dataclasses import dataclass
from html import escape
from pathlib import Path

from PIL import Image

from spt_core._version import __version__
from spt_core.files import written_whole
from spt_core.insight.colours import BY_LOOKS
from spt_core.insight.geometry import Geometry
from spt_core.insight.html_page import (
    CITATION,
    fact_rows,
    html_page,
    picture_figure,
    versions,
)
from spt_core.insight.overlay import kinds_overlay
from spt_core.insight.picture import read_patch, tissue_picture
from spt_core.insight.results import Prediction
from spt_core.insight.tissue_map import TissueMap
from spt_core.insight.wording import pixel_size_note
from spt_core.notice import NOT_FOR_DIAGNOSIS
from spt_core.slides.slide import Slide

PATCH_SIDE, MOST_ODD = 260, 8
_LIBRARIES = ("numpy", "scikit-learn", "openslide-python", "tifffile")


@dataclass(frozen=True, eq=False)
class TissueReport:
    """All that a page is made of; ``prediction`` gives the cells of the patches."""

    found: TissueMap
    prediction: Prediction
    geometry: Geometry
    called: str
    slide: Slide | None = None


def write_tissue_report(path: Path, parts: TissueReport) -> None:
    with written_whole(Path(path)) as temporary:
        temporary.write_text(tissue_page(parts), encoding="utf-8")


def tissue_page(parts: TissueReport) -> str:
    """The page as HTML, every picture within it and nothing outside."""
    found = parts.found
    body = [
        f"<h1>{escape(parts.called)}</h1>",
        f'<p class="notice">{NOT_FOR_DIAGNOSIS}</p>',
        f'<p class="answer">{len(found.kinds)} kinds of tissue. {escape(BY_LOOKS)}</p>',
        *_map(parts),
        *_table(parts),
        *_examples(parts),
        *_provenance(parts),
    ]
    return html_page(parts.called, body)


def _map(parts: TissueReport) -> list[str]:
    picture = tissue_picture(parts.prediction, parts.slide)
    body = []
    if parts.slide is not None:
        tissue = Image.fromarray(picture.rgb)
        body = [
            "<h2>Tissue</h2>",
            picture_figure(tissue, "The tissue in the patches.", 88),
        ]
    image = kinds_overlay(parts.prediction, parts.found, picture, parts.geometry)
    return [*body, "<h2>Kinds of tissue</h2>", picture_figure(image, BY_LOOKS)]


def _table(parts: TissueReport) -> list[str]:
    found = parts.found
    areas = found.areas_mm2(parts.geometry.um_pixel_xy)
    lines = []
    for row, title in enumerate(found.kinds.titles):
        red, green, blue = found.kinds.rgb[row].tolist()
        area = "unknown" if areas is None else f"{areas[row]:.2f} mm²"
        lines.append(
            f'<tr><td><span class="bar" style="width:14px;background:'
            f'rgb({red},{green},{blue})"></span></td><th>{escape(title)}</th>'
            f"<td>{area}</td><td>{found.shares[row]:.1%}</td>"
            f"<td>{found.counts[row]:,}</td></tr>"
        )
    head = "<tr><th></th><th>Kind</th><th>Area</th><th>Share</th><th>Patches</th></tr>"
    return [f"<table>{head}{''.join(lines)}</table>"]


def _examples(parts: TissueReport) -> list[str]:
    found, slide = parts.found, parts.slide
    if slide is None:
        return []
    size = found.facts.l0_patch_xy or (1, 1)
    typical = [
        picture_figure(read_patch(slide, found.xy[row], size, PATCH_SIDE), title, 88)
        for row, title in zip(found.typical, found.kinds.titles, strict=True)
    ]
    body = [
        "<h2>A typical example of each</h2>",
        f'<div class="patches">{"".join(typical)}</div>',
    ]
    odd = [
        picture_figure(
            read_patch(slide, found.xy[row], size, PATCH_SIDE), "Like no other.", 88
        )
        for row in found.outliers[:MOST_ODD]
    ]
    if odd:
        body += [
            "<h2>Places like no others</h2>",
            f'<div class="patches">{"".join(odd)}</div>',
        ]
    return body


def _provenance(parts: TissueReport) -> list[str]:
    facts = parts.found.facts
    um, note = parts.geometry.um_pixel_xy, pixel_size_note(parts.geometry)
    pixel = f"{um[0]:.4g} × {um[1]:.4g} µm" if um else "unknown"
    said = (
        ("Slide fingerprint", facts.slide_fingerprint),
        ("Pixel size", f"{pixel}, {note}" if note else pixel),
        ("Patches", f"{len(parts.found.labels)}"),
        ("Patch encoder", facts.encoder),
        ("Encoder hash", facts.encoder_sha256),
        ("Made by", f"napari-spt {__version__}"),
        ("Versions", f"Python {platform.python_version()}, {versions(_LIBRARIES)}"),
        ("Made on", time.strftime("%Y-%m-%d %H:%M %z")),
    )
    return [
        "<h2>Where this comes from</h2>",
        f"<table>{fact_rows(said)}</table>",
        f"<p>Please cite: {escape(CITATION)}</p>",
        f'<p class="notice">{NOT_FOR_DIAGNOSIS}</p>',
    ]
