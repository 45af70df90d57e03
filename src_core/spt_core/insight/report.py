"""One self-contained HTML page a slide: what the model says, where, and from what."""

import base64
import io
import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from spt_core._version import __version__
from spt_core.files import written_whole
from spt_core.insight.colours import NOT_WHERE, class_colour
from spt_core.insight.geometry import Geometry
from spt_core.insight.maps import attention_values
from spt_core.insight.overlay import attention_overlay, class_overlay
from spt_core.insight.picture import read_patch, tissue_picture
from spt_core.insight.results import (
    EMPTY,
    NOT_FOR_DIAGNOSIS,
    UNLIKE,
    ClassMap,
    Prediction,
)
from spt_core.slides.slide import Slide

if TYPE_CHECKING:
    # It loads torch, and a window writes reports too.
    from spt_core.insight.faithfulness import Faithfulness

CITATION = (
    "A self-supervised framework for learning whole slide representations "
    "(Slide Pre-trained Transformers)."
)
TOP_REGIONS, PATCH_SIDE, APART = 8, 260, 3
_LIBRARIES = ("numpy", "torch", "openslide-python", "tifffile")
_STYLE = """
:root{color-scheme:light}
body{font:16px/1.5 system-ui,sans-serif;color:#1e1e1e;background:#fff;margin:0 auto;
max-width:1080px;padding:24px}
h1{font-size:1.5rem;margin:0 0 4px}h2{font-size:1.15rem;margin:32px 0 8px}
.notice{color:#5a5a5a}.answer{font-size:1.2rem;border-left:6px solid #447;
padding:10px 16px;background:#f3f4f8}.doubt{border-color:#c4302b;background:#fbf0ef}
img{max-width:100%;height:auto}figure{margin:0}figcaption{font-size:.85rem;color:#444}
.patches{display:grid;grid-template-columns:repeat(auto-fill,minmax(200px,1fr));
gap:14px}table{border-collapse:collapse}td,th{padding:4px 14px 4px 0;text-align:left;
vertical-align:top;overflow-wrap:anywhere}th{font-weight:600;white-space:nowrap}
.bar{height:14px;display:inline-block;vertical-align:middle}code{white-space:pre-wrap;
overflow-wrap:anywhere;background:#f3f4f8;padding:2px 4px}
"""


@dataclass(frozen=True, eq=False)
class ReportParts:
    """All that a page is made of.

    Attributes
    ----------
    slide
        The open slide; without it there are no patches to magnify.
    called
        What to call the slide: its pseudonym, or its name where that was chosen.
    card, model_name, model_sha256
        The model, by its card, file name and hash.
    command
        The words that make this page again.
    """

    prediction: Prediction
    geometry: Geometry
    called: str
    card: dict[str, Any]
    model_name: str
    model_sha256: str
    command: str
    slide: Slide | None = None
    classes: ClassMap | None = None
    faithfulness: "Faithfulness | None" = None


def write_report(path: Path, parts: ReportParts) -> None:
    with written_whole(Path(path)) as temporary:
        temporary.write_text(report_page(parts), encoding="utf-8")


def report_page(parts: ReportParts) -> str:
    """The page as HTML, every picture within it and nothing outside."""
    found = parts.prediction
    doubt = " doubt" if found.verdict in (EMPTY, UNLIKE) or found.trained_on else ""
    body = [
        f"<h1>{escape(parts.called)}</h1>",
        f'<p class="notice">{NOT_FOR_DIAGNOSIS}</p>',
        f'<p class="answer{doubt}">{escape(found.sentence)}</p>',
    ]
    if found.verdict != EMPTY:
        body += [_probabilities(found), *_maps(parts), *_regions(parts)]
        if parts.faithfulness is not None:
            body += _faithfulness(parts.faithfulness)
    body += _provenance(parts)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(parts.called)}</title><style>{_STYLE}</style></head><body>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def top_regions(
    p: NDArray[np.integer], attention: NDArray[np.floating], count: int = TOP_REGIONS
) -> list[int]:
    """Rows of the most attended patches that lie apart from one another."""
    weights = attention_values(attention)
    chosen: list[int] = []
    for row in np.argsort(-weights, kind="stable").tolist():
        off = np.abs(p[chosen] - p[row]).max(axis=1) if chosen else np.array([APART])
        if (off >= APART).all():
            chosen.append(row)
        if len(chosen) == count:
            break
    return chosen


def _probabilities(found: Prediction) -> str:
    if found.probabilities is None:
        return ""
    rows = []
    for number, name in enumerate(found.classes):
        share = float(found.probabilities[number])
        red, green, blue = class_colour(number)
        rows.append(
            f"<tr><th>{escape(name)}</th><td>{share:.3f}</td><td>"
            f'<span class="bar" style="width:{round(300 * share)}px;'
            f'background:rgb({red},{green},{blue})"></span></td></tr>'
        )
    kind = found.kind_of_number.capitalize()
    return f"<h2>{kind}</h2><table>{''.join(rows)}</table>"


