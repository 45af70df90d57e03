"""The engine: how soon it answers, how fast it encodes, how soon it answers again."""

import argparse
import itertools
import statistics
import tempfile
import time
from pathlib import Path

from _figures import Figures
from napari_spt.parts.engine import Engine, Message

from spt_core.patches import EncodeSettings, encode_slide
from spt_core.sample import write_sample_slide

ENDS = ("done", "cancelled", "failed")


class Clocked:
    """An engine whose messages are kept with the seconds since the request."""

    def __init__(self) -> None:
        self.engine = Engine()

    def run(self, do: str, **facts) -> list[tuple[float, Message]]:
        seen = self.run_to_its_end(do, **facts)
        if seen[-1][1].event != "done":
            raise SystemExit(f"{do}: {seen[-1][1].facts}")
        return seen

    def run_to_its_end(self, do: str, **facts) -> list[tuple[float, Message]]:
        began = time.perf_counter()
        request = self.engine.submit(do, **facts)
        seen: list[tuple[float, Message]] = []
        while not seen or seen[-1][1].event not in ENDS:
            for message in self.engine.poll():
                if message.request == request:
                    seen.append((time.perf_counter() - began, message))
            time.sleep(0.005)
        return seen


def first(heard: list[tuple[float, Message]], event: str, **facts) -> float:
    return next(
        seconds
        for seconds, message in heard
        if message.event == event
        and all(message.facts.get(name) == value for name, value in facts.items())
    )


def alone(slide: Path, folder: Path) -> float:
    """Patches a second of the same encoding in a process of normal priority."""
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
        clocked.engine.start()
        while clocked.engine.state != "ready":
            time.sleep(0.01)
        figures.add("started to ready", time.perf_counter() - began, "s", goal="< 8")
        # It is warming up, as while somebody looks for a slide to open.
        clocked.run_to_its_end("nothing")
        figures.add("started to warm", time.perf_counter() - began, "s")
        work = {"slide": slide, "model": args.model, "features": folder / "features"}

        seen = clocked.run("analyse", **work)
        end = seen[-1][1].facts
        encoded = first(seen, "progress", message="reading the whole slide")
        started = first(seen, "started")
        figures.add("patches", end["patches"])
        figures.add("first prediction", first(seen, "prediction"), "s")
        figures.add(
            "first prediction, share of the run",
            first(seen, "prediction") / seen[-1][0],
            goal="< 0.1",
        )
        looks = [s for s, m in seen if m.event == "prediction"]
        gaps = [b - a for a, b in itertools.pairwise(looks)]
        figures.add("longest wait between predictions", max(gaps), "s")
        figures.add("whole run", seen[-1][0], "s")
        rate = end["patches"] / (encoded - started)
        figures.add("encoding", rate, "patches/s")
        if args.alone:
            lonely = alone(slide, folder / "alone")
            figures.add("encoding in-process", lonely, "patches/s")
            figures.add("engine to in-process", rate / lonely, goal="> 0.9")

        again = [clocked.run("analyse", **work) for _ in range(3)]
        for what, seconds in (
            ("first answer", [first(one, "prediction") for one in again]),
            ("whole answer", [first(one, "prediction", seen=1.0) for one in again]),
            ("with the class map", [one[-1][0] for one in again]),
        ):
            goal = "< 1" if what == "first answer" else ""
            name = f"kept features, {what}"
            figures.add(name, statistics.median(seconds), "s", goal=goal)
        l0 = args.size
        square = [[0, 0], [l0 / 2, 0], [l0 / 2, l0 / 2], [0, l0 / 2]]
        asked = {"features": end["features"], "model": args.model}
        seconds = clocked.run("what_if", region=[square], **asked)[-1][0]
        figures.add("what if not here", seconds, "s", goal="< 5")
        seconds = clocked.run("explore", features=end["features"])[-1][0]
        figures.add("explore", seconds, "s")
        seconds = clocked.run("faithfulness", **asked)[-1][0]
        figures.add("faithfulness", seconds, "s")
        clocked.engine.close()
    figures.save()


if __name__ == "__main__":
    main()
