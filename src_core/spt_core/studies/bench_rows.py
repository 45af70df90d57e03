"""The lines of a benchmark's tables, from the results of its cells."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from spt_core.insight.calibration import calibration_error
from spt_core.studies.bench import Bench
from spt_core.studies.benchmark_methods import ABLATIONS
from spt_core.studies.benchmark_result import Ablation, BenchmarkRow, Line
from spt_core.studies.calibration_scores import calibration_slope
from spt_core.studies.cells import Cell, CellResult
from spt_core.studies.paired import holm, paired_difference
from spt_core.studies.scores import (
    METRICS,
    ORDERED_METRICS,
    OutOfFold,
    asked_weights,
    of_patients,
    pooled_score,
)
from spt_core.studies.table import Score, score_of

Results = dict[Cell, CellResult]


def patients_of(bench: Bench) -> list[str]:
    patients = bench.cohort.patients()
    return [patients[int(i)] for i in bench.labelled]


def patients_known(bench: Bench) -> bool:
    return all(bench.cohort[int(i)].patient for i in bench.labelled)


def rows_of(
    bench: Bench,
    results: Results,
    features: str,
    method: str,
    ablation: str = "",
    variant: str = "",
) -> list[BenchmarkRow]:
    """One per probe, of a method or a variant of one."""
    cells = bench.cells_of(features, method, ablation, variant)
    done = [cell for cell in cells if cell in results]
    shown = features if len(bench.cohorts) > 1 else ""
    probes = dict.fromkeys(name for cell in done for name in results[cell].shares)
    site = _site(bench, [results[cell] for cell in done])
    seconds = [
        results[cell].facts["train_seconds"] + results[cell].facts["embed_seconds"]
        for cell in done
    ]
    rows = []
    for probe in probes:
        by_run = runs_of(bench, results, done, probe)
        runs = list(by_run.values())
        values, pooled, of_patient = _scores(bench, runs)
        rows.append(
            BenchmarkRow(
                Line(shown, method, probe, variant),
                values,
                pooled,
                of_patient,
                None,
                site,
                len(done),
                len(cells) - len(done),
                float(np.mean(seconds)),
                tuple(runs),
                tuple((repeat, seed) for seed, repeat in by_run),
            )
        )
    return rows


def runs_of(
    bench: Bench, results: Results, cells: Iterable[Cell], probe: str
) -> dict[tuple[int, int], OutOfFold]:
    """All folds together, by seed and repeat."""
    y = bench.cohort.class_numbers()[bench.labelled]
    classes = len(bench.cohort.classes)
    runs: dict[tuple[int, int], OutOfFold] = {}
    for cell in sorted(cells):
        found = results[cell]
        key = (cell.seed, cell.repeat)
        if key not in runs:
            fold = np.full(len(y), -1, np.int64)
            runs[key] = OutOfFold(y, fold, np.zeros((len(y), classes)))
        runs[key].fold[found.asked] = cell.fold
        runs[key].shares[found.asked] = found.shares[probe]
    return dict(sorted(runs.items()))


def _scores(
    bench: Bench, runs: list[OutOfFold]
) -> tuple[dict[str, Score], dict[str, float], dict[str, Score] | None]:
    """Scores within folds, of all folds together, and of patients."""
    metrics = [*METRICS, *(ORDERED_METRICS if bench.settings.ordered else ())]
    patients = patients_of(bench)
    weights = asked_weights(runs, patients)
    values = {name: score_of(runs, name, weights) for name in metrics}
    pooled = {name: pooled_score(runs, name) for name in metrics}
    asked = [(run.y[run.fold >= 0], run.shares[run.fold >= 0]) for run in runs]
    pooled["slope"] = float(np.mean([calibration_slope(y, s) for y, s in asked]))
    pooled["ece"] = float(np.mean([calibration_error(s, y) for y, s in asked]))
    if not patients_known(bench) or len(set(patients)) == len(patients):
        return values, pooled, None
    together = [of_patients(run, patients) for run in runs]
    groups = together[0][1]
    # Where cells failed, runs are of different patients.
    if not groups or any(others != groups for _, others, _ in together):
        return values, pooled, None
    per_patient = [one for one, _, _ in together]
    weights = asked_weights(per_patient, groups)
    of_patient = {name: score_of(per_patient, name, weights) for name in metrics}
    return values, pooled, of_patient


def _site(bench: Bench, found: Sequence[CellResult]) -> Score | None:
    """kNN of site: mean accuracy over sites, of asked slides in every cell."""
    if len(bench.sites) < 2 or not found:
        return None
    numbers = bench.site_numbers()[bench.labelled]
    runs = []
    for one in found:
        if one.site_shares is None:
            continue
        known = np.isfinite(one.site_shares).all(axis=1)
        fold = np.full(len(numbers), -1, np.int64)
        fold[one.asked[known]] = 0
        shares = np.zeros((len(numbers), len(bench.sites)))
        shares[one.asked[known]] = one.site_shares[known]
        runs.append(OutOfFold(numbers, fold, shares))
    if not runs:
        return None
    weights = asked_weights(runs, patients_of(bench))
    return score_of(runs, "accuracy", weights)


def compared(rows: list[BenchmarkRow], bench: Bench) -> list[BenchmarkRow]:
    """Each row with its paired difference to the baseline, p-values after Holm."""
    patients = patients_of(bench)
    baseline = bench.settings.baseline
    found: list[BenchmarkRow] = []
    for row in rows:
        theirs = _baseline_of(row, rows, baseline)
        # Of cells that failed the other's answers would count alone.
        is_whole = theirs is not None and not row.missing and not theirs.missing
        if theirs is None or not is_whole or row.line.method == baseline:
            found.append(row)
            continue
        difference = paired_difference(row.runs, theirs.runs, patients, "accuracy")
        found.append(replace(row, difference=difference))
    compared = [row.difference for row in found if row.difference is not None]
    adjusted = dict(
        zip(map(id, compared), holm([one.p for one in compared]), strict=True)
    )
    return [
        row
        if row.difference is None
        else replace(
            row, difference=replace(row.difference, p_holm=adjusted[id(row.difference)])
        )
        for row in found
    ]


def _baseline_of(
    row: BenchmarkRow, rows: Sequence[BenchmarkRow], baseline: str
) -> BenchmarkRow | None:
    """The baseline's row of the same probe; its linear one where it has no such."""
    of_baseline = {
        one.line.probe: one
        for one in rows
        if (one.line.features, one.line.method) == (row.line.features, baseline)
    }
    return of_baseline.get(row.line.probe, of_baseline.get("linear"))


def ablation_of(bench: Bench, results: Results, name: str) -> Ablation:
    plan = ABLATIONS[name]
    rows = [
        replace(row, line=replace(row.line, variant=variant.name))
        for features in bench.cohorts
        for variant in plan.variants
        for row in rows_of(bench, results, features, bench.ablated, name, variant.name)
    ]
    return Ablation(plan.title, plan.is_ordered, tuple(rows))
