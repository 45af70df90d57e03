"""Does the window stay alive while a slide is analysed? A heartbeat while panning.

Quiet panning, panning during an analysis, and the analysis with nobody panning take
turns in one window over one slide of 40,000 pixels a side.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from _figures import Figures

from spt_core.sample import write_sample_slide

LATE = 0.1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=40_000)
    parser.add_argument("--slide", type=Path, help="a slide instead of a painted one")
    parser.add_argument("--seconds", type=float, default=15.0, help="of each turn")
    parser.add_argument("--rounds", type=int, default=2)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        slide = args.slide
        if slide is None:
            slide = Path(folder) / "slide.tif"
            for _ in write_sample_slide(slide, kind="glandular", size=args.size):
                pass
        found = run(slide, args, folder)
    size = None if args.slide else args.size
    figures = Figures("dock_heartbeat", size=size, seconds=args.seconds)
    quiet, busy = np.array(found["quiet"]), np.array(found["busy"])
    for name, late in (("panning alone", quiet), ("panning and analysing", busy)):
        goal = "< 1" if late is busy else ""
        share = 100 * float((late > LATE).mean())
        figures.add(f"{name}: ticks late by > 100 ms", share, "%", goal=goal)
        figures.add(f"{name}: p99", 1e3 * np.quantile(late, 0.99), "ms late")
        figures.add(f"{name}: worst", 1e3 * late.max(), "ms late")
        figures.add(f"{name}: ticks", len(late))
    # Of the ticks as they are: what is late counts from the beat before.
    ratio = (np.quantile(busy, 0.99) + 0.01) / (np.quantile(quiet, 0.99) + 0.01)
    figures.add("p99 of the interval, against panning alone", ratio, "x", goal="<= 1.5")
    # The median: now and then the class map is drawn, and no patch is looked at.
    alone, panned = np.median(found["rate_alone"]), np.median(found["rate_busy"])
    figures.add("encoding, nobody panning", alone, "patches/s")
    figures.add("encoding while panning", panned, "patches/s")
    figures.add("encoding kept", panned / alone, "x", goal=">= 0.6")
    figures.save()


def run(slide: Path, args: argparse.Namespace, folder: str) -> dict:
    environment = {
        **os.environ,
        "NAPARI_SPT_CACHE": f"{folder}/cache",
        "NAPARI_SPT_CONFIG": f"{folder}/config",
        "NAPARI_CONFIG": f"{folder}/napari.yaml",
    }
    window = Path(__file__).with_name("_dock_window.py")
    command = [sys.executable, str(window), str(slide)]
    command += [str(args.seconds), str(args.rounds)]
    if shutil.which("xvfb-run"):
        environment["LIBGL_ALWAYS_SOFTWARE"] = "1"
        command = ["xvfb-run", "-a", "-s", "-screen 0 1280x800x24", *command]
    done = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(done.stdout.strip().splitlines()[-1])


if __name__ == "__main__":
    main()
