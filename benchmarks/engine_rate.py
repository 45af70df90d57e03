"""The engine: how soon it answers, how fast it encodes, how soon it answers again."""

import argparse
import itertools
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
from _engine import Clocked, first
from _figures import Figures

from spt_core.engine.protocol import (
    Analyse,
    Analysed,
    AskWithout,
    CheckFaithfulness,
    MapTissue,
    Predicted,
    Started,
    Step,
    Working,
)
from spt_core.patches import EncodeSettings, encode_slide
from spt_core.sample import write_sample_slide


def is_whole(predicted: Predicted) -> bool:
    return predicted.prediction.is_whole


def alone(slide: Path, folder: Path) -> float:
    """Patches per second of the same encoding in a process of normal priority."""
    began = time.perf_counter()
    patches = 0
    for event in encode_slide(slide, folder, EncodeSettings(batch_size=16)):
        patches = getattr(event, "total", patches)
    return patches / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=13_500, help="pixels of the slide")
    parser.add_argument("--model", default="bundled")
    parser.add_argument("--alone", action="store_true", help="encode in-process too")
    args = parser.parse_args()
    figures = Figures("engine_rate", **vars(args), seed=0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        slide = folder / "sample.tif"
        for _ in write_sample_slide(slide, size=args.size):
            pass
        clocked = Clocked()
        began = time.perf_counter()
        clocked.start()
        figures.add("started to ready", time.perf_counter() - began, "s", goal="< 8")
        clocked.warm_up(folder)
        figures.add("started to warm", time.perf_counter() - began, "s")
        model = Path(args.model)
        work = Analyse(slide, slide.name, folder / "features", model=model)

        seen = clocked.run(work)
        features = next(m.features for _, m in seen if isinstance(m, Analysed))
        patches = next(m.patches for _, m in seen if isinstance(m, Started))
        encoded = first(seen, Working, lambda m: m.step == Step.READING_SLIDE)
        started = first(seen, Started)
        figures.add("patches", patches)
        figures.add("first prediction", first(seen, Predicted), "s")
        figures.add(
            "first prediction, share of the run",
            first(seen, Predicted) / seen[-1][0],
            goal="< 0.1",
        )
        looks = [s for s, m in seen if isinstance(m, Predicted)]
        gaps = [b - a for a, b in itertools.pairwise(looks)]
        figures.add("longest wait between predictions", max(gaps), "s")
        figures.add("whole run", seen[-1][0], "s")
        rate = patches / (encoded - started)
        figures.add("encoding", rate, "patches/s")
        if args.alone:
            lonely = alone(slide, folder / "alone")
            figures.add("encoding in-process", lonely, "patches/s")
            figures.add("engine to in-process", rate / lonely, goal="> 0.9")

        again = [clocked.run(work) for _ in range(3)]
        for what, seconds in (
            ("first answer", [first(one, Predicted) for one in again]),
            ("whole answer", [first(one, Predicted, is_whole) for one in again]),
            ("with the class map", [one[-1][0] for one in again]),
        ):
            goal = "< 1" if what == "first answer" else ""
            name = f"kept features, {what}"
            figures.add(name, statistics.median(seconds), "s", goal=goal)
        l0 = args.size
        square = np.array([[0, 0], [l0 / 2, 0], [l0 / 2, l0 / 2], [0, l0 / 2]])
        without = AskWithout(features, slide.name, model, (square,))
        seconds = clocked.run(without)[-1][0]
        figures.add("what if not here", seconds, "s", goal="< 5")
        seconds = clocked.run(MapTissue(features, slide.name))[-1][0]
        figures.add("explore", seconds, "s")
        seconds = clocked.run(CheckFaithfulness(features, slide.name, model))[-1][0]
        figures.add("faithfulness", seconds, "s")
        clocked.engine.close()
    figures.save()


if __name__ == "__main__":
    main()
