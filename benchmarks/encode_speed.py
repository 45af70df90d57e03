"""The encode pipeline against its limit: the bare encoder plus bare openslide reads.

On a CPU both share the cores, so that the limit is 1 / (1 / encoder + 1 / reads). Each
figure is the median of ratios measured alternately. CPU seconds are given beside wall
seconds: on a computer that does other things as well they are the steadier of the two.
"""

import argparse
import os
import statistics
import tempfile
from pathlib import Path

from _big_slide import big_slide
from _encoding import FreeEncoder, bare_encoder, bare_reads, mobilenet, whole_pipeline
from _figures import Figures

from spt_core import devices


def against_limit(figures: Figures, folder: Path, args, size: int) -> None:
    path = big_slide(folder / f"big{size}.svs", size * 4 * round(args.patches**0.5 / 4))
    encoder = mobilenet(args.weights)
    cores = os.cpu_count() or 1
    lanes, threads = devices.usual_lanes(devices.choose_device("cpu"))
    rounds = []
    whole_pipeline([path], folder / "warm", encoder, size)
    for i in range(args.repeats):
        # The faster of both ways to use the cores is the bare encoder's speed.
        alone = min(
            bare_encoder(encoder, size, args.patches, lanes=1, threads=cores),
            bare_encoder(encoder, size, args.patches, lanes=lanes, threads=threads),
        )
        read = bare_reads(path, size, cores)
        ours = whole_pipeline([path], folder / f"out{i}", encoder, size)
        rounds.append((alone, read, ours))
    name = f"MobileNetV2 at {size} px"
    for i, kind in ((0, "wall"), (1, "CPU")):
        unit = "patches/s" if kind == "wall" else "patches / CPU s"
        for j, what in enumerate(("bare encoder", "openslide reads", "pipeline")):
            rate = statistics.median(1 / one[j][i] for one in rounds)
            figures.add(f"{name}, {what}", rate, unit)
        ratio = statistics.median((a[i] + r[i]) / p[i] for a, r, p in rounds)
        figures.add(f"{name}, share of the limit ({kind})", ratio, goal=">= 0.93")


def free_encoder(figures: Figures, folder: Path, args) -> None:
    size = 224
    path = big_slide(folder / "free.svs", size * 40)
    cores = os.cpu_count() or 1
    encoder = FreeEncoder()
    rounds = []
    for i in range(args.repeats + 1):
        read = bare_reads(path, size, cores)
        options = {"readers": cores, "lanes": 1}
        ours = whole_pipeline([path], folder / f"free{i}", encoder, size, **options)
        rounds.append((read, ours))
    rounds = rounds[1:]
    for i, kind in ((0, "wall"), (1, "CPU")):
        ratio = statistics.median(read[i] / ours[i] for read, ours in rounds)
        goal = ">= 0.85"
        figures.add(f"free encoder over openslide reads ({kind})", ratio, goal=goal)
    rate = statistics.median(1 / ours[0] for _, ours in rounds)
    figures.add("free encoder", rate, "patches/s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weights", type=Path, help="MobileNetV2's, as safetensors")
    parser.add_argument("--patches", type=int, default=400, help="a round")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--slides", type=Path, help="keep the made slides here")
    args = parser.parse_args()
    figures = Figures("encode_speed", patches=args.patches, repeats=args.repeats)
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.slides or Path(temporary)
        folder.mkdir(exist_ok=True)
        free_encoder(figures, folder, args)
        for size in (224, 128):
            against_limit(figures, folder, args, size)
    figures.save()


if __name__ == "__main__":
    main()
