"""The learning curve as a picture, drawn with Pillow alone."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from spt_core.files import written_whole

WIDTH, PANEL, MARGIN = 900, 260, 60
INK, GRID, LINE = (40, 40, 40), (225, 225, 225), (31, 119, 180)


def draw_curves(
    path: Path, curves: Mapping[str, tuple[Sequence[float], Sequence[float]]]
) -> None:
    """One panel per curve, each ``name: (steps, values)``; written as PNG."""
    panels = {name: xy for name, xy in curves.items() if len(xy[0])}
    image = Image.new("RGB", (WIDTH, PANEL * max(1, len(panels))), "white")
    draw = ImageDraw.Draw(image)
    font = ImageFont.load_default(14)
    for number, (name, (steps, values)) in enumerate(panels.items()):
        _panel(draw, font, number * PANEL, name, steps, values)
    with written_whole(path) as temporary:
        image.save(temporary)


def _panel(
    draw: ImageDraw.ImageDraw,
    font: ImageFont.FreeTypeFont | ImageFont.ImageFont,
    top: int,
    name: str,
    steps: Sequence[float],
    values: Sequence[float],
) -> None:
    left, right = MARGIN + 20, WIDTH - MARGIN
    upper, lower = top + 36, top + PANEL - 36
    low, high = min(values), max(values)
    if high == low:
        low, high = low - 0.5, high + 0.5
    first, last = min(steps), max(max(steps), min(steps) + 1)

    def place(step: float, value: float) -> tuple[float, float]:
        x = left + (step - first) / (last - first) * (right - left)
        return x, lower - (value - low) / (high - low) * (lower - upper)

    for share in (0, 0.5, 1):
        value = low + share * (high - low)
        _, y = place(first, value)
        draw.line([(left, y), (right, y)], fill=GRID)
        draw.text((left - 6, y), f"{value:.3g}", INK, font, anchor="rm")
        step = first + share * (last - first)
        x, _ = place(step, low)
        draw.text((x, lower + 8), f"{step:.0f}", INK, font, anchor="mt")
    draw.text((left, top + 10), f"{name}   (over steps)", INK, font)
    points = [place(step, value) for step, value in zip(steps, values, strict=True)]
    if len(points) > 1:
        draw.line(points, fill=LINE, width=2, joint="curve")
    for x, y in points if len(points) < 60 else ():
        draw.ellipse([x - 2, y - 2, x + 2, y + 2], fill=LINE)
