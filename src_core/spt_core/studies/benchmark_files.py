"""A benchmark as files to compute with: tables, every value, every prediction."""

import json
import platform
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from spt_core._version import __version__
from spt_core.csv_files import write_csv
from spt_core.files import written_whole
from spt_core.insight.html_page import versions
from spt_core.notice import NOT_FOR_DIAGNOSIS
from spt_core.studies.benchmark_curves import asked_of, confusion
from spt_core.studies.benchmark_result import Benchmark, BenchmarkRow, Line
from spt_core.studies.benchmark_tables import all_tables
from spt_core.studies.benchmark_words import (
    control_sentence,
    headline,
    how,
    meaning,
    site_sentences,
)
from spt_core.studies.calibration_scores import reliability
from spt_core.studies.scores import METRICS, ORDERED_METRICS, fold_scores
from spt_core.studies.split_files import write_named_splits
from spt_core.studies.table_text import markdown, without_nan

LIBRARIES = ("numpy", "scikit-learn", "torch")
# Names of columns of ``tables.csv`` after each metric's.
_BOUNDS = ("", "_sd", "_low", "_high")
_LINE = ("features", "method", "probe", "variant")


def made_by() -> str:
    return (
        f"napari-spt {__version__}, Python {platform.python_version()}, "
        f"{versions(LIBRARIES)}"
    )


def write_markdown(path: Path, found: Benchmark) -> None:
    """All tables, with what was compared and what the numbers mean."""
    said, _ = headline(found)
    lists = [
        ("Controls", [control_sentence(one) for one in found.controls]),
        ("Failed cells", [f"{one.cell}: {one.why}" for one in found.failed]),
        ("Remarks", [*found.divisions.remarks, *found.remarks]),
        (
            "What each number means",
            [f"{name}: {text}" for name, text in meaning(found)],
        ),
    ]
    parts = [
        f"# {markdown(found.title)}",
        " ".join(markdown(one) for one in said),
        " ".join(markdown(one) for one in how(found)),
        *(table.markdown() for table in all_tables(found)),
        *(markdown(one) for one in site_sentences(found)),
    ]
    for title, items in lists:
        if items:
            parts.append(
                f"## {title}\n\n" + "\n".join(f"- {markdown(i)}" for i in items)
            )
    parts.append(f"{made_by()}. {NOT_FOR_DIAGNOSIS}")
    with written_whole(path) as temporary:
        temporary.write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def write_tables_csv(path: Path, found: Benchmark) -> None:
    """One row per line, of slides and of patients; one column per number."""
    metrics = [
        name
        for name in (*METRICS, *ORDERED_METRICS)
        if any(name in row.values for row in found.rows)
    ]
    pooled = sorted({name for row in found.rows for name in row.pooled})
    head = [
        "table", "of", *_LINE,
        *(metric + end for metric in metrics for end in _BOUNDS),
        *(f"pooled_{name}" for name in pooled),
        "difference", "difference_low", "difference_high", "p", "p_holm",
        *(f"site_knn{end}" for end in _BOUNDS),
        "cells", "missing", "seconds_per_cell",
    ]  # fmt: skip
    rows = []
    for table, of, row in _listed(found):
        values = row.values if of == "slides" else row.patient_values or {}
        is_of_slides = of == "slides"
        d = row.difference if is_of_slides else None
        site = row.site_knn if is_of_slides else None
        cells: list[Any] = [table, of, *_line(row.line)]
        for metric in metrics:
            score = values.get(metric)
            cells += (
                [score.mean, score.sd, score.low, score.high] if score else [""] * 4
            )
        cells += [row.pooled.get(name, "") if is_of_slides else "" for name in pooled]
        cells += [d.mean, d.low, d.high, d.p] if d else [""] * 4
        cells.append("" if d is None or d.p_holm is None else d.p_holm)
        cells += [site.mean, site.sd, site.low, site.high] if site else [""] * 4
        rows.append([*cells, row.cells, row.missing, row.seconds])
    write_csv(path, head, rows)


def write_predictions(path: Path, found: Benchmark) -> None:
    """What every line answered of every asked slide, in every run."""
    head = [
        "slide", "label", *_LINE, "repeat", "seed", "fold", "answer",
        *(f"share of {name}" for name in found.classes),
    ]  # fmt: skip
    write_csv(path, head, _predictions(found))


