"""One self-contained HTML page per slide: the answer, its maps and their origin."""

import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from spt_core._version import __version__
from spt_core.files import written_whole
from spt_core.insight.colours import EACH_ALONE, EVEN, NOT_WHERE, class_colour
from spt_core.insight.geometry import Geometry
from spt_core.insight.html_page import (
    CITATION,
    fact_rows,
    html_page,
    picture_figure,
    versions,
)
from spt_core.insight.maps import TIMES_AVERAGE, attention_values
from spt_core.insight.model_words import DEMONSTRATION, ModelWords
from spt_core.insight.overlay import attention_overlay, class_overlay
from spt_core.insight.picture import read_patch, tissue_picture
from spt_core.insight.regions import RegionKind, choose_regions, stands_out
from spt_core.insight.reproducing import what_to_put_in
from spt_core.insight.results import ClassMap, Faithfulness, Prediction, Verdict, WhatIf
from spt_core.insight.wording import (
    coverage,
    faithfulness_sentence,
    number_name,
    pixel_size_note,
    prediction_sentence,
    what_if_sentence,
)
from spt_core.learning.model_card import ModelCard
from spt_core.notice import NOT_FOR_DIAGNOSIS
from spt_core.slides.slide import Slide

PATCH_SIDE = 260
_WHY = {
    RegionKind.MOST: "Looked at most",
    RegionKind.RANDOM: "Chosen by chance",
    RegionKind.LEAST: "Looked at least",
}
_LIBRARIES = ("numpy", "torch", "openslide-python", "tifffile")


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
        The model, by its card (None without one), file name and hash.
    command
        The command that makes this page again; empty where there is none.
    """

    prediction: Prediction
    geometry: Geometry
    called: str
    card: ModelCard | None
    model_name: str
    model_sha256: str
    command: str
    slide: Slide | None = None
    classes: ClassMap | None = None
    faithfulness: Faithfulness | None = None
    what_ifs: tuple[WhatIf, ...] = ()

    @property
    def model(self) -> ModelWords | None:
        """The model's card in words, None without a model."""
        return ModelWords(Path(self.model_name), self.card) if self.card else None


def write_report(path: Path, parts: ReportParts) -> None:
    with written_whole(Path(path)) as temporary:
        temporary.write_text(report_page(parts), encoding="utf-8")


def report_page(parts: ReportParts) -> str:
    """The page as HTML, every picture within it and nothing outside."""
    found = parts.prediction
    body = [
        f"<h1>{escape(parts.called)}</h1>",
        f'<p class="notice">{NOT_FOR_DIAGNOSIS}</p>',
        _answer(parts),
        *_model(parts),
    ]
    if found.verdict != Verdict.EMPTY:
        body += [_probabilities(found), *_maps(parts), *_regions(parts)]
        if parts.faithfulness is not None:
            body += _faithfulness(parts.faithfulness)
        if parts.what_ifs:
            body += _what_ifs(parts.what_ifs)
    body += _provenance(parts)
    return html_page(parts.called, body)


def _answer(parts: ReportParts) -> str:
    """The answer, from how much of the tissue, and what to think of it."""
    found, model = parts.prediction, parts.model
    is_demonstration = model is not None and model.card.demonstration
    doubtful = (
        found.verdict in (Verdict.EMPTY, Verdict.UNLIKE)
        or found.trained_on
        or not found.is_whole
        or is_demonstration
    )
    lines = [prediction_sentence(found)]
    if found.verdict != Verdict.EMPTY:
        rest = "." if found.is_whole else ": the rest may change the answer."
        lines.append(coverage(found) + rest)
    if is_demonstration:
        lines.append(f"By a demonstration on synthetic tissue. {DEMONSTRATION}")
    said = "<br>".join(escape(line) for line in lines)
    return f'<p class="answer{" doubt" if doubtful else ""}">{said}</p>'


def _model(parts: ReportParts) -> list[str]:
    """What the model is for, what it learned from and how well it does."""
    model = parts.model
    if model is None:
        return []
    said = (
        ("Model", model.title),
        ("What it is for", model.purpose),
        ("What it learned from", model.learned_from),
        ("How well it does", model.how_well),
    )
    return [f'<table class="model">{fact_rows(said)}</table>']


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
    kind = number_name(calibrated=found.calibrated).capitalize()
    return f"<h2>{kind}</h2><table>{''.join(rows)}</table>"


