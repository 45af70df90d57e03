"""Tiles whose class is what they show, in colours that say nothing of it."""

import csv

import numpy as np
from PIL import Image

SIDE = 56


def picture(kind: int, rng: np.random.Generator) -> np.ndarray:
    """Dots (0), stripes (1) or rings (2), in two colours drawn at random."""
    y, x = np.mgrid[:SIDE, :SIDE].astype(float)
    angle = rng.uniform(0, np.pi)
    u, v = x * np.cos(angle) + y * np.sin(angle), y * np.cos(angle) - x * np.sin(angle)
    period, (a, b) = rng.uniform(7, 10), rng.uniform(0, 50, 2)
    phase_u, phase_v = 2 * np.pi * (u + a) / period, 2 * np.pi * (v + b) / period
    if kind == 0:
        ink = np.cos(phase_u) + np.cos(phase_v) > 0.9
    elif kind == 1:
        ink = np.cos(phase_u) > 0.2
    else:
        ink = np.abs(np.cos(phase_u) + np.cos(phase_v) - 0.6) < 0.45
    paper, dye = rng.uniform(120, 250, 3), rng.uniform(20, 130, 3)
    pixels = np.where(ink[..., None], dye, paper) + rng.normal(0, 12, (SIDE, SIDE, 3))
    return pixels.clip(0, 255).astype(np.uint8)


def write_tiles(folder, patients=12, a_patient=8, seed=0, mpp=0.5):
    """``tiles/*.png`` and ``tiles.csv``: file,slide,patient,mpp,label."""
    rng = np.random.default_rng(seed)
    (folder / "tiles").mkdir(parents=True)
    with (folder / "tiles.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(("file", "slide", "patient", "mpp", "label"))
        for patient in range(patients):
            for number in range(a_patient):
                name = f"p{patient}-{number}.png"
                Image.fromarray(picture(patient % 3, rng)).save(folder / "tiles" / name)
                slide = f"s{patient}-{number % 2}"
                table.writerow((name, slide, f"p{patient}", mpp, patient % 3))
    return folder
