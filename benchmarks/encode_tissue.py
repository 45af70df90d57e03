"""How long tissue takes a slide, and how well it agrees with sample slides' truth."""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
from _big_slide import big_slide
from _figures import Figures
from PIL import Image

from spt_core import open_slide
from spt_core.sample import truth_paths, write_sample_cohort
from spt_core.slides.tissue import find_tissue


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slides", type=int, default=6)
    parser.add_argument("--size", type=int, default=6144)
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--cohort", type=Path, help="of 'spt sample', made before")
    args = parser.parse_args()
    figures = Figures("encode_tissue", **vars(args))
    with tempfile.TemporaryDirectory() as temporary:
        cohort = args.cohort
        if cohort is None:
            cohort = Path(temporary) / "cohort"
            for _ in write_sample_cohort(
                cohort, slides=args.slides, size=args.size, seed=args.seed
            ):
                pass
        found = []
        for path in sorted(cohort.glob("*.tif")):
            mask = find_tissue(open_slide(path)).mask
            with Image.open(truth_paths(path)[0]) as picture:
                truth = Image.fromarray(np.asarray(picture) > 0)
            size = mask.shape[::-1]
            whole = np.asarray(truth.resize(size, Image.Resampling.NEAREST))
            found.append((mask & whole).sum() / (mask | whole).sum())
        figures.add("lowest IoU with the truth", min(found), goal=">= 0.9")
        figures.add("mean IoU with the truth", float(np.mean(found)))
        slide = big_slide(Path(temporary) / "big.svs", 40_000)
        times = []
        for _ in range(3):
            cpu, wall = time.process_time(), time.perf_counter()
            find_tissue(open_slide(slide))
            times.append((time.perf_counter() - wall, time.process_time() - cpu))
        figures.add("a slide of 40,000 px", min(times)[0], "s", goal="< 2")
        figures.add("a slide of 40,000 px, CPU", min(t[1] for t in times), "s")
    figures.save()


if __name__ == "__main__":
    main()
