"""``spt encode``: slides to feature files."""

import argparse
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from spt_core.commands.console import Console
from spt_core.commands.options import add_options, settings_from
from spt_core.errors import InputError
from spt_core.hints import Hint
from spt_core.patches.scheduler import SchedulerSettings
from spt_core.patches.settings import EncodeSettings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "slides", nargs="+", type=Path, metavar="SLIDE_OR_FOLDER", help="what to encode"
    )
    parser.add_argument(
        "--out",
        type=Path,
        required=True,
        metavar="FEATURES",
        help="folder for the feature files, one for each slide",
    )
    add_options(
        parser, EncodeSettings, "encoder", "weights", "target_mpp", "patch_size"
    )
    add_options(parser, EncodeSettings, "slide_mpp", "channels")
    parser.add_argument(
        "--labels",
        type=Path,
        metavar="CSV",
        help="table whose columns slide and mpp state the pixel size of each slide",
    )
    add_options(parser, EncodeSettings, "min_tissue", "stain", "allow_upsampling")
    add_options(parser, EncodeSettings, "redo", "device", "precision")
    add_options(parser, EncodeSettings, "batch_size")
    where = parser.add_mutually_exclusive_group()
    add_options(where, WorkerSettings, "workers")
    add_options(where, SchedulerSettings, "scheduler")
    add_options(parser, SchedulerSettings, "tls_ca", "tls_cert", "tls_key")


@dataclass(frozen=True)
class WorkerSettings:
    workers: Annotated[
        int,
        Hint(
            "processes on this computer that share the slides; 0 is one that takes "
            "them in turn",
            minimum=0,
        ),
    ] = 0


def run(args: argparse.Namespace, console: Console) -> int:
    settings = settings_from(args, EncodeSettings)
    workers = settings_from(args, WorkerSettings).workers
    where = settings_from(args, SchedulerSettings)
    where.tls  # noqa: B018 a wrong file is said at once
    # Only now: wrong usage is said at once, without waiting for torch.
    from spt_core.patches.encode import slide_tasks
    from spt_core.patches.folder import find_slides, summary_table, write_summary

    tasks = slide_tasks(find_slides(args.slides), args.out, _mpp_by_name(args.labels))
    try:
        args.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"The folder {args.out} cannot be made: {error.strerror}. Choose another "
            "--out."
        ) from error
    if where.scheduler:
        from spt_core.patches.cluster import encode_on_cluster

        events: Generator[Any, None, Any] = encode_on_cluster(
            tasks, settings, where.scheduler, where.tls
        )
    else:
        from spt_core.patches.local_workers import encode_in_processes

        events = encode_in_processes(tasks, settings, workers=workers or 1)
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
