"""Does the window stay alive while a study trains on all cores? A heartbeat.

Quiet panning, and panning while a study learns in a process of its own with the Train
dock drawing its curves, take turns in one window over one slide.
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

from spt_core.engine.priority import cores
from spt_core.sample import write_sample_slide
from spt_core.tokens import TokenFacts, Tokens, write_tokens

LATE = 0.1
SLIDES, TOKENS, DIM = 48, 600, 384


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=16_384)
    parser.add_argument("--slide", type=Path, help="a slide instead of a painted one")
    parser.add_argument("--seconds", type=float, default=15.0, help="of each turn")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument(
        "--folds", action="store_true", help="measure in folds, in several processes"
    )
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        slide = args.slide
        if slide is None:
            slide = Path(folder) / "slide.tif"
            for _ in write_sample_slide(slide, kind="glandular", size=args.size):
                pass
        features = Path(folder) / "features"
        write_features(features)
        found = run(slide, features, args, folder)
    size = None if args.slide else args.size
    topic = "train_heartbeat_folds" if args.folds else "train_heartbeat"
    figures = Figures(topic, size=size, seconds=args.seconds, rounds=args.rounds)
    quiet, busy = np.array(found["quiet"]), np.array(found["busy"])
    for name, late in (("panning alone", quiet), ("panning while it trains", busy)):
        goal = "< 1" if late is busy else ""
        share = 100 * float((late > LATE).mean())
        figures.add(f"{name}: ticks late by > 100 ms", share, "%", goal=goal)
        figures.add(f"{name}: p99", 1e3 * np.quantile(late, 0.99), "ms late")
        figures.add(f"{name}: worst", 1e3 * late.max(), "ms late")
        figures.add(f"{name}: ticks", len(late))
    figures.add("cores that the study used", np.mean(found["cores"]), f"of {cores()}")
    ratio = (np.quantile(busy, 0.99) + 0.01) / (np.quantile(quiet, 0.99) + 0.01)
    figures.add("p99 of the interval, against panning alone", ratio, "x", goal="<= 1.5")
    for request, seconds in found["heard"].items():
        figures.add(f"{request}: in effect after", seconds, "s", goal="<= 3")
    figures.save()


def write_features(folder: Path) -> None:
    rng = np.random.default_rng(0)
    side = int(np.ceil(np.sqrt(TOKENS)))
    places = np.stack(np.divmod(np.arange(TOKENS), side), axis=1).astype(np.int64)
    for number in range(SLIDES):
        x = rng.normal(size=(TOKENS, DIM)).astype(np.float32)
        facts = TokenFacts(encoder="made", name=f"s{number:02d}")
        tokens = Tokens(x, places, 256 * places[:, ::-1], facts)
        write_tokens(folder / f"s{number:02d}.h5", tokens)
    rows = (f"s{number:02d},{'ab'[number % 2]}\n" for number in range(SLIDES))
    folder.with_name("labels.csv").write_text("slide,label\n" + "".join(rows))


def run(slide: Path, features: Path, args: argparse.Namespace, folder: str) -> dict:
    environment = {
        **os.environ,
        "NAPARI_SPT_CACHE": f"{folder}/cache",
        "NAPARI_SPT_CONFIG": f"{folder}/config",
        "NAPARI_CONFIG": f"{folder}/napari.yaml",
    }
    window = Path(__file__).with_name("_train_window.py")
    command = [sys.executable, str(window), str(slide), str(features)]
    command += [f"{folder}/study", str(args.seconds), str(args.rounds), str(args.folds)]
    if shutil.which("xvfb-run"):
        environment["LIBGL_ALWAYS_SOFTWARE"] = "1"
        command = ["xvfb-run", "-a", "-s", "-screen 0 1280x800x24", *command]
    done = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(done.stdout.strip().splitlines()[-1])


if __name__ == "__main__":
    main()
