"""A benchmark's time against the bare training and evaluation of its cells.

Each cell is done once by the benchmark and once by hand, in turns: train in a folder,
embed the slides, ask neighbours and a linear classifier. What the benchmark adds are
result files, its folds, the statistics and the report.
"""

import argparse
import shutil
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from _figures import Figures

from spt_core.devices import choose_device
from spt_core.events import finish
from spt_core.learning.cohort import Cohort
from spt_core.learning.model_file import load_model
from spt_core.learning.monitor import embed_slide
from spt_core.learning.training import train
from spt_core.sample.cohort import write_sample_cohort
from spt_core.studies.bench import Bench, open_bench
from spt_core.studies.benchmark import gather
from spt_core.studies.benchmark_methods import METHODS
from spt_core.studies.benchmark_report import write_report
from spt_core.studies.benchmark_settings import BenchmarkSettings
from spt_core.studies.cell_work import do_cell
from spt_core.studies.cells import Cell
from spt_core.studies.embeddings import pooling_model
from spt_core.studies.probes import probe_shares


def bare(bench: Bench, cell: Cell, folder: Path) -> None:
    """The same training, embeddings and probes, and nothing written but a run."""
    method, division = METHODS[cell.method], bench.division(cell)
    cohort: Cohort = bench.cohorts[cell.features]
    if method.learns:
        slides = [
            replace(cohort[int(i)], split=split, label=label(cohort, i, method))
            for part, split in ((division.train, "train"), (division.val, "val"))
            for i in part
            for split in ([split] if method.uses_labels else ["train"])
        ]
        settings = replace(bench.train_settings(cell), out=str(folder))
        found = finish(train(settings, cohort=replace(cohort, slides=slides)))
        model = load_model(found.best)
        shutil.rmtree(folder)
    else:
        model = pooling_model(str(method.model), cohort)
    device = choose_device("cpu")
    h = np.stack([embed_slide(model.encoder, slide, device) for slide in cohort])
    y, patients = cohort.class_numbers(), cohort.patients()
    probe_shares(h, y, patients, division, len(cohort.classes))


def label(cohort: Cohort, number: int, method) -> str | None:
    return cohort[int(number)].label if method.uses_labels else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cohort", type=Path, help="painted, and encoded, before")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--folds", type=int, default=3)
    args = parser.parse_args()
    figures = Figures("benchmark_overhead", steps=args.steps, folds=args.folds, seed=0)
    with tempfile.TemporaryDirectory() as made:
        cohort = args.cohort
        if cohort is None:
            from spt_core.cli import main as spt

            cohort = Path(made) / "cohort"
            finish(write_sample_cohort(cohort, slides=36, size=2048, seed=11))
            spt(["encode", str(cohort), "--out", str(cohort / "features")])
        settings = BenchmarkSettings(
            features=(str(cohort / "features"),),
            labels=str(cohort / "labels.csv"),
            out=str(Path(made) / "out"),
            methods=("mean", "ssspt-simclr", "abmil", "classify"),
            folds=args.folds,
            steps=args.steps,
            device="cpu",
        )
        began = time.perf_counter()
        bench = open_bench(settings)
        ours, theirs = time.perf_counter() - began, 0.0
        cells = bench.cells()
        bare(bench, next(c for c in cells if c.method == "abmil"), Path(made) / "warm")
        for number, cell in enumerate(cells):
            turns = [True, False] if number % 2 else [False, True]
            for is_ours in turns:
                began = time.perf_counter()
                if is_ours:
                    finish(do_cell(bench, cell))
                    ours += time.perf_counter() - began
                else:
                    bare(bench, cell, Path(made) / "bare")
                    theirs += time.perf_counter() - began
        began = time.perf_counter()
        write_report(Path(made) / "report", gather(bench, cells))
        report = time.perf_counter() - began
    figures.add("cells", len(cells))
    figures.add("bare training and evaluation", theirs, "s")
    figures.add("benchmark, its cells", ours, "s")
    figures.add("benchmark, gathering and report", report, "s")
    figures.add("benchmark / bare", (ours + report) / theirs, goal="<= 1.1")
    figures.save()


if __name__ == "__main__":
    main()
