"""A benchmark from beginning to end: open, do the cells, gather, write the report."""

import hashlib
import time
from collections.abc import Generator, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spt_core.errors import InputError
from spt_core.events import Note, Progress
from spt_core.files import held_by_one, written_whole
from spt_core.insight.calibration import calibration_error
from spt_core.insight.results import pseudonym
from spt_core.studies.bench import Bench, open_bench
from spt_core.studies.benchmark_methods import ABLATIONS, METHODS
from spt_core.studies.benchmark_report import write_report
from spt_core.studies.benchmark_result import (
    Ablation,
    AttentionExample,
    Benchmark,
    BenchmarkRow,
    Control,
    FailedCell,
    Line,
    SlideMap,
)
from spt_core.studies.benchmark_settings import BenchmarkSettings
from spt_core.studies.calibration_scores import calibration_slope
from spt_core.studies.cell_runners import run_cells
from spt_core.studies.cells import Cell, CellResult
from spt_core.studies.methods import KNN
from spt_core.studies.paired import holm, paired_difference
from spt_core.studies.scores import (
    METRICS,
    ORDERED_METRICS,
    OutOfFold,
    interval,
    of_patients,
    patient_weights,
    pooled_score,
)
from spt_core.studies.table import Score, score_of

SETTINGS_FILE = "benchmark.yaml"
REPORT_FOLDER = "report"
EXAMPLES = 6

Events = Generator[Any, None, Benchmark]
Results = dict[Cell, CellResult]


def benchmark(settings: BenchmarkSettings, *, command: str = "") -> Events:
    """Compare methods on a cohort; what is done already in ``settings.out`` is kept.

    Closing the generator stops; the next call goes on.

    Parameters
    ----------
    command
        By which it was asked for, for the report.
    """
    began = time.monotonic()
    out = Path(settings.out)
    bench = open_bench(settings)
    for remark in (*bench.notes, *bench.remarks):
        yield Note(remark)
    with held_by_one(out / ".lock") as is_ours:
        if not is_ours:
            raise InputError(f"Another process is at work in {out}.")
        cells = bench.cells()
        for cell in cells:  # of other settings: said before anything is done
            if bench.folder.is_done(cell):
                bench.folder.read(cell)
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
    groups = "patients" if _patients_known(bench) else "slides"
    done = sum(bench.folder.is_done(cell) for cell in cells)
    known = f", {done} of them done already" if done else ""
    return (
        f"{len(bench.labelled)} labelled slides of {len(patients)} {groups}, "
        f"{len(bench.divisions.folds)} folds {bench.divisions.kind.value}: "
        f"{len(cells)} cells{known}."
    )


def gather(bench: Bench, cells: Sequence[Cell], *, command: str = "") -> Benchmark:
    """All finished cells as one result."""
    results: Results = {
        cell: bench.folder.read(cell) for cell in cells if bench.folder.is_done(cell)
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
        for row in _rows(bench, results, features, method.name)
    ]
    ablations = [_ablation(bench, results, name) for name in bench.settings.ablations]
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
        patients=tuple(_patients(bench)),
        sites=tuple(slide.site for slide in slides),
        is_patient_known=_patients_known(bench),
        divisions=bench.divisions,
        folds=len({one.fold for one in bench.divisions.folds}),
        repeats=len({one.repeat for one in bench.divisions.folds}),
        seeds=tuple(range(settings.seeds)),
        baseline=settings.baseline,
        rows=tuple(_compared(rows, bench)),
        ablations=tuple(one for one in ablations if one.rows),
        controls=tuple(_controls(bench, results)),
        failed=tuple(failed),
        maps=tuple(_maps(bench, results)),
        position_similarity=_position_similarity(bench, results),
        attention=tuple(_examples(bench, results, names)),
        remarks=bench.remarks,
        settings=_shareable(settings),
        command=command,
        hashes=_hashes(bench),
    )


def _patients(bench: Bench) -> list[str]:
    patients = bench.cohort.patients()
    return [patients[int(i)] for i in bench.labelled]


def _patients_known(bench: Bench) -> bool:
    return all(bench.cohort[int(i)].patient for i in bench.labelled)


