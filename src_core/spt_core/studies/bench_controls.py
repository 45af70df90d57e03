"""What a benchmark's methods reach with labels permuted between patients."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from spt_core.studies.bench import Bench
from spt_core.studies.bench_rows import Results
from spt_core.studies.benchmark_methods import METHODS
from spt_core.studies.benchmark_result import Control, Line
from spt_core.studies.cells import Cell, CellResult
from spt_core.studies.probes import permuted_labels
from spt_core.studies.scores import METRICS, interval


def controls(bench: Bench, results: Results) -> list[Control]:
    """What each probe and classifier reaches with labels permuted between patients."""
    if not bench.settings.permute_labels:
        return []
    chance = 1 / len(bench.cohort.classes)
    found = []
    shown = len(bench.cohorts) > 1
    for features in bench.cohorts:
        for method in bench.settings.all_methods():
            cells = bench.cells_of(features, method.name)
            by_probe: dict[str, list[NDArray[np.float64]]] = {}
            for cell in cells:
                if method.uses_labels:
                    cell = replace(cell, permuted=True)
                if cell not in results:
                    continue
                for probe, scores in _control_scores(bench, cell, results[cell]):
                    by_probe.setdefault(probe, []).append(scores)
            for probe, each in by_probe.items():
                scores = np.nanmean(np.stack(each), axis=0)
                low, high = _around(scores, np.stack(each))
                line = Line(features if shown else "", method.name, probe)
                found.append(Control(line, tuple(scores.tolist()), chance, low, high))
    return found


def _control_scores(
    bench: Bench, cell: Cell, result: CellResult
) -> Iterable[tuple[str, NDArray[np.float64]]]:
    if not METHODS[cell.method].uses_labels:
        return result.controls.items()
    cohort = bench.cohort
    y = permuted_labels(
        cohort.class_numbers(), cohort.patients(), bench.labelled, cell.seed
    )[bench.labelled][result.asked]
    weights = np.ones((1, len(y)))
    return [
        (probe, METRICS["accuracy"](y, shares, weights))
        for probe, shares in result.shares.items()
    ]


def _around(
    scores: NDArray[np.float64], by_cell: NDArray[np.float64]
) -> tuple[float, float]:
    """The 95 % interval of the mean: over permutations, or over folds of one."""
    each = scores if len(scores) > 1 else by_cell[:, 0]
    each = each[np.isfinite(each)]
    if len(each) < 2:
        return float("nan"), float("nan")
    rng = np.random.default_rng(0)
    means = rng.choice(each, (2000, len(each))).mean(axis=1)
    found = interval(means)
    return found.low, found.high