def _maps(parts: ReportParts) -> list[str]:
    found = parts.prediction
    picture = tissue_picture(found, parts.slide)
    body = []
    if parts.slide is not None:
        tissue = Image.fromarray(picture.rgb)
        body += [
            "<h2>Tissue</h2>",
            picture_figure(tissue, "The tissue in the patches.", 88),
        ]
    title = parts.model.title if parts.model else ""
    geometry = parts.geometry
    note = pixel_size_note(geometry)
    size = f" Scale bar: pixel size {note}." if note else ""
    heads = found.attention.shape[0]
    times = attention_values(found.attention, unit=TIMES_AVERAGE)
    even = "" if stands_out(times) else f"{EVEN} "
    body += [
        "<h2>Where the model looks</h2>",
        picture_figure(
            attention_overlay(found, picture, geometry, model=title),
            f"{even}Attention over {found.seen} patches, mean of {heads} heads, on a "
            "scale that is the same for every slide: 1 × average is a patch like any "
            f"other. {NOT_WHERE}{size}",
        ),
    ]
    if parts.classes is not None:
        made = parts.classes
        caption = (
            f"{EACH_ALONE} The model on windows of {made.side} × {made.side} patches, "
            f"{made.stride} apart, at most {made.limit} patches of each. Unsure: "
            f"{np.mean(made.alone):.0%} of the patches have too few neighbours, and of "
            f"{np.mean(made.close):.0%} the likeliest class leads by less than "
            f"{made.margin:g}.{size}"
        )
        image = class_overlay(found, made, picture, geometry, model=title)
        body += ["<h2>Class map</h2>", picture_figure(image, caption)]
    return body


def _regions(parts: ReportParts) -> list[str]:
    """Places as the window chooses them, with others to compare."""
    found, slide = parts.prediction, parts.slide
    if slide is None:
        return []
    times = attention_values(found.attention, unit=TIMES_AVERAGE)
    size = found.facts.l0_patch_xy or (1, 1)
    um = parts.geometry.um_pixel_xy
    across = f"; {size[0] * um[0]:.0f} µm across" if um else ""
    figures = []
    for region in choose_regions(found.p, times):
        row = region.row
        patch = read_patch(slide, found.xy[row], size, PATCH_SIDE)
        what = ""
        if parts.classes is not None:
            what = f"; {parts.classes.name_of(int(parts.classes.labels[row]))}"
        caption = (
            f"{_WHY[region.kind]}: {times[row]:.1f} × average{what}; at "
            f"{_place(found.xy[row], parts.geometry)}{across}"
        )
        figures.append(picture_figure(patch, caption, quality=88))
    return [
        "<h2>Regions looked at most, and others to compare</h2>",
        f'<div class="patches">{"".join(figures)}</div>',
    ]


def _place(l0_xy: NDArray[np.integer], geometry: Geometry) -> str:
    """Where a patch begins, from the corner of the scanned part."""
    x, y = (np.asarray(l0_xy) - np.asarray(geometry.l0_bounds_xy)).tolist()
    um = geometry.um_pixel_xy
    if um is None:
        return f"x {x}, y {y} px"
    return f"x {x * um[0] / 1000:.2f}, y {y * um[1] / 1000:.2f} mm ({x}, {y} px)"


def _faithfulness(check: Faithfulness) -> list[str]:
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
        f"<p>{escape(faithfulness_sentence(check))}</p>",
        "<table><tr><th>removed</th><th>most attended first</th><th>random</th>"
        f"<th>least attended first</th></tr>{rows}</table>",
    ]


def _what_ifs(asked: Sequence[WhatIf]) -> list[str]:
    items = "".join(f"<li>{escape(what_if_sentence(one))}</li>" for one in asked)
    return [
        "<h2>What if not here?</h2>",
        "<p>Parts of the slide were drawn around, and the model was asked without "
        f"them.</p><ul>{items}</ul>",
    ]


def _provenance(parts: ReportParts) -> list[str]:
    card, facts, model = parts.card, parts.prediction.facts, parts.model
    um, note = parts.geometry.um_pixel_xy, pixel_size_note(parts.geometry)
    pixel = f"{um[0]:.4g} × {um[1]:.4g} µm" if um else "unknown"
    made_by = f"napari-spt {__version__}"
    if card and card.version:
        made_by += f", model by {card.version}"
    rows: Sequence[tuple[str, Any]] = (
        ("Slide fingerprint", parts.prediction.fingerprint),
        ("Pixel size", f"{pixel}, {note}" if note else pixel),
        ("Patches", f"{parts.prediction.seen} of {parts.prediction.total}"),
        ("Patch", model and model.patch),
        ("Patch encoder", card and card.tokens.encoder),
        ("Encoder hash", facts.encoder_sha256 or "not stated by the features"),
        ("Model", parts.model_name),
        ("Model hash", parts.model_sha256),
        ("Objective", card and card.objective),
        ("Architecture", model and model.architecture),
        ("Calibration", model and model.calibration),
        ("Model licence", card and card.licence),
        ("Patch encoder's terms", card and ", ".join(card.encoder_terms)),
        ("Made by", made_by),
        ("Versions", f"Python {platform.python_version()}, {versions(_LIBRARIES)}"),
        ("Made on", time.strftime("%Y-%m-%d %H:%M %z")),
    )
    return [
        "<h2>Where this comes from</h2>",
        f"<table>{fact_rows(rows)}</table>",
        *_again(parts.command),
        f"<p>Please cite: {escape(CITATION)}</p>",
        f'<p class="notice">{NOT_FOR_DIAGNOSIS}</p>',
    ]


def _again(command: str) -> list[str]:
    if not command:
        return []
    files = what_to_put_in(command)
    put_in = f", with {files}" if files else ""
    return [f"<p>To make it again{put_in}: <code>{escape(command)}</code></p>"]
