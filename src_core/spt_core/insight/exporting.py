"""What was found on a slide, written as a report or as maps for other programs.

One way for the command and the window. It needs no torch, and modules that a window
should not load at its start are loaded when something is written.
"""

from dataclasses import dataclass
from pathlib import Path

from spt_core.insight.results import ClassMap, Faithfulness, Prediction

ATTENTION, CLASSES = "attention", "classes"
TIMES_AVERAGE = "times average"


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
    command
        The command that makes the report again; None takes that of an analysis with
        the usual settings.
    """

    prediction: Prediction
    slide: Path | None
    class_map: ClassMap | None = None
    model: Path | None = None
    mpp_from_user: bool = False
    slide_mpp: float | None = None
    title: str | None = None
    faithfulness: Faithfulness | None = None
    command: str | None = None


@dataclass(frozen=True)
class Format:
    """A format of files; the first of its ``endings`` is the usual one."""

    name: str
    endings: tuple[str, ...]

    @property
    def name_filter(self) -> str:
        """As file dialogs list it: ``Report (*.html)``."""
        return f"{self.name} (*{self.endings[0]})"

    def fits(self, path: Path) -> bool:
        return path.name.lower().endswith(self.endings)

    def with_ending(self, path: Path) -> Path:
        """A path with an ending of this format, in place of another format's."""
        raise NotImplementedError


FORMATS = (
    Format("Report", (".html",)),
    Format("QuPath objects", (".geojson",)),
    Format("OME-TIFF", (".ome.tif", ".ome.tiff")),
    Format("Picture", (".png",)),
)


def format_of(path: Path) -> Format:
    """The format that a file's ending names."""
    raise NotImplementedError


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
    raise NotImplementedError
