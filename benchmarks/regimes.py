"""The benchmark's full table and ablations, where tumour is the minority of the tissue
and where it is the majority.

    python benchmarks/site_learning.py paint
    python benchmarks/regimes.py run write
    python benchmarks/regimes.py table

``spt benchmark``'s own code on the last cohorts of ``site_learning.py``: one of them is
learned from, the other one, of other patients and other sites, is asked. One training
seed. The ablations are in batches of one site, which take a fifth of the time. What is
done is kept in the work folder, so that a run may be killed, and ``write`` takes what
there is; TransMIL, which takes a second per slide and step without a GPU, is left out.
"""

import argparse
import csv
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from _figures import RESULTS, _versions

from spt_core.studies.bench import open_bench
from spt_core.studies.benchmark import gather
from spt_core.studies.benchmark_result import Benchmark, BenchmarkRow
from spt_core.studies.benchmark_settings import BenchmarkSettings
from spt_core.studies.cell_runners import CellDone, run_cells

ROOT = Path(__file__).parents[1]
PAIRS = {one: (f"{one}-21", f"{one}-22") for one in ("minority", "majority")}
METHODS = (
    "mean", "max", "untrained", "ssspt-simclr", "abmil", "classify", "clam", "dsmil",
    "suspt", "pretrained-classify", "giga-ssl", "ssspt-vicreg", "ssspt-byol", "hipt",
)  # fmt: skip
ABLATIONS = ("transformations", "crop", "tokens", "depth", "objective")
STEPS = 300
# What matters most comes first: the rest sees whole slides, or learns twice.
SLOW = ("pretrained-classify", "clam", "dsmil", "hipt")
FAST = tuple(name for name in METHODS if name not in SLOW)
WORK = (
    ("minority", "table", FAST),
    ("minority", "ablations", FAST),
    ("majority", "table", FAST),
    ("majority", "ablations", FAST),
    ("minority", "table", SLOW),
    ("majority", "table", SLOW),
)


def joined(work: Path, cohorts: Path, regime: str) -> Path:
    """Both cohorts as one, with a column ``split``."""
    folder = work / regime
    features = folder / "features"
    features.mkdir(parents=True, exist_ok=True)
    rows = []
    for cohort, split in zip(PAIRS[regime], ("train", "test"), strict=True):
        with (cohorts / cohort / "labels.csv").open(encoding="utf-8") as file:
            for row in csv.DictReader(file):
                name = f"{cohort}-{row['slide']}"
                target = features / f"{name}.h5"
                if not target.exists():
                    os.link(
                        cohorts / cohort / "features" / f"{row['slide']}.h5", target
                    )
                patient, site = (f"{cohort} {row[one]}" for one in ("patient", "site"))
                rows.append((name, row["label"], patient, site, split))
    with (folder / "labels.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(("slide", "label", "patient", "site", "split"))
        table.writerows(rows)
    return folder


def settings_of(work: Path, regime: str, part: str) -> BenchmarkSettings:
    folder = work / regime
    common: dict[str, Any] = {
        "features": (str(folder / "features"),),
        "labels": str(folder / "labels.csv"),
        "out": str(folder / part),
        "model": "small",
        "steps": STEPS,
        "device": "cpu",
        "workers": 1,
    }
    if part == "table":
        return BenchmarkSettings(methods=METHODS, **common)
    methods = ("mean", "ssspt-simclr")
    return BenchmarkSettings(
        methods=methods, ablations=ABLATIONS, site_batches=True, **common
    )


def run(work: Path, regime: str, part: str, methods: tuple[str, ...]) -> None:
    bench = open_bench(settings_of(work, regime, part))
    cells = [cell for cell in bench.cells() if cell.method in methods]
    for event in run_cells(bench, cells):
        if isinstance(event, CellDone):
            print(regime, event, flush=True)


def done(work: Path, regime: str, part: str) -> Benchmark:
    """What has been done of it."""
    bench = open_bench(settings_of(work, regime, part))
    return gather(bench, bench.cells())


def plain(row: BenchmarkRow) -> dict[str, Any]:
    score, gain = row.values["accuracy"], row.difference
    return {
        "accuracy": [score.mean, score.low, score.high],
        "minus mean pooling": gain and [gain.mean, gain.low, gain.high],
        "site": row.site_knn and row.site_knn.mean,
    }


def gathered(work: Path, regime: str) -> dict[str, Any]:
    table: dict[str, dict[str, Any]] = {}
    for row in done(work, regime, "table").rows:
        table.setdefault(row.line.method, {})[row.line.probe] = plain(row)
    return {
        "table": table,
        "ablations": {
            one.title: {
                f"{row.line.variant}, {row.line.probe}": plain(row) for row in one.rows
            }
            for one in done(work, regime, "ablations").ablations
        },
    }


def tables(found: dict[str, Any]) -> Iterator[str]:
    for regime, results in found["regimes"].items():
        probes = ("kNN", "linear", "own classifier")
        yield f"**Tumour is the {regime}**\n"
        yield "| method | kNN | − mean | linear | own classifier | kNN of site |"
        yield "|---|---|---|---|---|---|"
        for method, by_probe in results["table"].items():
            knn, linear, own = (_score(by_probe.get(probe)) for probe in probes)
            asked = by_probe.get("kNN", {})
            gain, site = asked.get("minus mean pooling"), asked.get("site")
            cells = (
                method, knn, _interval(gain, "+.1f") if gain else "", linear, own,
                f"{100 * site:.1f}" if site is not None else "",
            )  # fmt: skip
            yield f"| {' | '.join(cells)} |"
        for title, variants in results["ablations"].items():
            yield f"\n{title}, {regime}: kNN of class (site)\n"
            for name, one in variants.items():
                if name.endswith(", kNN"):
                    site = "" if one["site"] is None else f" ({100 * one['site']:.1f})"
                    yield f"- {name.removesuffix(', kNN')}: {_score(one)}{site}"
        yield ""


def _score(one: dict[str, Any] | None) -> str:
    return _interval(one["accuracy"], ".1f") if one else ""


def _interval(numbers: list[float], how: str) -> str:
    mean, low, high = (f"{100 * number:{how}}" for number in numbers)
    return f"{mean} [{low}, {high}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "stages", nargs="*", default=["table"], help="run, write, table"
    )
    parser.add_argument("--cohorts", type=Path, default=ROOT / "build/sites")
    parser.add_argument("--work", type=Path, default=ROOT / "build/regimes")
    args = parser.parse_args()
    torch.set_num_threads(1)
    path = RESULTS / "regimes.json"
    for stage in args.stages:
        found: dict[str, Any] = {"regimes": {}}
        if path.exists():
            found = json.loads(path.read_text(encoding="utf-8"))
        if stage == "run":
            for regime in PAIRS:
                joined(args.work, args.cohorts, regime)
            for regime, part, methods in WORK:
                run(args.work, regime, part, methods)
        elif stage == "write":
            found["regimes"] = {one: gathered(args.work, one) for one in PAIRS}
            found |= {"versions": _versions(), "steps": STEPS, "seeds": [0]}
            path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        else:
            print("\n".join(tables(found)))


if __name__ == "__main__":
    main()
