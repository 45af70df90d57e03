"""Opening, panning and zooming a large slide: ours, napari-wsi and bare openslide.

All windows are alive at once and take turns at every step, so that a noisy machine
disturbs them alike. With ``--guarded`` it is ours alone, on a slide that openslide
decodes: by the helper process, and without it.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np
import openslide
from _big_slide import big_slide
from _figures import Figures
from _peers import peer_python

HERE = Path(__file__).parent


class Window:
    """A napari in a process of its own, on a screen of its own."""

    def __init__(
        self,
        python: Path | str,
        plugin: str,
        slide: Path,
        side: int,
        tree: Path | None = None,
    ) -> None:
        screen = []
        if shutil.which("xvfb-run"):
            screen = ["xvfb-run", "-a", "-s", "-screen 0 1280x800x24"]
        self.process = subprocess.Popen(
            [*screen, python, HERE / "_viewing_window.py", plugin, slide, str(side)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **({} if tree is None else path_to(tree))},
        )
        self._answer()

    def ask(self, **command) -> dict:
        print(json.dumps(command), file=self.process.stdin, flush=True)
        return self._answer()

    def _answer(self) -> dict:
        for line in self.process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        raise RuntimeError("the window is gone")

    def close(self) -> None:
        print(json.dumps({"do": "quit"}), file=self.process.stdin, flush=True)
        self.process.wait(30)


def path_to(tree: Path) -> dict[str, str]:
    return {"PYTHONPATH": f"{tree}{os.pathsep}{tree / 'src_core'}"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--side", type=int, default=40_960)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--slide", type=Path, help="an Aperio-style slide of that side")
    parser.add_argument(
        "--guarded", action="store_true", help="with the helper and without, ours alone"
    )
    parser.add_argument("--before", type=Path, help="another state of our files, too")
    args = parser.parse_args()
    folder = Path(tempfile.gettempdir())
    if args.guarded:
        guarded(folder, args)
        return
    slide = args.slide or big_slide(folder / f"spt-big-{args.side}.svs", args.side)
    peer = peer_python(
        "napari-wsi",
        [
            "napari-wsi==1.3.0",
            "openslide-python",
            "openslide-bin",
            f"napari=={version('napari')}",
            f"PySide6-Essentials=={version('PySide6-Essentials')}",
        ],
    )
    windows = {
        "ours": Window(sys.executable, "napari-spt", slide, args.side),
        "napari-wsi": Window(peer, "napari-wsi", slide, args.side),
        "memory": Window(sys.executable, "memory", slide, args.side),
    }
    figures = Figures("viewing", side=args.side, steps=args.steps, seed=0)
    rng = np.random.default_rng(0)

    opened = {name: [] for name in windows}
    for _ in range(5):
        for name, window in windows.items():
            opened[name].append(window.ask(do="open")["ms"])
    # The first opening of a process also imports what it needs; users open many.
    for name in ("ours", "napari-wsi"):
        figures.add(f"open, first, {name}", opened[name][0], "ms")
        figures.add(f"open, median of later, {name}", np.median(opened[name][1:]), "ms")
    ratio = np.median(np.divide(opened["ours"][1:], opened["napari-wsi"][1:]))
    figures.add("open, ours / napari-wsi", ratio, goal="<= 1")

    size = windows["ours"].ask(do="size")
    bare = openslide.OpenSlide(slide)
    margin = max(size.values())
    times = {name: [] for name in (*windows, "openslide")}
    for _ in range(args.steps):
        x, y = rng.integers(margin, args.side - margin, 2).tolist()
        for name, window in windows.items():
            times[name].append(window.ask(do="view", zoom=1, x=x, y=y)["ms"])
        start = time.perf_counter()
        corner = (x - size["width"] // 2, y - size["height"] // 2)
        bare.read_region(corner, 0, (size["width"], size["height"]))
        times["openslide"].append((time.perf_counter() - start) * 1e3)
    report(figures, "pan", times)

    zooms = {name: [] for name in windows}
    for _ in range(args.steps):
        x, y = rng.integers(margin, args.side - margin, 2).tolist()
        zoom = float(2.0 ** rng.uniform(-5, 0.5))
        for name, window in windows.items():
            zooms[name].append(window.ask(do="view", zoom=zoom, x=x, y=y)["ms"])
    report(figures, "zoom", zooms)

    for name in ("ours", "napari-wsi"):
        peak = windows[name].ask(do="view", zoom=1, x=x, y=y)["mb"]
        figures.add(
            f"peak memory above an empty viewer, {name}", peak, "MB", goal="< 600"
        )
    for window in windows.values():
        window.close()
    figures.save()


def guarded(folder: Path, args: argparse.Namespace) -> None:
    """Opening, panning and zooming what openslide decodes, in three ways by turns."""
    slide = args.slide or big_slide(folder / f"spt-big-{args.side}.scn", args.side)
    ours = (sys.executable, "napari-spt", slide, args.side)
    windows = {
        "helper": Window(*ours),
        "here": Window(sys.executable, "unguarded", slide, args.side),
    }
    if args.before:
        windows["before"] = Window(*ours, tree=args.before.absolute())
    figures = Figures("viewing_guarded", side=args.side, steps=args.steps, seed=0)
    rng = np.random.default_rng(0)
    margin = max(windows["helper"].ask(do="size").values())
    names = list(windows)
    times = {what: {name: [] for name in names} for what in ("open", "pan", "zoom")}
    for what, found in times.items():
        for step in range(6 if what == "open" else args.steps):
            x, y = rng.integers(margin, args.side - margin, 2).tolist()
            zoom = float(2.0 ** rng.uniform(-5, 0.5)) if what == "zoom" else 1
            first = step % len(names)
            for name in names[first:] + names[:first]:
                if what == "open":
                    answer = windows[name].ask(do="open")
                else:
                    answer = windows[name].ask(do="view", zoom=zoom, x=x, y=y)
                found[name].append(answer["ms"])
    for what, found in times.items():
        for name, values in found.items():
            figures.add(f"{what}, median, {name}", np.median(values), "ms")
            figures.add(f"{what}, tenth percentile, {name}", least(values), "ms")
        for other in names[1:]:
            goal = "" if what == "open" else "<= 1.15"
            ours, theirs = found["helper"], found[other]
            ratio = np.median(ours) / np.median(theirs)
            figures.add(f"{what}, medians, helper / {other}", ratio, goal=goal)
            ratio = np.median(np.divide(ours, theirs))
            figures.add(f"{what}, median ratio, helper / {other}", ratio, goal=goal)
            ratio = least(ours) / least(theirs)
            figures.add(f"{what}, tenth percentiles, helper / {other}", ratio)
    for name, window in windows.items():
        peak = window.ask(do="view", zoom=1, x=x, y=y)["mb"]
        figures.add(f"peak memory above an empty viewer, {name}", peak, "MB")
        window.close()
    figures.save()


def least(values: list[float]) -> float:
    return float(np.percentile(values, 10))


def report(figures: Figures, what: str, times: dict[str, list[float]]) -> None:
    for name, values in times.items():
        figures.add(f"{what}, median, {name}", np.median(values), "ms")
        figures.add(f"{what}, worst, {name}", np.max(values), "ms")
    ratio = np.median(times["ours"]) / np.median(times["napari-wsi"])
    goal = "<= 0.8" if what == "pan" else ""
    figures.add(f"{what}, median, ours / napari-wsi", ratio, goal=goal)
    if "openslide" in times:
        floor = np.add(times["openslide"], times["memory"])
        above = np.median(np.subtract(times["ours"], floor))
        figures.add(f"{what}, ours above openslide + memory", above, "ms", goal="<= 30")


if __name__ == "__main__":
    main()