def _maps(parts: ReportParts) -> list[str]:
    found = parts.prediction
    picture = tissue_picture(found, parts.slide)
    body = []
    if parts.slide is not None:
        tissue = Image.fromarray(picture.rgb)
        body += ["<h2>Tissue</h2>", _figure(tissue, "What lies at the patches.", 88)]
    heads = found.attention.shape[0]
    body += [
        "<h2>Where the model looks</h2>",
        _figure(
            attention_overlay(found, picture, parts.geometry),
            f"Attention over {found.seen} patches, mean of {heads} heads, on a scale "
            "that is the same for every slide: 1 × average is a patch like any other. "
            f"{NOT_WHERE}",
        ),
    ]
    if parts.classes is not None:
        made = parts.classes
        caption = (
            f"The model on windows of {made.side} × {made.side} patches, "
            f"{made.stride} apart, at most {made.limit} patches of each; "
            f"{np.mean(made.unsure):.0%} of the patches have too few neighbours."
        )
        image = class_overlay(found, made, picture, parts.geometry)
        body += ["<h2>Class map</h2>", _figure(image, caption)]
    return body


def _regions(parts: ReportParts) -> list[str]:
    found, slide = parts.prediction, parts.slide
    if slide is None:
        return []
    times = attention_values(found.attention, unit="times average")
    size = found.facts.l0_patch_xy or (1, 1)
    um = parts.geometry.um_pixel_xy
    across = f", {size[0] * um[0]:.0f} µm across" if um else ""
    figures = []
    for row in top_regions(found.p, found.attention):
        patch = read_patch(slide, found.xy[row], size, PATCH_SIDE)
        x, y = (found.xy[row] - np.asarray(parts.geometry.l0_bounds_xy)).tolist()
        what = ""
        if parts.classes is not None:
            what = f"; {parts.classes.name_of(int(parts.classes.labels[row]))}"
        caption = f"{times[row]:.1f} × average{what}; at x {x}, y {y}{across}"
        figures.append(_figure(patch, caption, quality=88))
    return [
        "<h2>Most attended regions</h2>",
        f'<div class="patches">{"".join(figures)}</div>',
    ]


def _faithfulness(check: "Faithfulness") -> list[str]:
    rows = "".join(
        f"<tr><td>{gone:.0%}</td><td>{most:.3f}</td><td>{any_:.3f}</td>"
        f"<td>{least:.3f}</td></tr>"
        for gone, most, any_, least in zip(
            check.removed,
            check.most_first,
            check.random,
            check.least_first,
            strict=True,
        )
    )
    return [
        "<h2>Does the attention matter?</h2>",
        f"<p>{escape(check.sentence)}</p>",
        "<table><tr><th>removed</th><th>most attended first</th><th>random</th>"
        f"<th>least attended first</th></tr>{rows}</table>",
    ]


def _provenance(parts: ReportParts) -> list[str]:
    card, facts = parts.card, parts.prediction.facts
    tokens, training = card.get("tokens", {}), card.get("training", {})
    um = parts.geometry.um_pixel_xy
    calibration = card.get("calibration") or {}
    rows: Sequence[tuple[str, Any]] = (
        ("Slide fingerprint", parts.prediction.fingerprint),
        ("Pixel size", f"{um[0]:.4g} × {um[1]:.4g} µm" if um else "unknown"),
        ("Patches", f"{parts.prediction.seen} of {parts.prediction.total}"),
        ("Patch", f"{tokens.get('patch_size')} px at {tokens.get('mpp')} µm"),
        ("Patch encoder", tokens.get("encoder")),
        ("Encoder hash", facts.encoder_sha256 or "not stated by the features"),
        ("Model", parts.model_name),
        ("Model hash", parts.model_sha256),
        ("Objective", card.get("objective")),
        ("Architecture", _plain(card.get("architecture", {}))),
        ("Learned from", f"{training.get('slides')} slides"),
        ("Classes learned", _plain(training.get("class_counts", {}))),
        ("Metrics", _plain(card.get("metrics", {}))),
        ("Calibration", _plain(calibration) if calibration else "none"),
        ("Model licence", card.get("licence")),
        ("Made by", f"napari-spt {__version__}, model by {card.get('version')}"),
        ("Versions", f"Python {platform.python_version()}, {_versions()}"),
        ("Made on", time.strftime("%Y-%m-%d %H:%M %z")),
    )
    table = "".join(
        f"<tr><th>{escape(name)}</th><td>{escape(str(value))}</td></tr>"
        for name, value in rows
        if value not in (None, "")
    )
    return [
        "<h2>Where this comes from</h2>",
        f"<table>{table}</table>",
        f"<p>To make it again: <code>{escape(parts.command)}</code></p>",
        f"<p>Please cite: {escape(CITATION)}</p>",
        f'<p class="notice">{NOT_FOR_DIAGNOSIS}</p>',
    ]


def _plain(table: dict[str, Any]) -> str:
    return ", ".join(f"{name} {_number(value)}" for name, value in table.items())


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _versions() -> str:
    return ", ".join(f"{name} {version(name)}" for name in _LIBRARIES)


def _figure(image: Image.Image, caption: str, quality: int = 0) -> str:
    held = io.BytesIO()
    if quality:
        image.convert("RGB").save(held, "JPEG", quality=quality)
    else:
        image.save(held, "PNG", optimize=True)
    kind = "jpeg" if quality else "png"
    data = base64.b64encode(held.getvalue()).decode("ascii")
    return (
        f'<figure><img alt="{escape(caption)}" width="{image.width}" '
        f'src="data:image/{kind};base64,{data}"><figcaption>{escape(caption)}'
        "</figcaption></figure>"
    )
