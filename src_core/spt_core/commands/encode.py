"""``spt encode``: slides to feature files."""

import argparse
from collections.abc import Generator
from pathlib import Path
from typing import Any

from spt_core.bundled import ENCODER
from spt_core.commands.console import Console
from spt_core.errors import InputError
from spt_core.precision import PRECISIONS
from spt_core.slides.grid import MIN_TISSUE
from spt_core.slides.stain import NO_STAIN, STAINS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("slides", nargs="+", type=Path, help="slide files and folders")
    parser.add_argument("--out", type=Path, required=True, help="folder of features")
    parser.add_argument(
        "--encoder",
        default=ENCODER,
        metavar="NAME_OR_FILE",
        help="see 'spt encoders', or a file of 'spt train-patches' "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--encoder-weights", type=Path, metavar="FILE", help="the encoder's weights"
    )
    parser.add_argument(
        "--target-mpp", type=float, help="µm a pixel of a patch (the encoder's own)"
    )
    parser.add_argument(
        "--slide-mpp", type=float, help="µm a pixel, for slides that do not say it"
    )
    parser.add_argument(
        "--labels", type=Path, metavar="CSV", help="whose column mpp says it a slide"
    )
    parser.add_argument(
        "--patch-size", type=int, help="pixels a side of a patch (the encoder's own)"
    )
    parser.add_argument(
        "--min-tissue",
        type=float,
        default=MIN_TISSUE,
        help="share of a patch that must be tissue (default: %(default)s)",
    )
    parser.add_argument(
        "--stain",
        choices=STAINS,
        default=NO_STAIN,
        help="make the stains of all slides alike (default: %(default)s)",
    )
    parser.add_argument(
        "--allow-upsampling",
        action="store_true",
        help="take slides that are coarser than the patches",
    )
    parser.add_argument(
        "--redo", action="store_true", help="encode again what is there already"
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1, mps")
    parser.add_argument(
        "--precision",
        choices=PRECISIONS,
        default="auto",
        help="in which the encoder runs; auto is float16 on a GPU that is faster in "
        "it, else float32",
    )
    parser.add_argument("--batch-size", type=int, help="patches encoded at once")
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--workers", type=int, default=0, help="processes on this computer"
    )
    where.add_argument("--scheduler", metavar="ADDRESS", help="a dask scheduler's")


def run(args: argparse.Namespace, console: Console) -> int:
    from spt_core.patches.encode import encode_slides, slide_tasks
    from spt_core.patches.folder import find_slides, summary_table, write_summary
    from spt_core.patches.settings import EncodeSettings

    if not 0 <= args.min_tissue <= 1:
        raise InputError("--min-tissue is a share: give a number from 0 to 1.")
    for name in ("target_mpp", "slide_mpp", "patch_size", "batch_size"):
        value = getattr(args, name)
        if value is not None and value <= 0:
            option = name.replace("_", "-")
            raise InputError(f"--{option} must be greater than 0, not {value:g}.")
    if args.workers < 0:
        raise InputError("--workers cannot be negative.")
    settings = EncodeSettings(
        encoder=args.encoder,
        weights=args.encoder_weights,
        patch_size=args.patch_size,
        target_mpp=args.target_mpp,
        slide_mpp=args.slide_mpp,
        min_tissue=args.min_tissue,
        allow_upsampling=args.allow_upsampling,
        stain=args.stain,
        redo=args.redo,
        device=args.device,
        precision=args.precision,
        batch_size=args.batch_size,
    )
    tasks = slide_tasks(find_slides(args.slides), args.out, _mpp_by_name(args.labels))
    try:
        args.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"The folder {args.out} cannot be made: {error.strerror}. Choose another "
            "--out."
        ) from error
    if args.workers or args.scheduler:
        from spt_core.patches.cluster import encode_on_cluster

        events: Generator[Any, None, Any] = encode_on_cluster(
            tasks, settings, workers=args.workers, scheduler=args.scheduler
        )
    else:
        events = encode_slides(tasks, settings)
    results = console.follow(events, unit="patch")
    write_summary(args.out, results)
    console.say(summary_table(results))
    failed = [result for result in results if result.status == "failed"]
    console.record(
        {
            "event": "summary",
            **{
                status: sum(r.status == status for r in results)
                for status in ("done", "skipped", "busy", "failed")
            },
        }
    )
    return 1 if failed else 0


def _mpp_by_name(labels: Path | None) -> dict[str, float]:
    if labels is None:
        return {}
    from spt_core.tokens.labels import read_labels

    rows = read_labels(labels).by_slide.values()
    return {row.slide: row.mpp for row in rows if row.mpp is not None}
