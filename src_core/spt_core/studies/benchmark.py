"""A benchmark from beginning to end: open, do the cells, gather, write the report."""

import time
from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from spt_core.errors import InputError
from spt_core.events import LeftOut, Note, Progress
from spt_core.files import held_by_one, refuse_links, remove_left, written_whole
from spt_core.insight.results import pseudonym
from spt_core.studies.bench import Bench, open_bench
from spt_core.studies.bench_controls import controls
from spt_core.studies.bench_examples import (
    attention_examples,
    positions_of,
    slide_maps,
)
from spt_core.studies.bench_rows import (
    Results,
    ablation_of,
    compared,
    patients_known,
    patients_of,
    rows_of,
)
from spt_core.studies.benchmark_report import write_report
from spt_core.studies.benchmark_result import (
    Benchmark,
    FailedCell,
)
from spt_core.studies.benchmark_settings import BenchmarkSettings
from spt_core.studies.cell_runners import run_cells
from spt_core.studies.cells import Cell

SETTINGS_FILE = "benchmark.yaml"
REPORT_FOLDER = "report"

Events = Generator[Any, None, Benchmark]


def benchmark(
    settings: BenchmarkSettings, *, command: str = "", bench: Bench | None = None
) -> Events:
    """Compare methods on a cohort; what is done already in ``settings.out`` is kept.

    Closing the generator stops; the next call goes on.

    Parameters
    ----------
    command
        By which it was asked for, for the report.
    bench
        Of these settings, where it is open already.
    """
    began = time.monotonic()
    out = Path(settings.out)
    bench = bench or open_bench(settings)
    for remark in (*bench.notes, *bench.remarks):
        yield Note(remark)
    for sentence in bench.cohort.left_out.values():
        yield LeftOut(sentence)
    with held_by_one(out / ".lock") as is_ours:
        if not is_ours:
            raise InputError(f"Another process is at work in {out}.")
        refuse_links(bench.folder.path, out / REPORT_FOLDER)
        remove_left(out, bench.folder.path, out / REPORT_FOLDER)
        cells = bench.cells()
        for cell in cells:  # of other settings: said before anything is done
            if bench.folder.is_done(cell):
                bench.result(cell)
        with written_whole(out / SETTINGS_FILE) as temporary:
            settings.write(temporary)
        yield Note(_opening(bench, cells))
        yield from run_cells(bench, cells)
        yield Progress(len(cells), len(cells), message="writing the report")
        found = gather(bench, cells, command=command)
        found = replace(found, seconds=time.monotonic() - began)
        write_report(out / REPORT_FOLDER, found)
    return found


def _opening(bench: Bench, cells: Sequence[Cell]) -> str:
    cohort = bench.cohort
    patients = {cohort.patients()[int(i)] for i in bench.labelled}
    groups = "patients" if patients_known(bench) else "slides"
    done = sum(bench.folder.is_done(cell) for cell in cells)
    known = f", {done} of them done already" if done else ""
    return (
        f"{len(bench.labelled)} labelled slides of {len(patients)} {groups}, "
        f"{len(bench.divisions.folds)} folds {bench.divisions.kind.value}: "
        f"{len(cells)} trainings{known}."
    )


def gather(bench: Bench, cells: Sequence[Cell], *, command: str = "") -> Benchmark:
    """All finished cells as one result."""
    results: Results = {
        cell: bench.result(cell) for cell in cells if bench.folder.is_done(cell)
    }
    failed = [
        FailedCell(str(cell), bench.folder.why_failed(cell) or "It was not done.")
        for cell in cells
        if cell not in results
    ]
    rows = [
        row
        for features in bench.cohorts
        for method in bench.settings.all_methods()
        for row in rows_of(bench, results, features, method.name)
    ]
    ablations = [ablation_of(bench, results, name) for name in bench.settings.ablations]
    settings, cohort = bench.settings, bench.cohort
    slides = [cohort[int(i)] for i in bench.labelled]
    names = [
        slide.name if settings.include_slide_name else pseudonym(slide.fingerprint())
        for slide in slides
    ]
    y = cohort.class_numbers()[bench.labelled]
    return Benchmark(
        title=settings.title or "Benchmark of slide models",
        classes=tuple(cohort.classes),
        ordered=settings.ordered,
        y=y,
        names=tuple(names),
        patients=tuple(patients_of(bench)),
        sites=tuple(slide.site for slide in slides),
        is_patient_known=patients_known(bench),
        divisions=bench.divisions,
        folds=len({one.fold for one in bench.divisions.folds}),
        repeats=len({one.repeat for one in bench.divisions.folds}),
        seeds=tuple(range(settings.seeds)),
        baseline=settings.baseline,
        rows=tuple(compared(rows, bench)),
        ablations=tuple(one for one in ablations if one.rows),
        controls=tuple(controls(bench, results)),
        failed=tuple(failed),
        maps=tuple(slide_maps(bench, results)),
        position_similarity=positions_of(bench, results),
        attention=tuple(attention_examples(bench, results, names)),
        remarks=bench.remarks,
        settings=_shareable(settings),
        command=command,
        hashes=_hashes(bench),
        numbers=bench.labelled,
        learned_from=_learned_from(settings),
    )


def _learned_from(settings: BenchmarkSettings) -> str:
    if not settings.unlabelled:
        return "the training part of each fold"
    return (
        "the training part of each fold, methods without labels from all unlabelled "
        "slides too"
    )


def _shareable(settings: BenchmarkSettings) -> dict[str, Any]:
    """The settings without the folders of this computer."""
    plain = settings.plain()
    plain["features"] = [name for name, _ in settings.named_features()]
    for name in ("labels", "slide_table", "splits", "hipt_weights", "init", "only"):
        if plain[name]:
            plain[name] = Path(plain[name]).name
    plain["augmented"] = [Path(one).name for one in plain["augmented"]]
    for name in ("out", "scheduler", "tls_ca", "tls_cert", "tls_key"):
        del plain[name]
    return plain


def _hashes(bench: Bench) -> dict[str, str]:
    return {
        "labels": bench.labels_sha256,
        "recipe": bench.folder.recipe,
        **{
            f"patch encoder of {name}": cohort.facts.encoder_sha256
            for name, cohort in bench.cohorts.items()
            if cohort.facts.encoder_sha256
        },
    }
