"""Small plots as SVG, drawn by hand: a frame with axes, and what is put in it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from spt_core.insight.colours import class_colour, heat
from spt_core.insight.html_page import picture_data

INK, FAINT, GRID = "#1e1e1e", "#5a5a5a", "#e2e4ea"
# About the width of a letter, in parts of its size.
LETTER = 0.56
Values = Sequence[float] | NDArray[np.floating]


def colour(number: int) -> str:
    """The colour of a class, a site or a line by its number; grey below 0."""
    return "#{:02x}{:02x}{:02x}".format(*class_colour(number))


def shortened(text: str, letters: int) -> str:
    return text if len(text) <= letters else text[: max(1, letters - 1)] + "…"


@dataclass
class Plot:
    """A frame from ``x`` to ``x`` and ``y`` to ``y``; things are placed by value.

    ``left``, ``right``, ``top`` and ``bottom`` are the margins, in pixels.
    """

    width: float
    height: float
    x: tuple[float, float] = (0.0, 1.0)
    y: tuple[float, float] = (0.0, 1.0)
    left: float = 46
    right: float = 12
    top: float = 12
    bottom: float = 42
    parts: list[str] = field(default_factory=list)

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Pixels of a place in the frame."""
        across = (x - self.x[0]) / ((self.x[1] - self.x[0]) or 1)
        up = (y - self.y[0]) / ((self.y[1] - self.y[0]) or 1)
        return (
            self.left + across * (self.width - self.left - self.right),
            self.height - self.bottom - up * (self.height - self.top - self.bottom),
        )

    def x_axis(self, ticks: Iterable[tuple[float, str]], title: str = "") -> None:
        for value, name in ticks:
            px, bottom = self.at(value, self.y[0])
            self._stroke(px, self.top, px, bottom, GRID)
            self.text(px, bottom + 15, name, anchor="middle", size=11)
        middle = (self.left + self.width - self.right) / 2
        self.text(middle, self.height - 6, title, anchor="middle")

    def y_axis(self, ticks: Iterable[tuple[float, str]], title: str = "") -> None:
        for value, name in ticks:
            left, py = self.at(self.x[0], value)
            self._stroke(left, py, self.width - self.right, py, GRID)
            self.text(left - 6, py + 4, name, anchor="end", size=11)
        middle = (self.top + self.height - self.bottom) / 2
        self.text(12, middle, title, anchor="middle", turned=-90)

    def line(
        self, x: Values, y: Values, stroke: str, *, width: float = 2, dash: str = ""
    ) -> None:
        places = [self.at(a, b) for a, b in zip(x, y, strict=True)]
        points = " ".join(f"{px:.1f},{py:.1f}" for px, py in places)
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(
            f'<polyline points="{points}" fill="none" stroke="{stroke}" '
            f'stroke-width="{width:g}" stroke-linejoin="round"{dashed}/>'
        )

    def dots(self, x: Values, y: Values, fill: str, *, size: float = 7) -> None:
        """Dots of one colour, as one path: a thousand take few bytes."""
        places = [self.at(a, b) for a, b in zip(x, y, strict=True)]
        if not places:
            return
        path = "".join(f"M{px:.1f} {py:.1f}h0" for px, py in places)
        self.parts.append(
            f'<path d="{path}" stroke="{fill}" stroke-width="{size:g}" '
            'stroke-linecap="round" fill="none"/>'
        )

    def box(self, px: float, py: float, width: float, height: float, fill: str) -> None:
        """A filled box, in pixels."""
        self.parts.append(
            f'<rect x="{px:.1f}" y="{py:.1f}" width="{width:.1f}" '
            f'height="{height:.1f}" fill="{fill}"/>'
        )

    def text(
        self,
        px: float,
        py: float,
        words: str,
        *,
        anchor: str = "start",
        size: float = 12,
        fill: str = INK,
        bold: bool = False,
        turned: float = 0,
    ) -> None:
        """Words at a place in pixels, turned by degrees; text, not SVG."""
        if not words:
            return
        weight = ' font-weight="600"' if bold else ""
        place = f'x="{px:.1f}" y="{py:.1f}"'
        if turned:
            place = f'transform="translate({px:.1f} {py:.1f}) rotate({turned:g})"'
        self.parts.append(
            f'<text {place} text-anchor="{anchor}" '
            f'font-size="{size:g}" fill="{fill}"{weight}>{escape(words)}</text>'
        )

    def picture(
        self, px: float, py: float, width: float, height: float, image: Image.Image
    ) -> None:
        """A picture whose pixels stay sharp, at a place in pixels."""
        self.parts.append(
            f'<image x="{px:.1f}" y="{py:.1f}" width="{width:.1f}" '
            f'height="{height:.1f}" preserveAspectRatio="none" '
            f'style="image-rendering:pixelated" href="{picture_data(image)}"/>'
        )

    def frame(self) -> None:
        px, py = self.at(self.x[0], self.y[1])
        right, bottom = self.at(self.x[1], self.y[0])
        self.parts.append(
            f'<rect x="{px:.1f}" y="{py:.1f}" width="{right - px:.1f}" '
            f'height="{bottom - py:.1f}" fill="none" stroke="{FAINT}"/>'
        )

    def svg(self, said: str) -> str:
        """The plot, with what it shows for those who cannot see it."""
        return (
            f'<svg viewBox="0 0 {self.width:g} {self.height:g}" role="img" '
            f'style="max-width:{1.15 * self.width:.0f}px" '
            f'aria-label="{escape(said)}">{"".join(self.parts)}</svg>'
        )

    def _stroke(self, x0: float, y0: float, x1: float, y1: float, ink: str) -> None:
        self.parts.append(
            f'<path d="M{x0:.1f} {y0:.1f}L{x1:.1f} {y1:.1f}" stroke="{ink}"/>'
        )


def colour_bar(plot: Plot, px: float, py: float, height: float) -> None:
    """The colours of numbers from low (below) to high, in pixels."""
    bar = opaque(np.linspace(1, 0, 64)[:, None])
    plot.picture(px, py, 12, height, bar)


def opaque(values: NDArray[np.floating]) -> Image.Image:
    """Numbers (rows, cols) from 0 to 1 in the colours of maps; NaN is light grey."""
    rgb = 255 * heat(values)[..., :3]
    rgb = np.where(np.isfinite(values)[..., None], rgb, 238)
    return Image.fromarray(np.round(rgb).astype(np.uint8))


def legend(names: Sequence[tuple[str, str]]) -> str:
    """Colours and what they stand for, as HTML: pairs of colour and text."""
    return (
        '<p class="legend">'
        + "".join(
            f'<span><i style="background:{shade}"></i>{escape(name)}</span>'
            for shade, name in names
        )
        + "</p>"
    )


SHARE_TICKS = tuple((share, f"{share:g}") for share in (0, 0.25, 0.5, 0.75, 1))
