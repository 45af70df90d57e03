"""Draw docs/pictures/sample-contact-sheet.jpg: the kinds, at low and high zoom."""

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np
import openslide
from PIL import Image, ImageDraw, ImageFont
from scipy.ndimage import distance_transform_edt

from spt_core.sample import TUMOURS, truth_paths, write_sample_slide

ROOT = Path(__file__).resolve().parents[1]
SHEET = ROOT / "docs" / "pictures" / "sample-contact-sheet.jpg"
CELL = 420
GAP = 10


def middle_of(slide: Path, value: int) -> tuple[int, int] | None:
    """Slide pixels deepest inside a class of the truth mask, if it is there."""
    mask_path, classes_path = truth_paths(slide)
    scale = json.loads(classes_path.read_text(encoding="utf-8"))["scale"]
    here = np.asarray(Image.open(mask_path)) == value
    if not here.any():
        return None
    depth = distance_transform_edt(np.pad(here, 1))[1:-1, 1:-1]
    row, col = np.unravel_index(depth.argmax(), depth.shape)
    return int(col * scale), int(row * scale)


def view(slide: openslide.OpenSlide, centre: tuple[int, int], wide: int) -> Image.Image:
    x, y = (max(c - wide // 2, 0) for c in centre)
    level = slide.get_best_level_for_downsample(max(wide / CELL, 1))
    n = round(wide / slide.level_downsamples[level])
    shown = slide.read_region((x, y), level, (n, n)).convert("RGB")
    return shown.resize((CELL, CELL), Image.Resampling.LANCZOS)


def row_of(path: Path, kind: str) -> list[tuple[str, Image.Image]]:
    slide = openslide.OpenSlide(path)
    tumour = middle_of(path, TUMOURS[kind]) or (0, 0)
    width = slide.dimensions[0]
    low = slide.get_thumbnail((CELL, CELL)).convert("RGB").resize((CELL, CELL))
    return [
        (f"{kind}: whole slide, {width / 2000:.1f} mm", low),
        ("tumour, 0.8 mm", view(slide, tumour, 1600)),
        ("tumour, 0.21 mm", view(slide, tumour, CELL)),
    ]


def others(paths: list[Path]) -> list[tuple[str, Image.Image]]:
    """One view of each other tissue, from whichever slide has most of it."""
    found = []
    for name, value in (("stroma", 1), ("adipose", 2), ("lymphocytes", 3)):
        best = max(paths, key=lambda p, v=value: _share(p, v))
        centre = middle_of(best, value) or (0, 0)
        found.append((f"{name}, 0.3 mm", view(openslide.OpenSlide(best), centre, 600)))
    return found


def _share(path: Path, value: int) -> float:
    return float((np.asarray(Image.open(truth_paths(path)[0])) == value).sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=SHEET)
    parser.add_argument("--seeds", type=int, nargs=3, default=[11, 6, 13])
    parser.add_argument("--size", type=int, default=6144)
    args = parser.parse_args()
    font = ImageFont.load_default(15)
    with tempfile.TemporaryDirectory() as made:
        rows, paths = [], []
        for kind, seed in zip(TUMOURS, args.seeds, strict=True):
            path = Path(made) / f"{kind}.tif"
            for _ in write_sample_slide(path, kind=kind, seed=seed, size=args.size):
                pass
            paths.append(path)
            rows.append(row_of(path, kind))
        rows.append(others(paths))
    line = 22
    step = CELL + GAP
    sheet = Image.new(
        "RGB", (3 * step + GAP, len(rows) * (step + line) + GAP), (255, 255, 255)
    )
    pen = ImageDraw.Draw(sheet)
    for r, row in enumerate(rows):
        for c, (title, image) in enumerate(row):
            x, y = GAP + c * step, GAP + r * (step + line)
            pen.text((x, y), title, fill=(40, 40, 40), font=font)
            sheet.paste(image, (x, y + line))
    args.out.parent.mkdir(parents=True, exist_ok=True)
    sheet.save(args.out, quality=74, optimize=True)
    print(f"{args.out.name}: {sheet.size}, {args.out.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
