"""``spt sample``: make a synthetic H&E cohort."""

import argparse
from pathlib import Path

from spt_core.commands.console import Console
from spt_core.sample.cohort import SITES, SIZE, write_sample_cohort
from spt_core.sample.tissue import MINORITY, TUMOUR_SHARES


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("out", type=Path, metavar="OUT", help="folder for the cohort")
    parser.add_argument(
        "--slides",
        type=int,
        default=30,
        metavar="N",
        help="number of slides (default: %(default)s)",
    )
    parser.add_argument(
        "--size",
        type=int,
        default=SIZE,
        metavar="PX",
        help="side of a slide, in pixels of 0.5 µm; at least 4096 (default: "
        "%(default)s)",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        metavar="N",
        help="number that every random choice follows from (default: %(default)s)",
    )
    parser.add_argument(
        "--sites",
        type=int,
        default=SITES,
        metavar="N",
        help="number of laboratories that the slides come from (default: %(default)s)",
    )
    parser.add_argument(
        "--tumour",
        choices=tuple(TUMOUR_SHARES),
        default=MINORITY,
        help="how much of the tissue is tumour: minority is 7 to 16 %%, majority 55 to "
        "80 %% (default: %(default)s)",
    )
    parser.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help="processes that paint slides (default: one per core)",
    )


def run(args: argparse.Namespace, console: Console) -> int:
    paths = console.follow(
        write_sample_cohort(
            args.out,
            slides=args.slides,
            size=args.size,
            seed=args.seed,
            sites=args.sites,
            tumour=args.tumour,
            workers=args.workers,
        ),
        unit="Mpx",
    )
    labels = args.out / "labels.csv"
    console.record(
        {
            "event": "result",
            "slides": [str(path) for path in paths],
            "labels": str(labels),
        }
    )
    console.say(f"{len(paths)} slides, their truth masks and {labels.name}: {args.out}")
    return 0
