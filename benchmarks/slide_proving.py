"""What it costs that a helper process opens each slide first, and what it would cost
to let it read every region too.

Opening: with and without the helper, by turns, each time a copy that nobody has
opened; and the first one of a fresh process, from its start, where the helper starts
too. Reading: what openslide decodes, in this process and by a process that hands
pixels over in shared memory, by turns.
"""

import argparse
import multiprocessing
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

import numpy as np
import openslide
from _big_slide import big_slide
from _figures import Figures

from spt_core import open_slide, proving

TILE = 512


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--side", type=int, default=8192)
    parser.add_argument("--slides", type=int, default=20)
    parser.add_argument("--reads", type=int, default=300)
    parser.add_argument("--slide", type=Path, help="any slide that openslide reads")
    args = parser.parse_args()
    folder = Path(tempfile.gettempdir())
    slide = args.slide or big_slide(folder / f"spt-big-{args.side}.svs", args.side)
    figures = Figures("slide_proving", slides=args.slides, reads=args.reads, seed=0)
    opening(slide, args.slides, figures)
    first_opening(slide, args.slides, figures)
    reading(slide, args.reads, figures)
    figures.save()


def opening(slide: Path, count: int, figures: Figures) -> None:
    seconds: dict[str, list[float]] = {"at once": [], "helper": [], "proved": []}
    with tempfile.TemporaryDirectory() as temporary:
        for number in range(-1, count):  # the first one starts the helper
            kinds = list(seconds)
            for kind in kinds[number % 3 :] + kinds[: number % 3]:
                path = Path(temporary) / f"{kind}{number}{slide.suffix}"
                shutil.copy(slide, path)
                proving.switch_on()
                if kind == "proved":
                    proving.prove(path)
                elif kind == "at once":
                    proving.switch_off()
                began = time.perf_counter()
                open_slide(path).close()
                took = time.perf_counter() - began
                path.unlink()
                if number >= 0:
                    seconds[kind].append(took)
    proving.switch_off()
    median = {kind: statistics.median(found) for kind, found in seconds.items()}
    figures.add("opening at once, median", median["at once"] * 1e3, "ms")
    figures.add("opening with the helper, median", median["helper"] * 1e3, "ms")
    figures.add("opening what is proved, median", median["proved"] * 1e3, "ms")
    more = (median["helper"] - median["proved"]) * 1e3
    figures.add("more for each slide", more, "ms", goal="at most one opening and 20 ms")
    ratio = median["helper"] / median["at once"]
    figures.add("with the helper / at once", ratio, goal="at most 2: one more opening")


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


def reading(slide: Path, count: int, figures: Figures) -> None:
    memory = SharedMemory(create=True, size=TILE * TILE * 4)
    ours, theirs = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    helper = context.Process(target=serve, args=(slide, memory.name, theirs))
    helper.start()
    ours.recv()
    rng = np.random.default_rng(0)
    direct, through = [], []
    with openslide.OpenSlide(slide) as handle:
        handle.set_cache(openslide.OpenSlideCache(0))
        width, height = handle.dimensions
        for _ in range(count):
            place = int(rng.integers(width - TILE)), int(rng.integers(height - TILE))
            began = time.perf_counter()
            want = np.asarray(handle.read_region(place, 0, (TILE, TILE)))
            direct.append(time.perf_counter() - began)
            began = time.perf_counter()
            ours.send(place)
            ours.recv()
            have = np.ndarray((TILE, TILE, 4), np.uint8, memory.buf).copy()
            through.append(time.perf_counter() - began)
            assert (want == have).all()
    for name, found in (("here", direct), ("by the helper", through)):
        least = 1e3 * float(np.percentile(found, 10))
        figures.add(f"{TILE} pixels {name}, tenth percentile", least, "ms")
    ours.send(None)
    helper.join()
    memory.close()
    memory.unlink()
    medians = statistics.median(direct), statistics.median(through)
    figures.add(f"{TILE} pixels by openslide here, median", medians[0] * 1e3, "ms")
    figures.add(f"{TILE} pixels by the helper, median", medians[1] * 1e3, "ms")
    figures.add("by the helper / here", medians[1] / medians[0], goal="at most 1.15")


def serve(slide: Path, name: str, pipe: Connection) -> None:
    memory = SharedMemory(name)
    with openslide.OpenSlide(slide) as handle:
        handle.set_cache(openslide.OpenSlideCache(0))
        pipe.send(None)
        while (place := pipe.recv()) is not None:
            pixels = np.asarray(handle.read_region(place, 0, (TILE, TILE)))
            np.ndarray(pixels.shape, np.uint8, memory.buf)[:] = pixels
            pipe.send(None)
    memory.close()


if __name__ == "__main__":
    main()
