"""What was found on a slide, written as a report or as maps for other programs.

One way for the command and the window. It needs no torch, and it loads what it writes
with when it writes, so that a window which lists the formats starts quickly.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from spt_core.errors import InputError
from spt_core.insight.geometry import Geometry
from spt_core.insight.maps import TIMES_AVERAGE
from spt_core.insight.results import ClassMap, Faithfulness, Prediction, WhatIf
from spt_core.insight.tissue_map import TissueMap

if TYPE_CHECKING:
    from spt_core.insight.model_words import ModelWords
    from spt_core.slides.slide import Slide

ATTENTION, CLASSES = "attention", "classes"


@dataclass(frozen=True, eq=False)
class Findings:
    """All that is known of one slide, ready to be written in any format.

    Attributes
    ----------
    slide
        The slide's file; without it there is no picture of the tissue.
    class_map
        It may cover fewer patches than the prediction, as after a cancelled analysis.
    model
        The model's file; None where no model was asked.
    slide_mpp
        Micrometres per level-0 pixel to open the slide with, for files without them.
    mpp_from_user
        Whether the pixel size is what the user entered, because the file states none.
    title
        What to call the slide; None takes a pseudonym.
    faithfulness, what_ifs
        The questions that were asked, answered.
    command
        The command that makes the report again; None takes that of an analysis with
        the usual settings.
    tissue_map
        Kinds of tissue, of the same patches as ``prediction``.
    """

    prediction: Prediction
    slide: Path | None
    class_map: ClassMap | None = None
    model: Path | None = None
    mpp_from_user: bool = False
    slide_mpp: float | None = None
    title: str | None = None
    faithfulness: Faithfulness | None = None
    what_ifs: tuple[WhatIf, ...] = ()
    command: str | None = None
    tissue_map: TissueMap | None = None

    @property
    def is_of_tissue(self) -> bool:
        """Whether no model was asked: kinds of tissue are what was found."""
        return self.tissue_map is not None and len(self.prediction.attention) == 0

    @property
    def called(self) -> str:
        """What to call the slide."""
        return self.title or self.prediction.pseudonym


@dataclass(frozen=True)
class Format:
    """A format of files.

    Attributes
    ----------
    name
        What file dialogs call it.
    endings
        Of its files, the usual one first.
    """

    name: str
    endings: tuple[str, ...]
    write: Callable[[Path, "_Export"], None]

    @property
    def name_filter(self) -> str:
        """As file dialogs list it: ``Report (*.html)``."""
        return f"{self.name} (*{self.endings[0]})"

    def fits(self, path: Path) -> bool:
        return path.name.lower().endswith(self.endings)

    def with_ending(self, path: Path) -> Path:
        """A path with an ending of this format, in place of another format's."""
        if self.fits(path):
            return path
        name = path.name
        for ending in (*ENDINGS, ".tif", ".tiff"):
            if name.lower().endswith(ending):
                name = name[: -len(ending)]
                break
        return path.with_name(name + self.endings[0])


def format_of(path: Path) -> Format:
    """The format that a file's ending names."""
    for found in FORMATS:
        if found.fits(path):
            return found
    raise InputError(f"{path.name}: its ending must be one of {', '.join(ENDINGS)}.")


def write_findings(
    path: Path,
    findings: Findings,
    *,
    show: str = ATTENTION,
    unit: str = TIMES_AVERAGE,
) -> None:
    """Write findings in the format of the file's ending, the whole file or none.

    Parameters
    ----------
    show
        What a picture shows: ``attention`` or ``classes``.
    unit
        Of the attention in a picture: ``times average``, the same scale on every
        slide, or ``percentile``, which uses all colours on every slide.
    """
    from spt_core.slides import open_slide
    from spt_core.slides.recipe import to_ask_for

    path = Path(path)
    chosen = format_of(path)
    if findings.slide is None:
        chosen.write(path, _Export(findings, None, show, unit))
        return
    seen = to_ask_for(findings.prediction.facts.channels)
    slide = open_slide(findings.slide, findings.slide_mpp, channels=seen)
    try:
        refuse_other_slide(findings.prediction, slide)
        chosen.write(path, _Export(findings, slide, show, unit))
    finally:
        slide.close()


def refuse_other_slide(prediction: Prediction, slide: "Slide") -> None:
    """Raise where a slide is not the one that a prediction is of."""
    stated = prediction.facts.slide_fingerprint
    if stated and slide.fingerprint != stated:
        raise InputError(
            f"{slide.path.name} is not the slide that these features were made from."
        )


