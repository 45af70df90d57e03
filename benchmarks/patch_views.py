"""Views of patches per second, by the number of threads that make them.

Patches of 450 px, views of 300 px, all changes as by default. The views are the same
whatever the number of threads.
"""

import argparse
import os
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from _figures import Figures

from spt_core.patches.training import PatchTrainSettings
from spt_core.patches.training.pixels import Tile
from spt_core.patches.training.plan import PatchPlan
from spt_core.patches.training.pool import TileSource
from spt_core.patches.training.tiles import Origin
from spt_core.patches.training.window import Window

SIDE, SIZE = 450, 300


class MadeUp(TileSource):
    """Tiles of noise, which are nowhere on disk."""

    def _read_tile(self, number: int):
        rng = np.random.default_rng(number)
        return rng.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)


def made_up(count: int) -> TileSource:
    names = [f"tile {number}" for number in range(count)]
    origins = [Origin(Path(name), False, name, name, True) for name in names]
    tiles = [Tile(origin, SIDE, SIDE, 0.5) for origin in origins]
    return MadeUp([], [], tiles, Window(count, count))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--workers", type=int, nargs="+", default=[])
    args = parser.parse_args()
    cores = os.cpu_count() or 1
    counts = args.workers or sorted({1, 2, cores // 2 or 1, cores})
    settings = PatchTrainSettings(("",), "simclr", "", init="none", view_size=SIZE)
    settings = settings.resolved(SIZE, 0.5)
    source = made_up(args.batch)
    figures = Figures("patch_views", batch=args.batch, cores=cores)
    first = None
    for count in counts:
        plan = PatchPlan(
            source, replace(settings, workers=count), args.batch, torch.device("cpu")
        )
        made = torch.cat([chunk.inputs[0] for chunk in plan.make(0).chunks])
        first = made if first is None else first
        if not torch.equal(made, first):
            raise SystemExit("The views depend on the number of threads.")
        seconds = []
        for step in range(args.repeats):
            began = time.perf_counter()
            plan.make(step)
            seconds.append(time.perf_counter() - began)
        views = args.batch * settings.views
        figures.add(f"{count} threads", views / min(seconds), "views/s")
        figures.add(f"{count} threads, a view", 1e3 * min(seconds) / views, "ms")
    figures.save()


if __name__ == "__main__":
    main()
