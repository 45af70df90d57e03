"""Writing what was found: a report, or maps for other programs."""

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from napari_spt.analysis.state import Analysis
from spt_core.errors import InputError

if TYPE_CHECKING:
    from spt_core.insight.results import ClassMap, Prediction
    from spt_core.learning.model_card import ModelCard
    from spt_core.slides import Slide
    from spt_core.tokens import TokenFacts

FORMATS = {
    "Report (*.html)": ".html",
    "QuPath objects (*.geojson)": ".geojson",
    "OME-TIFF (*.ome.tif)": ".ome.tif",
    "Picture (*.png)": ".png",
}
_VERDICTS = {"class": "answered", "seen in training": "answered"}


def write_findings(path: Path, analysis: Analysis, *, names_slide: bool) -> Path:
    """Write what the window shows, in the format of the file's ending.

    Runs beside the window; all is from what is in memory, so that a cancelled
    analysis can be written too.
    """
    from spt_core.insight import geojson, ome_tiff, overlay
    from spt_core.insight.geometry import Geometry
    from spt_core.insight.model_words import read_model_words
    from spt_core.insight.picture import tissue_picture
    from spt_core.insight.report import ReportParts, write_report
    from spt_core.slides import open_slide

    if analysis.reading is None or analysis.slide.path is None:
        raise InputError("There is nothing to write yet: analyse the slide first.")
    slide = open_slide(analysis.slide.path, analysis.slide_mpp)
    try:
        prediction = _prediction(analysis, slide)
        classes = _classes(analysis)
        geometry = Geometry.of(
            prediction.facts, slide, mpp_from_user=_is_stated_by_user(analysis, slide)
        )
        called = analysis.slide.name if names_slide else prediction.pseudonym
        if path.name.endswith(".geojson"):
            geojson.write_geojson(path, prediction, classes, geometry)
        elif path.name.endswith((".ome.tif", ".ome.tiff")):
            ome_tiff.write_ome_tiff(path, prediction, classes, geometry, name=called)
        elif path.suffix == ".png":
            picture = tissue_picture(prediction, slide)
            title = read_model_words(analysis.model).title if analysis.model else ""
            image = overlay.attention_overlay(
                prediction, picture, geometry, model=title
            )
            overlay.write_png(path, image)
        else:
            card, name, sha256 = _model(analysis)
            parts = ReportParts(
                prediction=prediction,
                geometry=geometry,
                called=called,
                card=card,
                model_name=name,
                model_sha256=sha256,
                command=_command(analysis),
                slide=slide,
                classes=classes,
            )
            write_report(path, parts)
    finally:
        slide.close()
    return path


def _is_stated_by_user(analysis: Analysis, slide: "Slide") -> bool:
    """Whether the pixel size is the user's word; the file's comes before it."""
    um = analysis.slide_mpp
    if um is None or slide.mpp_xy == analysis.slide.mpp_xy:
        return False
    return slide.mpp_xy is not None and np.allclose(slide.mpp_xy, um, rtol=1e-3)


def _command(analysis: Analysis) -> str:
    """The words that make the report again, without a name of the slide."""
    from spt_core.insight.reproducing import SLIDE_WORD, command_again

    if analysis.model is None:
        return ""
    um = analysis.slide_mpp
    options = [] if um is None else ["--slide-mpp", f"{um:g}"]
    return command_again(analysis.model, SLIDE_WORD, options)


def _prediction(analysis: Analysis, slide: "Slide") -> "Prediction":
    from spt_core.insight.results import Prediction

    reading = analysis.reading
    if reading is None:
        raise InputError("There is nothing to write yet: analyse the slide first.")
    facts = _facts(analysis, slide)
    return Prediction(
        facts=facts,
        p=reading.g_rc - np.asarray(facts.g_origin, np.int64),
        xy=reading.l0_xy,
        classes=reading.classes,
        probabilities=reading.probabilities,
        calibrated=bool(reading.facts.get("calibrated")),
        embedding=np.zeros(0, np.float32),
        attention=reading.attention,
        seen=reading.patches,
        total=reading.total,
        verdict=_VERDICTS.get(reading.verdict, reading.verdict),
        answer=reading.facts.get("answer"),
        trained_on=bool(reading.facts.get("trained_on")),
        fingerprint=slide.fingerprint,
    )


def _facts(analysis: Analysis, slide: "Slide") -> "TokenFacts":
    from spt_core.tokens import TokenFacts, read_index

    if analysis.features is not None and analysis.features.exists():
        facts = read_index(analysis.features).facts
    else:
        facts = TokenFacts(
            l0_patch_xy=analysis.l0_step_xy,
            l0_step_xy=analysis.l0_step_xy,
            l0_size_xy=slide.dimensions,
            slide_fingerprint=slide.fingerprint,
        )
    return replace(facts, name=analysis.slide.name)


def _classes(analysis: Analysis) -> "ClassMap | None":
    """The class map in the order of the prediction's patches."""
    from spt_core.insight.results import ClassMap
    from spt_core.insight.windows import windows_like_training
    from spt_core.learning.views import ViewSettings

    found, reading = analysis.class_reading, analysis.reading
    if found is None or reading is None or reading.probabilities is None:
        return None
    rows = {tuple(l0_xy): row for row, l0_xy in enumerate(found.l0_xy.tolist())}
    shares = np.full((len(reading.l0_xy), len(found.classes)), np.nan, np.float32)
    for row, l0_xy in enumerate(reading.l0_xy.tolist()):
        known = rows.get(tuple(l0_xy))
        if known is not None:
            shares[row] = found.probabilities[known]
    card, _, _ = _model(analysis)
    windows = windows_like_training(card.views if card else ViewSettings())
    side, stride, limit = windows.side, windows.stride, windows.limit
    # Calibration is of whole slides: what windows say are scores.
    return ClassMap(found.classes, reading.l0_xy, shares, False, side, stride, limit, 0)


def _model(analysis: Analysis) -> tuple["ModelCard | None", str, str]:
    from spt_core.learning.model_card import read_model_card

    if analysis.model is None:
        return None, "no model", ""
    card = read_model_card(analysis.model)
    digest = hashlib.sha256(analysis.model.read_bytes()).hexdigest()
    return card, analysis.model.name, digest