def _rows(
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
        runs = _runs(bench, results, done, probe)
        values, pooled, of_patient = _scores(bench, runs)
        rows.append(
            BenchmarkRow(
                Line(shown, method, probe, variant),
                values,
                pooled,
                of_patient,
                None,
                site,
                len(cells),
                len(cells) - len(done),
                float(np.mean(seconds)),
                tuple(runs),
            )
        )
    return rows


def _runs(
    bench: Bench, results: Results, cells: Iterable[Cell], probe: str
) -> list[OutOfFold]:
    """All folds of one repeat and seed together, the folds of other seeds alike."""
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
    return [runs[key] for key in sorted(runs)]


def _scores(
    bench: Bench, runs: list[OutOfFold]
) -> tuple[dict[str, Score], dict[str, float], dict[str, Score] | None]:
    """Scores within folds, of all folds together, and of patients."""
    metrics = [*METRICS, *(ORDERED_METRICS if bench.settings.ordered else ())]
    patients = _patients(bench)
    weights = patient_weights(runs[0].y, patients)
    values = {name: score_of(runs, name, weights) for name in metrics}
    pooled = {name: pooled_score(runs, name) for name in metrics}
    asked = [(run.y[run.fold >= 0], run.shares[run.fold >= 0]) for run in runs]
    pooled["slope"] = float(np.mean([calibration_slope(y, s) for y, s in asked]))
    pooled["ece"] = float(np.mean([calibration_error(s, y) for y, s in asked]))
    if not _patients_known(bench) or len(set(patients)) == len(patients):
        return values, pooled, None
    together = [of_patients(run, patients) for run in runs]
    groups = together[0][1]
    if not groups:
        return values, pooled, None
    per_patient = [one for one, _, _ in together]
    weights = patient_weights(per_patient[0].y, groups)
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
    weights = patient_weights(np.maximum(numbers, 0), _patients(bench))
    return score_of(runs, "accuracy", weights)


def _compared(rows: list[BenchmarkRow], bench: Bench) -> list[BenchmarkRow]:
    """Each row with its paired difference to the baseline, p-values after Holm."""
    patients = _patients(bench)
    baseline = bench.settings.baseline
    found: list[BenchmarkRow] = []
    for row in rows:
        theirs = _baseline_of(row, rows, baseline)
        if theirs is None or row.line.method == baseline:
            found.append(row)
            continue
        difference = paired_difference(row.runs, theirs.runs, patients, "accuracy")
        found.append(replace(row, difference=difference))
    places = [i for i, row in enumerate(found) if row.difference is not None]
    adjusted = holm([found[i].difference.p for i in places])  # type: ignore[union-attr]
    for place, p in zip(places, adjusted, strict=True):
        difference = found[place].difference
        if difference is not None:
            found[place] = replace(
                found[place], difference=replace(difference, p_holm=p)
            )
    return found


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


def _ablation(bench: Bench, results: Results, name: str) -> Ablation:
    plan = ABLATIONS[name]
    rows = [
        replace(row, line=replace(row.line, variant=variant.name))
        for features in bench.cohorts
        for variant in plan.variants
        for row in _rows(bench, results, features, bench.ablated, name, variant.name)
    ]
    return Ablation(plan.title, plan.is_ordered, tuple(rows))


def _controls(bench: Bench, results: Results) -> list[Control]:
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
    from spt_core.studies.probes import permuted_labels

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


def _maps(bench: Bench, results: Results) -> list[SlideMap]:
    found = []
    for features in bench.cohorts:
        for method in bench.settings.all_methods():
            cells = bench.cells_of(features, method.name)
            first = cells[0]
            if first not in results:
                continue
            done = [cell for cell in cells if cell in results and cell.seed == 0]
            run = _runs(bench, results, [c for c in done if c.repeat == 0], KNN)[0]
            predicted = np.where(run.fold >= 0, run.shares.argmax(axis=1), -1)
            shown = features if len(bench.cohorts) > 1 else ""
            found.append(
                SlideMap(
                    method.name,
                    shown,
                    results[first].h,
                    run.fold == first.fold,
                    predicted,
                )
            )
    return found


def _shown_model(bench: Bench, results: Results) -> Cell | None:
    """The first cell of an SPT method whose model was kept."""
    for method in bench.settings.all_methods():
        if not method.learns or not method.is_spt:
            continue
        cell = bench.cells_of(next(iter(bench.cohorts)), method.name)[0]
        if cell in results and bench.folder.model(cell).exists():
            return cell
    return None


def _position_similarity(
    bench: Bench, results: Results
) -> NDArray[np.floating] | None:
    cell = _shown_model(bench, results)
    if cell is None:
        return None
    from spt_core.learning.model_file import load_model
    from spt_core.learning.slide_encoder import SlideEncoder
    from spt_core.studies.benchmark_positions import position_similarity

    encoder = load_model(bench.folder.model(cell)).encoder
    return position_similarity(encoder) if isinstance(encoder, SlideEncoder) else None


def _examples(
    bench: Bench, results: Results, names: Sequence[str]
) -> list[AttentionExample]:
    """Asked slides of the first fold, of each class in turn."""
    cell = _shown_model(bench, results)
    if cell is None:
        return []
    import torch

    from spt_core.learning.model_file import load_model

    encoder = load_model(bench.folder.model(cell)).encoder
    cohort, result = bench.cohorts[cell.features], results[cell]
    y = cohort.class_numbers()[bench.labelled]
    by_class = [
        [int(row) for row in result.asked if y[row] == number]
        for number in range(len(cohort.classes))
    ]
    turns = [rows[i] for i in range(EXAMPLES) for rows in by_class if i < len(rows)]
    probe = next(iter(result.shares))
    place = {int(row): i for i, row in enumerate(result.asked)}
    found = []
    for row in turns[:EXAMPLES]:
        slide = cohort[int(bench.labelled[row])]
        x = torch.from_numpy(np.asarray(slide.tokens(), np.float32))
        with torch.no_grad():
            _, attention = encoder.attend(x, torch.from_numpy(slide.p))
        shares = result.shares[probe][place[row]]
        found.append(
            AttentionExample(
                name=names[row],
                p=slide.p.astype(np.int64),
                attention=attention.mean(dim=0).float().cpu().numpy(),
                label=cohort.classes[y[row]],
                predicted=cohort.classes[int(shares.argmax())],
                share=float(shares.max()),
                method=cell.method,
            )
        )
    return found


def _shareable(settings: BenchmarkSettings) -> dict[str, Any]:
    """The settings without the folders of this computer."""
    plain = settings.plain()
    plain["features"] = [name for name, _ in settings.named_features()]
    for name in ("labels", "slide_table", "splits", "hipt_weights"):
        if plain[name]:
            plain[name] = Path(plain[name]).name
    plain["augmented"] = [Path(one).name for one in plain["augmented"]]
    del plain["out"]
    return plain


def _hashes(bench: Bench) -> dict[str, str]:
    labels = Path(bench.settings.labels).read_bytes()
    return {
        "labels": hashlib.sha256(labels).hexdigest(),
        "recipe": bench.folder.recipe,
        **{
            f"patch encoder of {name}": cohort.facts.encoder_sha256
            for name, cohort in bench.cohorts.items()
            if cohort.facts.encoder_sha256
        },
    }
