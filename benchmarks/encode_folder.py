"""A folder of 20 small slides against one big one, a patch."""

import argparse
import statistics
import tempfile
from pathlib import Path

from _big_slide import big_slide
from _encoding import mobilenet, whole_pipeline
from _figures import Figures

SIZE = 128
# Patches across a small slide: 2,560 px, as large as the smallest that are scanned.
SMALL = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slides", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=2)
    args = parser.parse_args()
    figures = Figures("encode_folder", slides=args.slides, repeats=args.repeats)
    encoder = mobilenet(None)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        small = [
            big_slide(folder / f"small{i}.svs", SMALL * SIZE, seed=i)
            for i in range(args.slides)
        ]
        across = round((args.slides * SMALL * SMALL) ** 0.5)
        big = [big_slide(folder / "big.svs", across * SIZE)]
        whole_pipeline(small[:2], folder / "warm", encoder, SIZE, min_tissue=0.0)
        rounds = []
        for i in range(args.repeats):
            options = {"min_tissue": 0.0}
            many = whole_pipeline(small, folder / f"m{i}", encoder, SIZE, **options)
            one = whole_pipeline(big, folder / f"o{i}", encoder, SIZE, **options)
            rounds.append((many, one))
    for i, kind in ((0, "wall"), (1, "CPU")):
        ratio = statistics.median(many[i] / one[i] for many, one in rounds)
        name = f"{args.slides} small slides over one big one, a patch ({kind})"
        figures.add(name, ratio, goal="<= 1.10")
    figures.add("patches in small slides", rounds[0][0][2])
    figures.add("patches in the big slide", rounds[0][1][2])
    figures.save()


if __name__ == "__main__":
    main()
