"""``spt benchmark``: every method in every fold, against every baseline."""

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from spt_core.commands.console import Console
from spt_core.commands.options import add_options, settings_from
from spt_core.commands.written import command_to_share
from spt_core.engine.priority import sleep_while_waiting
from spt_core.errors import InputError
from spt_core.hints import settings_of
from spt_core.learning.details import LearningDetails
from spt_core.learning.views import ViewSettings
from spt_core.notice import NOT_FOR_DIAGNOSIS
from spt_core.studies.benchmark_methods import ABLATIONS, METHODS
from spt_core.studies.benchmark_settings import DEFAULT_METHODS, BenchmarkSettings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    lines = [f"  {method.name:<19} {method.says}" for method in METHODS.values()]
    parser.epilog = (
        "methods:\n\n"
        + "\n".join(lines)
        + "\n\nA benchmark that was stopped goes on when the command is given again. "
        f"{NOT_FOR_DIAGNOSIS}"
    )
    add = parser.add_argument
    add("features", metavar="FEATURES", nargs="*",
        help="folders of feature files of the same slides, as FOLDER or "
        "NAME=FOLDER")  # fmt: skip
    add("--config", metavar="YAML", type=Path,
        help="file of settings, instead of options")  # fmt: skip
    add("--labels", metavar="CSV",
        help="table with columns slide,label[,patient,site,split], or patient,label "
        "with --slide-table")  # fmt: skip
    add("--slide-table", metavar="CSV",
        help="table with columns slide,patient, for labels of patients")  # fmt: skip
    add("--out", metavar="FOLDER", help="folder for the cells and the report")
    add("--methods", metavar="NAME", nargs="+", default=list(DEFAULT_METHODS),
        help=f"what to compare (default: {' '.join(DEFAULT_METHODS)})")  # fmt: skip
    add("--ablations", metavar="NAME", nargs="+", default=[],
        help="what to vary of self-supervised SPT: "
        f"{', '.join(ABLATIONS)}")  # fmt: skip
    add("--plan", action="store_true",
        help="say in seconds how exact a result to expect, and do nothing "
        "else")  # fmt: skip
    add_options(parser, BenchmarkSettings, "patient_from", "baseline", "title")

    group = parser.add_argument_group("folds")
    add_options(group, BenchmarkSettings, "folds", "repeats", "seeds")
    add_options(group, BenchmarkSettings, "leave_site_out", "splits", "ignore_split")
    add_options(group, BenchmarkSettings, "only")

    group = parser.add_argument_group("training")
    add_options(group, BenchmarkSettings, "model", "steps", "batch_size")
    add_options(group, BenchmarkSettings, "learning_rate", "unlabelled")
    add_options(group, BenchmarkSettings, "hipt_weights", "init", "pretrain_steps")
    add_options(group, BenchmarkSettings, "standardise", "site_batches")
    add_options(group, LearningDetails, *settings_of(LearningDetails))
    group.add_argument(
        "--augmented", metavar="FEATURES", nargs="+", default=[],
        help="features of augmented patches of the same slides, for giga-ssl",
    )  # fmt: skip

    group = parser.add_argument_group("views of a slide")
    names = [name for name in settings_of(ViewSettings) if name != "views"]
    add_options(group, ViewSettings, *names)

    group = parser.add_argument_group("what is measured")
    add_options(group, BenchmarkSettings, "ordered", "permute_labels", "mlp")
    add_options(group, BenchmarkSettings, "include_slide_name")

    group = parser.add_argument_group("where it runs")
    add_options(group, BenchmarkSettings, "device", "workers", "scheduler")
    add_options(group, BenchmarkSettings, "tls_ca", "tls_cert", "tls_key")


def run(args: argparse.Namespace, console: Console) -> int:
    settings = benchmark_settings(args)
    sleep_while_waiting()
    # Only now: wrong usage is said at once, without waiting for torch.
    if args.plan:
        return _plan(settings, console)
    from spt_core.studies.benchmark import REPORT_FOLDER, benchmark
    from spt_core.studies.benchmark_tables import paper_tables

    command = (
        command_to_share(sys.argv[1:], settings.out) if args.config is None else ""
    )
    found = console.follow(benchmark(settings, command=command), unit="cell")
    report = Path(settings.out) / REPORT_FOLDER
    for table in paper_tables(found):
        console.say(table.markdown())
    console.say(f"Written: {report / 'report.html'}")
    console.record(
        {
            "event": "done",
            "report": str(report),
            "failed": [vars(one) for one in found.failed],
        }
    )
    return 1 if found.failed else 0


def _plan(settings: BenchmarkSettings, console: Console) -> int:
    from spt_core.studies.bench import open_bench
    from spt_core.studies.cohort_size import plan, plan_text

    bench = open_bench(settings)
    for remark in (*bench.notes, *bench.remarks):
        console.say(remark)
    console.say(plan_text(plan(bench.cohort, folds=settings.folds, seed=0)))
    return 0


def benchmark_settings(args: argparse.Namespace) -> BenchmarkSettings:
    if args.config is not None:
        settings = BenchmarkSettings.read(args.config)
        return replace(settings, out=str(args.out)) if args.out else settings
    missing = [
        name
        for name, value in (
            ("FEATURES", args.features),
            ("--labels", args.labels),
            ("--out", args.out or args.plan),
        )
        if not value
    ]
    if missing:
        raise InputError(f"Give {', '.join(missing)} (or --config YAML).")
    return settings_from(
        args,
        BenchmarkSettings,
        features=tuple(args.features),
        labels=args.labels,
        slide_table=args.slide_table,
        out=args.out or "",
        methods=tuple(args.methods),
        ablations=tuple(args.ablations),
        augmented=tuple(args.augmented),
        views=settings_from(args, ViewSettings),
        details=settings_from(args, LearningDetails),
    )
