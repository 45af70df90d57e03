"""The benchmark's table on real fields and bags, of which the project holds none.

    python benchmarks/real_bags.py prepare run --data ../shared/data
    python benchmarks/real_bags.py table

BreaKHis: H&E fields of breast tissue, each a small slide of 18 patches encoded by the
bundled encoder; folds by person, benign or malignant and, asked apart, the five
subtypes that five persons or more have. UCSB: 58 bags of 708 features that are none of
ours, without positions. Everything is done and scored by ``spt benchmark``'s own code;
methods without labels and those with labels take other numbers of steps, so that they
are two benchmarks of the same folds.

Fold draws are done one after the other, each with all methods. What is done is kept in
the work folder, so that a run may be killed and goes on when it is given again;
``write`` makes the JSON of the draws that are complete, method by method.
"""

import argparse
import json
import platform
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import _real_bags_data
import _real_bags_tables
import numpy as np
import torch
from _figures import RESULTS, _versions

from spt_core.studies.bench import Bench, open_bench
from spt_core.studies.bench_rows import Results, patients_of, rows_of
from spt_core.studies.benchmark_settings import BenchmarkSettings
from spt_core.studies.cell_runners import CellDone, run_cells

ROOT = Path(__file__).parents[1]
POOLINGS = ("mean", "max", "untrained")
# With labels the loss on the part set aside was least, in the first fold, after 27 of
# 108 steps on fields and after 8 to 76 of 100 on bags: more steps only cost time.
STEPS = {"ssl": {"breakhis": 150, "ucsb": 150}, "labels": {"breakhis": 54, "ucsb": 100}}
FOLDS = {"breakhis": 5, "ucsb": 10}
# Of 1,000 fields, 256 in a step would take four times as long.
BATCH = {"breakhis": 64, "ucsb": None}


@dataclass(frozen=True)
class Run:
    """Some methods on one table of labels.

    Attributes
    ----------
    kind
        Whose steps and batches they take: ``ssl`` or ``labels``.
    draws
        How often folds are drawn; the script's ``--draws`` at most.
    standardise
        ``site`` on bags means by all bags that are learned from.
    """

    question: str
    data: str
    labels: str
    kind: str
    methods: tuple[str, ...]
    draws: int
    standardise: str

    @property
    def folder(self) -> str:
        return f"{self.question}-{self.kind}-{self.standardise}"

    def settings(self, work: Path, draws: int) -> BenchmarkSettings:
        return BenchmarkSettings(
            features=(f"{self.data}={work / self.data / 'features'}",),
            labels=str(work / self.data / self.labels),
            out=str(work / "runs" / self.folder),
            methods=self.methods,
            folds=FOLDS[self.data],
            repeats=min(draws, self.draws),
            model="small",
            standardise=self.standardise,
            steps=STEPS[self.kind][self.data],
            batch_size=BATCH[self.data] if self.kind == "ssl" else None,
            device="cpu",
            workers=1,
        )


BREAKHIS = ("breakhis", "breakhis", "labels.csv")
SUBTYPES = ("subtypes", "breakhis", "subtypes.csv")
UCSB = ("ucsb", "ucsb", "labels.csv")
# What matters most comes first: a run that is stopped early has the rest of it.
RUNS = (
    Run(*UCSB, "ssl", ("mean", "max"), 10, "site"),
    Run(*UCSB, "ssl", ("mean", "max"), 10, "no"),
    Run(*UCSB, "ssl", ("untrained", "ssspt-simclr"), 3, "site"),
    Run(*UCSB, "labels", ("classify", "abmil", "dsmil"), 3, "site"),
    Run(*BREAKHIS, "ssl", (*POOLINGS, "ssspt-simclr"), 3, "no"),
    Run(*BREAKHIS, "labels", ("classify", "abmil", "dsmil"), 3, "no"),
    Run(*SUBTYPES, "ssl", ("mean", "max"), 2, "no"),
    Run(*BREAKHIS, "ssl", ("ssspt-vicreg",), 3, "no"),
    Run(*UCSB, "ssl", ("ssspt-vicreg",), 3, "site"),
    Run(*UCSB, "labels", ("clam",), 3, "site"),
    Run(*BREAKHIS, "labels", ("clam",), 3, "no"),
    Run(*UCSB, "ssl", ("ssspt-byol",), 1, "site"),
    Run(*BREAKHIS, "ssl", ("ssspt-byol",), 1, "no"),
    Run(*SUBTYPES, "ssl", ("ssspt-simclr",), 1, "no"),
    Run(*SUBTYPES, "labels", ("classify", "abmil"), 1, "no"),
    Run(*UCSB, "ssl", ("ssspt-simclr",), 1, "no"),
)


