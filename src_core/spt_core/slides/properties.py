"""Which of a slide's properties are technical, and which pixel sizes are believed."""

import re
from collections.abc import Mapping

from spt_core.errors import InputError

PLAUSIBLE_MPP = (0.05, 20.0)

# Only what is named here is ever kept: makers put patients' names, dates, barcodes and
# file names in unforeseen places, so a list of forbidden keys could not be complete.
_TECHNICAL = re.compile(
    r"""
    openslide\.(vendor|mpp-[xy]|objective-power|background-color|icc-size|level-count
        |bounds-(x|y|width|height)|level\[\d+\]\.[a-z-]+|region\[\d+\]\.[a-z]+)
    | aperio\.(AppMag|MPP|DisplayColor|Exposure\ (Time|Scale)|OriginalWidth
        |OriginalHeight|Originalheight|Gamma|StripeWidth)
    | hamamatsu\.(SourceLens|XOffsetFromSlideCentre|YOffsetFromSlideCentre
        |Objective\.Lens\.Magnificant|LogicalWidth|LogicalHeight)
    | leica\.(aperture|illumination-source|objective|device-model|device-version)
    | mirax\.GENERAL\.(OBJECTIVE_MAGNIFICATION|OUTPUT_RESOLUTION|IMAGENUMBER_[XY])
    | ventana\.(Magnification|ScanRes)
    | philips\.(DICOM_PIXEL_SPACING|DICOM_BITS_(ALLOCATED|STORED)|PIM_DP_UFS_VERSION)
    | zeiss\.(.*\.)?(NominalMagnification|ScalingX|ScalingY)
    | tiff\.(XResolution|YResolution|ResolutionUnit)
    | dicom\.(Rows|Columns|NumberOfFrames|TotalPixelMatrix(Rows|Columns)|Modality
        |PhotometricInterpretation|SamplesPerPixel|Bits(Allocated|Stored)
        |ImagedVolume(Width|Height|Depth)|LossyImageCompression(Ratio|Method)\[\d+\]
        |ImageType\[\d+\]|NumberOfOpticalPaths|NumberOfFocalPlanes
        |SharedFunctionalGroupsSequence\[0\]\.PixelMeasuresSequence\[0\]
            \.(PixelSpacing\[[01]\]|SliceThickness))
    """,
    re.VERBOSE,
)


def technical(properties: Mapping[str, str]) -> dict[str, str]:
    """Keep what says how the slide was scanned, and nothing about the patient."""
    return {k: str(v) for k, v in properties.items() if _TECHNICAL.fullmatch(k)}


def identifying(properties: Mapping[str, str]) -> dict[str, str]:
    """All the rest: what may identify the patient."""
    return {k: str(v) for k, v in properties.items() if not _TECHNICAL.fullmatch(k)}


def scanner_of(properties: Mapping[str, str], mpp: float | None) -> str | None:
    """A scanner in a few words, from properties that are technical; None if unsaid."""
    power = properties.get("openslide.objective-power")
    said = [
        properties.get("openslide.vendor"),
        properties.get("leica.device-model"),
        power and f"{power}x",
        mpp and f"{mpp:.3f} um",
    ]
    return " ".join(words for words in said if words) or None


def is_plausible(mpp_xy: tuple[float, float]) -> bool:
    low, high = PLAUSIBLE_MPP
    return all(low <= mpp <= high for mpp in mpp_xy)


def doubt_note(mpp_xy: tuple[float, float]) -> str:
    """What is said of a pixel size that is not believed."""
    low, high = PLAUSIBLE_MPP
    return (
        f"The file says that a pixel is {mpp_xy[0]:g} × {mpp_xy[1]:g} µm, "
        f"which is outside {low:g} to {high:g} µm and not believed."
    )


def settle_mpp(
    from_file: tuple[float, float] | None, from_caller: float | None
) -> tuple[tuple[float, float] | None, list[str]]:
    """Choose the pixel size: the file's, else the caller's, else none.

    Returns
    -------
    mpp_xy
        Micrometres per pixel in x and y, or None.
    notes
        Sentences for the user about what was not believed.
    """
    low, high = PLAUSIBLE_MPP
    if from_caller is not None and not low <= from_caller <= high:
        raise InputError(
            f"A pixel size of {from_caller:g} µm is not plausible for a slide: "
            f"give one between {low:g} and {high:g} µm."
        )
    notes: list[str] = []
    if from_file is not None:
        if is_plausible(from_file):
            return from_file, notes
        notes.append(doubt_note(from_file))
    return (None if from_caller is None else (from_caller, from_caller)), notes
