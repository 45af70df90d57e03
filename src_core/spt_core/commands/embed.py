"""``spt embed``: one embedding per slide, to compute with elsewhere."""

import argparse
from pathlib import Path

import numpy as np

from spt_core.commands.console import Console
from spt_core.commands.options import add_options
from spt_core.csv_files import write_rows
from spt_core.errors import InputError
from spt_core.events import Note
from spt_core.files import written_whole
from spt_core.notice import NOT_FOR_DIAGNOSIS
from spt_core.patches.settings import EncodeSettings

ENDINGS = (".csv", ".npz")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = NOT_FOR_DIAGNOSIS
    add = parser.add_argument
    add("features", metavar="FEATURES", type=Path, help="folder of feature files")
    add("--model", metavar="MODEL", required=True,
        help="model file (*.safetensors), or 'mean' or 'max' for pooling")  # fmt: skip
    add("--out", metavar="FILE", type=Path, required=True,
        help="table (.csv) or arrays 'slide' and 'embedding' (.npz)")  # fmt: skip
    add("--embed", choices=("whole", "windows"), default="whole",
        help="of the whole slide at once, or the mean over windows of it "
        "(default: whole)")  # fmt: skip
    add("--include-slide-name", action="store_true",
        help="write the slides' names in place of pseudonyms")  # fmt: skip
    add("--labels", metavar="CSV", type=Path,
        help="table with columns slide and site, for models that standardise tokens "
        "per site")  # fmt: skip
    add("--site", metavar="NAME", type=str.strip,
        help="the same where all slides are from one site")  # fmt: skip
    add_options(parser, EncodeSettings, "device")


def run(args: argparse.Namespace, console: Console) -> int:
    if args.out.suffix.lower() not in ENDINGS:
        raise InputError(
            f"--out {args.out.name}: its ending must be {' or '.join(ENDINGS)}."
        )
    # Only now: wrong usage is said at once, without waiting for torch.
    from spt_core.devices import choose_device
    from spt_core.learning.cohort import open_cohort
    from spt_core.learning.model_file import load_model
    from spt_core.studies.embeddings import (
        POOLINGS,
        embed_slides,
        knowing_sites,
        pooling_model,
    )
    from spt_core.tokens import read_labels

    labels = read_labels(args.labels) if args.labels else None
    cohort = open_cohort(args.features, labels)
    if args.site is not None:
        cohort = cohort.from_site(args.site)
    if args.model in POOLINGS:
        model = pooling_model(args.model, cohort)
    else:
        model = load_model(args.model, choose_device(args.device))
    model, said = knowing_sites(model, cohort)
    for note in (*cohort.notes(), *map(Note, said)):
        console.note(note)
    found = console.follow(embed_slides(model, cohort, args.features), unit="slide")
    called = found.names if args.include_slide_name else found.pseudonyms
    write_embeddings(args.out, called, found.h[args.embed])
    console.say(f"Written: {args.out}")
    console.record({"event": "done", "file": str(args.out), "slides": len(called)})
    return 0


def write_embeddings(path: Path, called: list[str], h: np.ndarray) -> None:
    """Write one row per slide, (n, dim) numbers."""
    with written_whole(path) as temporary:
        if path.suffix.lower() == ".npz":
            np.savez(temporary, slide=np.array(called, np.str_), embedding=h)
            return
        head = ["slide", *(f"h{i}" for i in range(h.shape[1]))]
        rows = zip(called, h.tolist(), strict=True)
        write_rows(temporary, [head, *([name, *row] for name, row in rows)])
