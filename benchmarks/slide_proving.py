"""What it costs that a helper process opens and reads what openslide decodes.

Opening: with and without the helper, by turns, each time a copy that nobody has
opened; and the first one of a fresh process, from its start, where the helper starts
too. Reading: 512 pixels a side at random places, from one thread and from several, by
turns: with openslide here as simply as can be (``bare``), as we read where nothing
guards us (``here``), and by the helper.
"""

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np
import openslide
from _big_slide import big_slide
from _figures import Figures

from spt_core import open_slide, proving
from spt_core.slides.guarded_file import GuardedFile
from spt_core.slides.openslide_file import OpenSlideFile

TILE = 512


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--side", type=int, default=8192)
    parser.add_argument("--slides", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=40, help="of 12 reads a kind")
    parser.add_argument("--slide", type=Path, help="any slide that openslide reads")
    args = parser.parse_args()
    folder = Path(tempfile.gettempdir())
    figures = Figures("slide_proving", slides=args.slides, rounds=args.rounds, seed=0)
    slides = [args.slide] if args.slide else []
    for ending in () if slides else (".svs", ".scn"):
        slides.append(big_slide(folder / f"spt-big-{args.side}{ending}", args.side))
    for slide in slides:
        opening(slide, args.slides, figures)
    opening_alone(slides[-1], 5 * args.slides, figures)
    first_opening(slides[-1], args.slides // 4, figures)
    for threads in (1, 2, 4):
        reading(slides[-1], args.rounds, threads, figures)
    figures.save()


def opening(slide: Path, count: int, figures: Figures) -> None:
    seconds: dict[str, list[float]] = {"at once": [], "helper": []}
    with tempfile.TemporaryDirectory() as temporary:
        for number in range(-1, count):  # the first one starts the helper
            for kind in sorted(seconds, reverse=number % 2 > 0):
                path = Path(temporary) / f"{kind}{number}{slide.suffix}"
                shutil.copy(slide, path)
                (proving.switch_on if kind == "helper" else proving.switch_off)()
                began = time.perf_counter()
                opened = open_slide(path)
                took = time.perf_counter() - began
                opened.close()
                path.unlink()
                if number >= 0:
                    seconds[kind].append(took)
    proving.switch_off()
    for share, words in ((50, "median"), (10, "tenth percentile")):
        once, helped = (float(np.percentile(v, share)) for v in seconds.values())
        words = f"{slide.suffix[1:]}: opening, {words}"
        figures.add(f"{words}, at once", once * 1e3, "ms")
        figures.add(f"{words}, helper", helped * 1e3, "ms")
        goal = "at most 2: one more opening"
        figures.add(f"{words}, helper / at once", helped / once, goal=goal)


def opening_alone(slide: Path, count: int, figures: Figures) -> None:
    """Openslide's part of it, in a row, so that no process has to be woken first."""
    seconds: dict[str, list[float]] = {"at once": [], "helper": []}
    kinds = {"at once": OpenSlideFile, "helper": GuardedFile}
    for _ in range(count):
        for kind, opened in kinds.items():
            began = time.perf_counter()
            file = opened(slide)
            seconds[kind].append(time.perf_counter() - began)
            file.close()
    once, helped = (statistics.median(found) * 1e3 for found in seconds.values())
    figures.add("openslide alone, in a row, at once, median", once, "ms")
    figures.add("openslide alone, in a row, helper, median", helped, "ms")
    goal = "at most 2: one more opening"
    name = "openslide alone, in a row, helper / at once"
    figures.add(name, helped / once, goal=goal)


FRESH = """
import sys
from spt_core import open_slide, proving
proving.switch_on() if sys.argv[2] == "helper" else proving.switch_off()
open_slide(sys.argv[1])
"""


def first_opening(slide: Path, count: int, figures: Figures) -> None:
    """A process that opens one slide, from its start to its end."""
    seconds: dict[str, list[float]] = {"at once": [], "helper": []}
    for number in range(count):
        for kind in sorted(seconds, reverse=number % 2 > 0):
            began = time.perf_counter()
            words = [sys.executable, "-c", FRESH, str(slide), kind]
            subprocess.run(words, check=True)
            seconds[kind].append(time.perf_counter() - began)
    once, helped = (statistics.median(found) for found in seconds.values())
    figures.add("fresh process, at once, median", once * 1e3, "ms")
    figures.add("fresh process, helper, median", helped * 1e3, "ms")
    figures.add("fresh process, with the helper / at once", helped / once)


def reading(slide: Path, rounds: int, threads: int, figures: Figures) -> None:
    """Rounds of reads by each kind in turn; all kinds read the same places."""
    bare = openslide.OpenSlide(slide)
    bare.set_cache(openslide.OpenSlideCache(96 * 2**20))
    here, guarded = OpenSlideFile(slide), GuardedFile(slide)
    readers: dict[str, Callable[[tuple[int, int]], np.ndarray]] = {
        "bare": lambda place: bare_read(bare, place),
        "here": lambda place: as_pixels(here.read(0, *place, TILE, TILE)),
        "helper": lambda place: as_pixels(guarded.read(0, *place, TILE, TILE)),
    }
    rng = np.random.default_rng(threads)
    with closing(open_slide(slide)) as opened:
        left, top, width, height = opened.bounds
    first, last = (left, top), (left + width - TILE, top + height - TILE)
    seconds: dict[str, list[float]] = {kind: [] for kind in readers}
    with ThreadPoolExecutor(threads) as pool:
        for number in range(-2, rounds):
            places = rng.integers(first, last, (12, 2)).tolist()
            kinds = list(readers)
            sums: dict[str, list[int]] = {}
            for kind in kinds[number % 3 :] + kinds[: number % 3]:
                began = time.perf_counter()
                found = list(pool.map(readers[kind], places))
                took = (time.perf_counter() - began) / len(places)
                if number >= 0:
                    seconds[kind].append(took)
                sums[kind] = [int(pixels.sum()) for pixels in found]
            assert sums["bare"] == sums["here"] == sums["helper"], "other pixels"
    here.close()
    guarded.close()
    words = f"{TILE} pixels, {threads} thread{'s' * (threads > 1)}"
    for kind, values in seconds.items():
        figures.add(f"{words}, {kind}, median", statistics.median(values) * 1e3, "ms")
    for other in ("bare", "here"):
        ratios = np.divide(seconds["helper"], seconds[other])
        goal = "at most 1.15" if other == "bare" else ""
        name = f"{words}, helper / {other}"
        figures.add(f"{name}, median", float(np.median(ratios)), goal=goal)
        least = [np.percentile(seconds[kind], 10) for kind in ("helper", other)]
        figures.add(f"{name}, tenth percentiles", least[0] / least[1], goal=goal)


def bare_read(handle: openslide.OpenSlide, place: tuple[int, int]) -> np.ndarray:
    rgba = handle.read_region(place, 0, (TILE, TILE))
    assert rgba.getextrema()[3][0] == 255, "transparent parts need more work"
    return np.asarray(rgba.convert("RGB"))


def as_pixels(found: bytes | np.ndarray) -> np.ndarray:
    return np.frombuffer(found, np.uint8).reshape(TILE, TILE, 3)


if __name__ == "__main__":
    main()
