"""A map over the tissue as a picture with its legend and a scale bar."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import floor, log10
from pathlib import Path
from textwrap import wrap

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from spt_core.files import written_whole
from spt_core.insight.colours import (
    BY_LOOKS,
    EACH_ALONE,
    EVEN,
    FILL_OPACITY,
    LIMITS,
    NOT_WHERE,
    class_colour,
    heat,
)
from spt_core.insight.geometry import Geometry
from spt_core.insight.maps import MEAN, TIMES_AVERAGE, attention_values, cell_map
from spt_core.insight.picture import Picture
from spt_core.insight.regions import stands_out
from spt_core.insight.results import ClassMap, Prediction, Verdict
from spt_core.insight.tissue_map import TissueMap
from spt_core.insight.wording import UNLIKE, coverage, pixel_size_note
from spt_core.notice import NOT_FOR_DIAGNOSIS

OPACITY = 0.7
BAR_WIDTH, MARGIN, FOOT, LEGEND = 22, 16, 46, 270
# The lowest picture; where a legend's colours begin; the height of a line of text,
# about the width of its letters, and how many of these a legend is wide.
LOWEST, BAR_TOP, LINE, LETTER, LEGEND_LETTERS = 240, 52, 18, 8, 34
FONTS = ("DejaVuSans.ttf", "Arial.ttf", "arial.ttf", "Helvetica.ttc")
_COMPLETE: tuple[str | None, ...] = ("DejaVu Sans", "Arial", "Helvetica")
INK, PAPER = (30, 30, 30), (255, 255, 255)


def attention_overlay(
    prediction: Prediction,
    picture: Picture,
    geometry: Geometry,
    *,
    head: int = MEAN,
    unit: str = TIMES_AVERAGE,
    opacity: float = OPACITY,
    model: str = "",
) -> Image.Image:
    """Attention over the tissue, on the scale that the window uses.

    Parameters
    ----------
    model
        The model's title, written below the picture.
    unit
        ``times average``, the same scale on every slide, or ``percentile``, which
        uses all colours on every slide, however even its attention is.
    """
    values = attention_values(prediction.attention, head=head, unit=unit)
    drawn = cell_map(values, prediction.p, prediction.xy, prediction.facts)
    spread = picture.spread(drawn)
    low, high = LIMITS[unit]
    colour = heat((spread - low) / (high - low))
    alpha = np.where(np.isfinite(spread), opacity * colour[..., 3], 0)
    rgb = _blend(picture.rgb, 255 * colour[..., :3], alpha)
    which = "mean of heads" if head == MEAN else f"head {head + 1}"
    times = attention_values(prediction.attention, head=head, unit=TIMES_AVERAGE)
    words = [NOT_WHERE] if stands_out(times) else [EVEN, NOT_WHERE]
    lines = [line for one in words for line in wrap(one, LEGEND_LETTERS)]
    bar = max(120, min(max(rgb.shape[0], LOWEST) - 130, 320))
    tall = BAR_TOP + bar + 12 + LINE * len(lines)
    notes = _notes(prediction, model)
    image = _framed(rgb, picture, geometry, notes, tall)
    _colour_bar(image, rgb.shape[1], bar, f"Attention ({which})", unit, lines)
    return image


def class_overlay(
    prediction: Prediction,
    classes: ClassMap,
    picture: Picture,
    geometry: Geometry,
    *,
    opacity: float = FILL_OPACITY,
    model: str = "",
) -> Image.Image:
    """The likeliest class of each patch over the tissue; black where unsure."""
    labels = classes.labels
    named = [
        _Named(
            class_colour(label),
            classes.name_of(label),
            f"{np.mean(labels == label) if len(labels) else 0:.0%}",
        )
        for label in (*range(len(classes.classes)), -1)
    ]
    rows = np.where(labels < 0, len(classes.classes), labels)
    return _named_overlay(
        rows,
        named,
        prediction,
        picture,
        geometry,
        title=("Class map", "% of patches"),
        says=EACH_ALONE,
        notes=_notes(prediction, model),
        opacity=opacity,
    )


def kinds_overlay(
    prediction: Prediction,
    found: TissueMap,
    picture: Picture,
    geometry: Geometry,
    *,
    opacity: float = FILL_OPACITY,
) -> Image.Image:
    """The kind of tissue of each patch over the tissue, with its area."""
    areas = found.areas_mm2(geometry.um_pixel_xy)
    named = []
    for row, title in enumerate(found.kinds.titles):
        red, green, blue = found.kinds.rgb[row].tolist()
        share = f"{found.shares[row]:.0%}"
        how_much = share if areas is None else f"{areas[row]:.2f} mm², {share}"
        named.append(_Named((red, green, blue), title, how_much))
    return _named_overlay(
        found.labels,
        named,
        prediction,
        picture,
        geometry,
        title=("Kinds of tissue", "by looks alone"),
        says=BY_LOOKS,
        notes=[],
        opacity=opacity,
    )


@dataclass(frozen=True)
class _Named:
    """A colour of a map, what it is, and how much of it there is."""

    rgb: tuple[int, int, int]
    name: str
    share: str


def _named_overlay(
    labels: NDArray[np.integer],
    named: Sequence[_Named],
    prediction: Prediction,
    picture: Picture,
    geometry: Geometry,
    *,
    title: tuple[str, str],
    says: str,
    notes: Sequence[str],
    opacity: float,
) -> Image.Image:
    """Rows of ``named`` (n,) over the tissue, with their names in the legend."""
    numbers = labels.astype(np.float64)
    drawn = cell_map(numbers, prediction.p, prediction.xy, prediction.facts)
    values = picture.spread(drawn)
    there = np.isfinite(values)
    table = np.array([one.rgb for one in named], np.float32)
    rows = np.where(there, values, 0).astype(int)
    rgb = _blend(picture.rgb, table[rows], opacity * there)
    entries = [
        (one.rgb, wrap(f"{one.name}  {one.share}", LEGEND_LETTERS - 6)) for one in named
    ]
    lines = wrap(says, LEGEND_LETTERS)
    tall = BAR_TOP + LINE * len(lines)
    tall += sum(8 + LINE * len(text) for _, text in entries)
    image = _framed(rgb, picture, geometry, notes, tall + 8)
    draw = ImageDraw.Draw(image)
    left, y = rgb.shape[1] + 2 * MARGIN, MARGIN
    _write(draw, (left, y), title[0], 17)
    _write(draw, (left, y + 24), title[1], 13)
    y += BAR_TOP
    for colour, text in entries:
        draw.rectangle((left, y, left + 16, y + 16), colour, outline=INK)
        _write_lines(draw, (left + 26, y - 1), text, 14)
        y += 8 + LINE * len(text)
    _write_lines(draw, (left, y + 8), lines)
    return image


def write_png(path: Path, image: Image.Image) -> None:
    with written_whole(Path(path)) as temporary:
        image.save(temporary, format="PNG", optimize=True)


def _blend(
    base: NDArray[np.uint8], colour: NDArray[np.floating], alpha: NDArray[np.floating]
) -> NDArray[np.uint8]:
    alpha = alpha[..., None]
    return (base * (1 - alpha) + colour * alpha).round().astype(np.uint8)


def _notes(prediction: Prediction, model: str) -> list[str]:
    """What to know about the answer behind a map, and about its model."""
    notes = []
    if prediction.verdict == Verdict.UNLIKE:
        notes.append(UNLIKE)
    elif prediction.verdict == Verdict.UNDECIDED:
        notes.append("Undecided: no class is named for the whole slide.")
    if not prediction.is_whole:
        notes.append(f"{coverage(prediction)}.")
    lines = [" ".join(notes), f"Model: {model}." if model else ""]
    return [line for line in lines if line]


def _framed(
    rgb: NDArray[np.uint8],
    picture: Picture,
    geometry: Geometry,
    notes: Sequence[str],
    legend_height: int,
) -> Image.Image:
    """The picture on paper, with room for a legend, a scale bar and the notice."""
    height, width = rgb.shape[:2]
    across = width + MARGIN + LEGEND
    if note := pixel_size_note(geometry):
        notes = [f"Pixel size {note}.", *notes]
    letters = max(30, across // LETTER)
    lines = [n for one in (*notes, NOT_FOR_DIAGNOSIS) for n in wrap(one, letters)]
    bottom = MARGIN + max(height, LOWEST, legend_height)
    size = (across + MARGIN, bottom + FOOT + LINE * len(lines))
    image = Image.new("RGB", size, PAPER)
    image.paste(Image.fromarray(rgb), (MARGIN, MARGIN))
    draw = ImageDraw.Draw(image)
    _scale_bar(draw, MARGIN, bottom + 12, width, picture, geometry)
    _write_lines(draw, (MARGIN, bottom + 38), lines)
    return image


def _scale_bar(
    draw: ImageDraw.ImageDraw,
    x: int,
    y: int,
    width: int,
    picture: Picture,
    geometry: Geometry,
) -> None:
    if geometry.um_pixel_xy is None:
        _write(draw, (x, y), "pixel size unknown: no scale bar", 13)
        return
    um, pixels = scale_bar(width, picture.l0_scale * geometry.um_pixel_xy[0])
    draw.rectangle((x, y + 6, x + pixels, y + 11), INK)
    text = f"{um:g} µm" if um < 1000 else f"{um / 1000:g} mm"
    _write(draw, (x + pixels + 10, y - 1), text, 15)


def scale_bar(width: int, um_pixel: float) -> tuple[float, int]:
    """A round length in micrometres of about a quarter of the width, and its pixels."""
    wanted = width * um_pixel / 4
    ten = 10 ** floor(log10(wanted))
    um = max(step * ten for step in (1, 2, 5) if step * ten <= wanted * 1.0001)
    return um, max(1, round(um / um_pixel))


def _colour_bar(
    image: Image.Image,
    width: int,
    height: int,
    title: str,
    unit: str,
    lines: Sequence[str],
) -> None:
    draw = ImageDraw.Draw(image)
    left, top = width + 2 * MARGIN, MARGIN
    _write(draw, (left, top), title, 17)
    _write(draw, (left, top + 24), unit, 13)
    top += BAR_TOP
    ramp = heat(np.linspace(1, 0, height))[:, None].repeat(BAR_WIDTH, axis=1)
    paper = np.full((*ramp.shape[:2], 3), PAPER, np.uint8)
    bar = _blend(paper, 255 * ramp[..., :3], ramp[..., 3])
    image.paste(Image.fromarray(bar), (left, top))
    low, high = LIMITS[unit]
    for part in (1.0, 0.75, 0.5, 0.25, 0.0):
        y = top + round((1 - part) * (height - 1))
        draw.line((left + BAR_WIDTH, y, left + BAR_WIDTH + 5, y), INK)
        text = f"{low + part * (high - low):g} {'×' if unit == TIMES_AVERAGE else '%'}"
        if part == 1 and unit == TIMES_AVERAGE:
            text += " or more"
        _write(draw, (left + BAR_WIDTH + 10, y - 8), text, 13)
    _write_lines(draw, (left, top + height + 12), lines)


@cache
def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    for name in FONTS:
        try:
            return ImageFont.truetype(name, size)
        except OSError:
            continue
    return ImageFont.load_default(size)


def _write_lines(
    draw: ImageDraw.ImageDraw,
    place: tuple[int, int],
    lines: Sequence[str],
    size: int = 13,
) -> None:
    for number, line in enumerate(lines):
        _write(draw, (place[0], place[1] + LINE * number), line, size)


def _write(
    draw: ImageDraw.ImageDraw, place: tuple[int, int], text: str, size: int
) -> None:
    font = _font(size)
    named = isinstance(font, ImageFont.FreeTypeFont) and font.getname()[0] in _COMPLETE
    if not named:
        # The font that Pillow brings lacks both characters.
        text = text.replace("µ", "u").replace("×", "x")
    draw.text(place, text, INK, font)