def do(run: Run, work: Path, draws: int) -> None:
    bench = open_bench(run.settings(work, draws))
    cells = bench.cells()
    for event in run_cells(bench, cells):
        if isinstance(event, CellDone):
            print(run.folder, event, flush=True)


class Opened:
    """Benchmarks of what was done; the features of a question are read once."""

    def __init__(self, work: Path) -> None:
        self.work = work
        self._whole: dict[str, Bench] = {}

    def bench(self, run: Run, draws: int) -> Bench:
        most = max(one.draws for one in RUNS if one.question == run.question)
        settings = replace(run, draws=most).settings(self.work, most)
        if run.question not in self._whole:
            self._whole[run.question] = open_bench(settings)
        whole = self._whole[run.question]
        folds = tuple(one for one in whole.divisions.folds if one.repeat < draws)
        divisions = replace(whole.divisions, folds=folds)
        return replace(whole, settings=settings, divisions=divisions)

    def rows(self, run: Run, method: str) -> Iterator[tuple[Bench, int, list]]:
        """Of the most draws in which every fold is done; nothing if none is."""
        for draws in range(run.draws, 0, -1):
            bench = self.bench(run, draws)
            cells = bench.cells_of(run.data, method)
            if all(bench.folder.is_done(cell) for cell in cells):
                results: Results = {cell: bench.folder.read(cell) for cell in cells}
                yield bench, draws, rows_of(bench, results, run.data, method)
                return


def gather(work: Path, apart: set[str]) -> dict:
    """All that is done, as plain figures.

    Parameters
    ----------
    apart
        Names of the fields of persons whom the bundled encoder has never seen.
    """
    opened = Opened(work)
    questions: dict[str, _real_bags_tables.Question] = {}
    for run in RUNS:
        for method in run.methods:
            for bench, draws, rows in opened.rows(run, method):
                asked = questions.get(run.question)
                if asked is None:
                    names = [bench.cohort[int(row)].name for row in bench.labelled]
                    asked = questions[run.question] = _real_bags_tables.Question(
                        tuple(bench.cohort.classes),
                        patients_of(bench),
                        np.isin(names, sorted(apart)),
                        float(np.mean([len(slide) for slide in bench.cohort])),
                        FOLDS[run.data],
                    )
                way = _real_bags_tables.Way(run.kind, run.standardise)
                asked.add(way, method, draws, rows)
    return {name: asked.plain() for name, asked in questions.items()}


def write(work: Path, path: Path) -> None:
    listed = work / "apart.json"
    apart = set(json.loads(listed.read_text(encoding="utf-8")))
    record = {
        "when": time.strftime("%Y-%m-%d"),
        "versions": {"python": platform.python_version(), **_versions()},
        "model": "small",
        "training seed": 0,
        "fold draws": "seeds 0, 1 and so on",
        "steps": STEPS,
        "batch": BATCH,
        "patches": {
            "mpp": _real_bags_data.MPP,
            "side": _real_bags_data.SIDE,
            "step": _real_bags_data.STEP,
        },
        "questions": gather(work, apart),
    }
    path.parent.mkdir(exist_ok=True)
    temporary = path.with_suffix(".partial")
    temporary.write_text(_real_bags_tables.compact(record), encoding="utf-8")
    temporary.replace(path)


def prepare(data: Path, work: Path) -> None:
    fields = _real_bags_data.prepare_breakhis(data / "tiles/breakhis", work)
    apart = [field.slide for field in fields if field.is_apart]
    (work / "apart.json").write_text(json.dumps(apart), encoding="utf-8")
    _real_bags_data.prepare_ucsb(data / "bags/ucsb_breast_cancer.csv.gz", work)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "stages", nargs="*", default=["table"], help="prepare, run, write, table"
    )
    parser.add_argument("--data", type=Path, default=ROOT / "../shared/data")
    parser.add_argument("--work", type=Path, default=ROOT / "build/real")
    parser.add_argument("--draws", type=int, default=3, help="of the folds, at most")
    parser.add_argument("--json", type=Path, default=RESULTS / "real_bags.json")
    args = parser.parse_args()
    torch.set_num_threads(1)
    for stage in args.stages:
        if stage == "prepare":
            if not args.data.is_dir():
                print(f"skipped: there is no {args.data}")
                return
            prepare(args.data, args.work)
        elif stage == "run":
            for draw in range(1, args.draws + 1):
                for run in RUNS:
                    # Poolings cost nothing: all of their draws at once.
                    draws = run.draws if run.draws > args.draws else draw
                    if draws <= run.draws:
                        do(run, args.work, draws)
            write(args.work, args.json)
        elif stage == "write":
            write(args.work, args.json)
        else:
            found = json.loads(args.json.read_text(encoding="utf-8"))
            print(_real_bags_tables.tables(found["questions"]))


if __name__ == "__main__":
    main()