def write_results(path: Path, found: Benchmark) -> None:
    """Every value as JSON; neither patients nor single predictions."""
    plain = {
        "title": found.title,
        "version": __version__,
        "made_by": made_by(),
        "headline": headline(found)[0],
        "classes": list(found.classes),
        "ordered": found.ordered,
        "slides": len(found.y),
        "slides_by_class": np.bincount(found.y, minlength=len(found.classes)).tolist(),
        "patients": len(set(found.patients)) if found.is_patient_known else None,
        "sites": sorted({site for site in found.sites if site}),
        "division": found.divisions.kind.value,
        "folds": found.folds,
        "repeats": found.repeats,
        "seeds": list(found.seeds),
        "baseline": found.baseline,
        "supervised": list(found.supervised),
        "learned_from": found.learned_from,
        "rows": [_row(row, len(found.classes)) for row in found.rows],
        "ablations": [
            {
                "title": one.title,
                "is_ordered": one.is_ordered,
                "rows": [_row(row, len(found.classes)) for row in one.rows],
            }
            for one in found.ablations
        ],
        "controls": [asdict(one) for one in found.controls],
        "failed": [asdict(one) for one in found.failed],
        "remarks": [*found.divisions.remarks, *found.remarks],
        "settings": found.settings,
        "command": found.command,
        "hashes": found.hashes,
        "seconds": found.seconds,
    }
    text = json.dumps(without_nan(plain), indent=1, ensure_ascii=False, allow_nan=False)
    with written_whole(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def write_splits_file(path: Path, found: Benchmark) -> None:
    """Which slides were learned from and asked, in STAMP's form."""
    numbers = np.arange(len(found.y)) if found.numbers is None else found.numbers
    called = dict(zip(numbers.tolist(), found.names, strict=True))
    names = [called.get(number, "") for number in range(max(called, default=-1) + 1)]
    write_named_splits(path, names, found.divisions)


def run_of(found: Benchmark, row: BenchmarkRow, number: int) -> tuple[int, int | None]:
    """Repeat and seed of a row's run; no seed where the method has no chance in it."""
    if row.run_names:
        return row.run_names[number]
    repeat = number % found.repeats
    if len(row.runs) <= found.repeats and len(found.seeds) > 1:
        return repeat, None
    return repeat, found.seeds[number // found.repeats]


def _predictions(found: Benchmark) -> Iterator[list[Any]]:
    names = [str(name) for name in found.classes]
    for row in all_rows(found):
        line = _line(row.line)
        for number, run in enumerate(row.runs):
            repeat, seed = run_of(found, row, number)
            answers = run.shares.argmax(axis=1)
            for slide in np.flatnonzero(run.fold >= 0).tolist():
                yield [
                    found.names[slide],
                    names[run.y[slide]],
                    *line,
                    repeat,
                    "" if seed is None else seed,
                    int(run.fold[slide]),
                    names[answers[slide]],
                    *(f"{share:.7g}" for share in run.shares[slide].tolist()),
                ]


def all_rows(found: Benchmark) -> list[BenchmarkRow]:
    """The rows of the main table and of all ablations, each line once."""
    rows = [*found.rows, *(row for one in found.ablations for row in one.rows)]
    return list({row.line: row for row in reversed(rows)}.values())[::-1]


def _listed(found: Benchmark) -> Iterator[tuple[str, str, BenchmarkRow]]:
    """Every row with the table it is of, and whether of slides or patients."""
    for row in found.rows:
        yield "main", "slides", row
        if row.patient_values:
            yield "main", "patients", row
    for ablation in found.ablations:
        for row in ablation.rows:
            yield ablation.title, "slides", row


def _line(line: Line) -> list[str]:
    return [line.features, line.method, line.probe, line.variant]


def _row(row: BenchmarkRow, classes: int) -> dict[str, Any]:
    y, shares = asked_of(row.runs) if row.runs else (np.zeros(0, int), np.zeros((0, 1)))
    return {
        **asdict(row.line),
        "values": {name: asdict(score) for name, score in row.values.items()},
        "pooled": row.pooled,
        "patient_values": row.patient_values
        and {name: asdict(score) for name, score in row.patient_values.items()},
        "difference": row.difference and asdict(row.difference),
        "site_knn": row.site_knn and asdict(row.site_knn),
        "cells": row.cells,
        "missing": row.missing,
        "seconds": row.seconds,
        # of each run, one number per fold
        "folds": {
            name: [fold_scores(run, name).tolist() for run in row.runs]
            for name in row.values
        },
        "confusion": confusion(row.runs, classes).tolist(),
        "reliability": [list(one) for one in reliability(y, shares)] if len(y) else [],
    }