@dataclass(frozen=True, eq=False)
class _Export:
    """Findings with their slide open, and what a picture shows of them."""

    findings: Findings
    slide: "Slide | None"
    show: str
    unit: str

    @property
    def geometry(self) -> Geometry:
        return Geometry.of(
            self.findings.prediction.facts,
            self.slide,
            mpp_from_user=self.findings.mpp_from_user,
        )

    @property
    def class_map(self) -> ClassMap | None:
        """The class map in the order of the prediction's patches."""
        prediction, found = self.findings.prediction, self.findings.class_map
        if found is None or prediction.probabilities is None:
            return None
        return found.at(prediction.xy)

    @property
    def model(self) -> "ModelWords | None":
        from spt_core.insight.model_words import read_model_words

        return read_model_words(self.findings.model) if self.findings.model else None


def _write_geojson(path: Path, export: _Export) -> None:
    from spt_core.insight.geojson import write_geojson

    prediction, kinds = export.findings.prediction, export.findings.tissue_map
    if kinds is not None and export.findings.is_of_tissue:
        from spt_core.insight.tissue_export import write_tissue_geojson

        write_tissue_geojson(path, kinds, export.geometry)
        return
    write_geojson(path, prediction, export.class_map, export.geometry)


def _write_ome_tiff(path: Path, export: _Export) -> None:
    from spt_core.insight.ome_tiff import write_ome_tiff

    findings = export.findings
    if findings.tissue_map is not None and findings.is_of_tissue:
        from spt_core.insight.tissue_export import write_tissue_ome_tiff

        write_tissue_ome_tiff(
            path,
            findings.tissue_map,
            findings.prediction,
            export.geometry,
            name=findings.called,
        )
        return
    write_ome_tiff(
        path,
        findings.prediction,
        export.class_map,
        export.geometry,
        name=findings.called,
    )


def _write_png(path: Path, export: _Export) -> None:
    from spt_core.insight.overlay import (
        attention_overlay,
        class_overlay,
        kinds_overlay,
        write_png,
    )
    from spt_core.insight.picture import tissue_picture

    prediction, classes = export.findings.prediction, export.class_map
    if len(prediction) == 0:
        raise InputError("An empty slide has no picture: it has no patch to show.")
    model = export.model
    title = model.title if model else ""
    geometry = export.geometry
    picture = tissue_picture(prediction, export.slide)
    kinds = export.findings.tissue_map
    if kinds is not None and export.findings.is_of_tissue:
        image = kinds_overlay(prediction, kinds, picture, geometry)
    elif export.show == ATTENTION:
        image = attention_overlay(
            prediction, picture, geometry, unit=export.unit, model=title
        )
    elif classes is None:
        raise InputError("There is no class map to show: the model has none.")
    else:
        image = class_overlay(prediction, classes, picture, geometry, model=title)
    write_png(path, image)


def _write_report(path: Path, export: _Export) -> None:
    from spt_core.insight.report import ReportParts, write_report

    findings, model = export.findings, export.model
    if findings.tissue_map is not None and findings.is_of_tissue:
        from spt_core.insight.tissue_report import TissueReport, write_tissue_report

        parts = TissueReport(
            findings.tissue_map,
            findings.prediction,
            export.geometry,
            findings.called,
            export.slide,
        )
        write_tissue_report(path, parts)
        return
    sha256 = ""
    if findings.model is not None:
        with findings.model.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    answer = ReportParts(
        prediction=findings.prediction,
        geometry=export.geometry,
        called=findings.called,
        card=model.card if model else None,
        model_name=findings.model.name if findings.model else "no model",
        model_sha256=sha256,
        command=_command(findings),
        slide=export.slide,
        classes=export.class_map,
        faithfulness=findings.faithfulness,
        what_ifs=findings.what_ifs,
    )
    write_report(path, answer)


def _command(findings: Findings) -> str:
    from spt_core.insight.reproducing import SLIDE_WORD, command_again

    if findings.command is not None:
        return findings.command
    if findings.model is None:
        return ""
    mpp = findings.slide_mpp
    options = [] if mpp is None else ["--slide-mpp", f"{mpp:g}"]
    if findings.prediction.facts.site is not None:
        options += ["--site", findings.prediction.facts.site]
    return command_again(findings.model, SLIDE_WORD, options)


FORMATS = (
    Format("Report", (".html",), _write_report),
    Format("QuPath objects", (".geojson",), _write_geojson),
    Format("OME-TIFF", (".ome.tif", ".ome.tiff"), _write_ome_tiff),
    Format("Picture", (".png",), _write_png),
)
ENDINGS = tuple(ending for one in FORMATS for ending in one.endings)
