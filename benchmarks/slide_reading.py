"""Reading regions of a slide: ours against bare openslide, turn by turn."""

import argparse
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import openslide
from _big_slide import big_slide
from _figures import Figures

from spt_core import open_slide

SIDE = 20_480


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slide", type=Path, help="default: one of our own making")
    parser.add_argument("--reads", type=int, default=200)
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    # A side that does not divide: level 1 is then 4.0005 or so times smaller.
    default = Path(tempfile.gettempdir()) / f"spt-big-{SIDE + 2}.svs"
    path = args.slide or big_slide(default, SIDE + 2)
    ours, bare = open_slide(path), openslide.OpenSlide(path)
    figures = Figures("slide_reading", reads=args.reads, size=args.size, seed=args.seed)
    rng = np.random.default_rng(args.seed)
    for level in range(min(2, bare.level_count)):
        figures.add(f"level {level}, downsample", bare.level_downsamples[level])
        free = np.subtract(bare.level_dimensions[level], args.size)
        places = rng.integers(0, free, (args.reads, 2)).tolist()
        # The file's levels are our first ones here: there is no gap to fill before.
        compare(figures, level, places, args.size, ours, bare)
    figures.save()


def compare(figures, level, places, size, ours, bare) -> None:
    step = bare.level_downsamples[level]

    def by_openslide(place):
        l0_xy = (round(place[0] * step), round(place[1] * step))
        return np.asarray(bare.read_region(l0_xy, level, (size, size)))[..., :3]

    def by_us(place):
        return ours.read(level, *place, size, size)

    readers = {"openslide": by_openslide, "ours": by_us}
    for threads in (1, 2):
        seconds = dict.fromkeys(readers, 0.0)
        with ThreadPoolExecutor(threads) as pool:
            for batch in range(0, len(places), 20):
                for name, read in readers.items():
                    start = time.perf_counter()
                    list(pool.map(read, places[batch : batch + 20]))
                    seconds[name] += time.perf_counter() - start
        for name, total in seconds.items():
            rate = len(places) * size**2 / 1e6 / total
            figures.add(f"level {level}, {threads} threads, {name}", rate, "Mpx/s")
        ratio = seconds["openslide"] / seconds["ours"]
        figures.add(f"level {level}, {threads} threads, ours / openslide", ratio, "x")


if __name__ == "__main__":
    main()
