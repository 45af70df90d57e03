"""Artefacts of a section: folds, tears, bubbles, pen marks, dust."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spt_core.sample.noise import Floats


@dataclass(frozen=True)
class Wave:
    """A wavy band: its centre line is a sine along ``angle``; pixels."""

    x: float
    y: float
    angle: float
    length: float
    width: float
    swing: float
    wavelength: float
    phase: float

    def reach(self) -> float:
        return self.length / 2 + self.swing + self.width + 8

    def near(self, left: int, top: int, right: int, bottom: int) -> bool:
        far = self.reach()
        return left - far < self.x < right + far and top - far < self.y < bottom + far

    def distances(self, x: Floats, y: Floats) -> tuple[Floats, Floats]:
        """Signed distance to the centre line, and how far inside both ends."""
        dx, dy = x - np.float32(self.x), y - np.float32(self.y)
        along = dx * np.float32(np.cos(self.angle)) + dy * np.float32(
            np.sin(self.angle)
        )
        across = dy * np.float32(np.cos(self.angle)) - dx * np.float32(
            np.sin(self.angle)
        )
        bend = self.swing * np.sin(along / self.wavelength * 2 * np.pi + self.phase)
        return across - bend.astype(np.float32), self.length / 2 - np.abs(along)


@dataclass(frozen=True)
class Disc:
    x: float
    y: float
    radius: float
    dark: float = 0.0

    def near(self, left: int, top: int, right: int, bottom: int) -> bool:
        far = self.radius + 8
        return left - far < self.x < right + far and top - far < self.y < bottom + far


@dataclass(frozen=True)
class Marks:
    """All marks of a slide."""

    folds: tuple[Wave, ...] = ()
    tears: tuple[Wave, ...] = ()
    pen: tuple[Wave, ...] = ()
    pen_colour: tuple[float, float, float] = (0.2, 0.3, 0.8)
    bubbles: tuple[Disc, ...] = ()
    dust: tuple[Disc, ...] = ()

    def near(self, left: int, top: int, right: int, bottom: int) -> "Marks":
        box = (left, top, right, bottom)
        return Marks(
            tuple(m for m in self.folds if m.near(*box)),
            tuple(m for m in self.tears if m.near(*box)),
            tuple(m for m in self.pen if m.near(*box)),
            self.pen_colour,
            tuple(m for m in self.bubbles if m.near(*box)),
            tuple(m for m in self.dust if m.near(*box)),
        )

    def on_glass(self) -> bool:
        """Whether anything here shows where there is no tissue."""
        return bool(self.pen or self.bubbles or self.dust)


_INKS = ((0.10, 0.62, 0.42), (0.12, 0.22, 0.78), (0.13, 0.13, 0.16))


def draw_marks(width: int, height: int, rng: np.random.Generator) -> Marks:
    side = min(width, height)
    area = width * height / 1e6

    def place() -> tuple[float, float]:
        return float(rng.uniform(0.1, 0.9) * width), float(
            rng.uniform(0.1, 0.9) * height
        )

    folds = tuple(
        Wave(
            *place(),
            angle=float(rng.uniform(0, np.pi)),
            length=float(rng.uniform(0.12, 0.35) * side),
            width=float(rng.uniform(14, 34)),
            swing=float(rng.uniform(20, 70)),
            wavelength=float(rng.uniform(0.2, 0.5) * side),
            phase=float(rng.uniform(0, 6)),
        )
        for _ in range(rng.integers(0, 4))
    )
    tears = tuple(
        Wave(
            *place(),
            angle=float(rng.uniform(0, np.pi)),
            length=float(np.exp(rng.uniform(np.log(150), np.log(0.2 * side)))),
            width=float(rng.uniform(5, 22)),
            swing=float(rng.uniform(5, 40)),
            wavelength=float(rng.uniform(300, 900)),
            phase=float(rng.uniform(0, 6)),
        )
        for _ in range(int(rng.integers(2, 12)))
    )
    pen: list[Wave] = []
    if rng.random() < 0.35:
        # A stroke or two along one side, as a slide is marked for a colleague.
        x, y = (
            float(rng.choice([0.08, 0.92]) * width),
            float(rng.uniform(0.3, 0.7) * height),
        )
        for _ in range(rng.integers(1, 3)):
            pen.append(
                Wave(
                    x,
                    y,
                    angle=float(np.pi / 2 + rng.uniform(-0.12, 0.12)),
                    length=float(rng.uniform(0.3, 0.6) * side),
                    width=float(rng.uniform(0.008, 0.014) * side),
                    swing=float(rng.uniform(0.005, 0.015) * side),
                    wavelength=float(rng.uniform(0.4, 0.9) * side),
                    phase=float(rng.uniform(0, 6)),
                )
            )
            x += float(rng.uniform(-0.03, 0.03) * width)
    bubbles = tuple(
        Disc(
            *place(), radius=float(np.exp(rng.uniform(np.log(60), np.log(0.05 * side))))
        )
        for _ in range(rng.integers(0, 4))
    )
    dust = tuple(
        Disc(*place(), float(rng.uniform(1.5, 7)), float(rng.uniform(0.4, 0.85)))
        for _ in range(int(min(area * 0.25, 400) * rng.uniform(0.3, 1.5)) + 2)
    )
    ink = _INKS[int(rng.integers(len(_INKS)))]
    return Marks(folds, tears, tuple(pen), ink, bubbles, dust)


def fold_density(folds: tuple[Wave, ...], x: Floats, y: Floats) -> Floats:
    """How many layers of tissue lie on each other: 1, and near 2 inside a fold."""
    layers = np.ones(np.broadcast_shapes(x.shape, y.shape), np.float32)
    for fold in folds:
        d, end = fold.distances(x, y)
        taper = np.clip(end / (0.3 * fold.length), 0, 1)
        inside = fold.width * np.sqrt(taper) - np.abs(d)
        layers += 0.8 * np.clip(inside / 3, 0, 1)
        # The crease itself is dark.
        layers += 0.5 * np.exp(-((inside - 4) ** 2) / 8) * (taper > 0)
    return layers


def tear(tears: tuple[Wave, ...], x: Floats, y: Floats, grain: Floats) -> Floats:
    """What is left of the tissue, 0 to 1: nothing where it is torn."""
    left = np.ones(grain.shape, np.float32)
    for gap in tears:
        d, end = gap.distances(x, y)
        taper = np.sqrt(np.clip(end / (0.5 * gap.length), 0, 1))
        inside = (gap.width + 5 * grain) * taper - np.abs(d)
        left = np.minimum(left, np.clip(0.5 - inside / 2, 0.03, 1))
    return left


def mark_colours(
    rgb: NDArray[np.uint8], marks: Marks, left: int, top: int, grain: Floats
) -> None:
    """Draw bubbles, pen and dust over finished colours."""
    height, width = grain.shape
    x = np.arange(left, left + width, dtype=np.float32)[None, :]
    y = np.arange(top, top + height, dtype=np.float32)[:, None]
    if marks.bubbles or marks.pen:
        light = np.ones(rgb.shape, np.float32)
        for bubble in marks.bubbles:
            d = np.hypot(x - np.float32(bubble.x), y - np.float32(bubble.y))
            d -= np.float32(bubble.radius)
            ring = 0.45 * np.exp(-((d / 5) ** 2))
            ring += 0.16 * np.exp(-(((d + 14) / 9) ** 2))
            ring -= 0.05 * np.exp(-(((d - 12) / 6) ** 2))
            light *= (1 - ring)[..., None]
        for stroke in marks.pen:
            d, end = stroke.distances(x, y)
            inside = np.minimum(stroke.width - np.abs(d), end) + 3 * grain
            cover = np.clip(inside / 12, 0, 1) * np.clip(0.80 + 0.06 * grain, 0, 0.95)
            light *= 1 - cover[..., None] * (1 - np.array(marks.pen_colour, np.float32))
        rgb[:] = np.clip(np.rint(rgb * light), 0, 255)
    for speck in marks.dust:
        far = int(2 * speck.radius) + 4
        c, r = int(speck.x) - left, int(speck.y) - top
        box = (
            slice(max(r - far, 0), max(r + far, 0)),
            slice(max(c - far, 0), max(c + far, 0)),
        )
        d = np.hypot(x[:, box[1]] - speck.x, y[box[0]] - speck.y)
        inside = speck.radius * (1 + 0.35 * grain[box]) - d
        shade = 1 - speck.dark * np.clip(inside / 2 + 0.5, 0, 1)
        rgb[box] = np.rint(rgb[box] * shade[..., None])
