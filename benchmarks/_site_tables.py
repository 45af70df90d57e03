"""Scores of ``site_learning.py``, and its tables from the JSON alone."""

import json

import numpy as np

from spt_core.training.knn import mean_class_accuracy

DRAWS = 2000
DEFAULT = "simclr/site/negatives of the site"
THE_PAPERS_WAY = "simclr/no/all"
TRIED = "tried/default"


def compact(found: dict) -> str:
    """JSON with one run per line, for readable differences between versions."""
    parts = []
    for name, value in found.items():
        if name in ("runs", "cohorts"):
            lines = [f"    {json.dumps(k)}: {json.dumps(v)}" for k, v in value.items()]
            parts.append(f"  {json.dumps(name)}: {{\n" + ",\n".join(lines) + "\n  }")
        else:
            parts.append(f"  {json.dumps(name)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def scored(y, sites, **said) -> dict:
    """Mean class accuracy of each question, and which slides were right."""
    record: dict = {}
    for name, answers in said.items():
        truth = sites if name == "site_knn" else y
        record[name] = mean_class_accuracy(truth, answers)
        record[f"{name} right"] = (answers == truth).astype(int).tolist()
    return record


def tables(found: dict) -> str:
    """One table for each pair of cohorts, in Markdown."""
    return "\n\n".join(_table(found, name) for name in found["cohorts"])


def _table(found: dict, where: str) -> str:
    cohort = found["cohorts"][where]
    methods: dict[str, list[dict]] = {}
    for name, record in found["runs"].items():
        method = name.removeprefix(f"{where}/").split("/seed ")[0]
        if name.startswith(f"{where}/") and "knn" in record:
            methods.setdefault(method, []).append(record)
    count = len(set(cohort["patient"]))
    lines = [
        f"**{where}**: trained on {cohort['slides'][0]} slides of "
        f"{cohort['patients'][0]} patients ({cohort['learned from']}), tested on "
        f"{cohort['slides'][1]} slides of {count} patients "
        f"({', '.join(cohort['asked'])}), {cohort['tokens'][1]} patches each.",
        "",
        "| method | seeds | kNN, class | − mean | − max | kNN, site | linear | own |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for method, runs in methods.items():
        against = [
            _difference(cohort, runs, methods[one])
            if one in methods and method != one
            else ""
            for one in ("mean/no", "max/no")
        ]
        cells = [
            f"{100 * np.mean([run[name] for run in runs]):.1f}"
            if name in runs[0]
            else ""
            for name in ("knn", "site_knn", "linear", "own")
        ]
        lines.append(
            f"| {method} | {len(runs)} | {cells[0]} | {against[0]} | {against[1]} | "
            f"{cells[1]} | {cells[2]} | {cells[3]} |"
        )
    sites = len(set(cohort["sites"]))
    lines += ["", f"Chance: class {100 / 3:.0f}, site {100 / sites:.0f}."]
    if DEFAULT in methods and THE_PAPERS_WAY in methods:
        gain = _difference(cohort, methods[DEFAULT], methods[THE_PAPERS_WAY])
        lines[-1] += f" The default against the paper's way: {gain}."
    if TRIED in methods:
        lines += ["", "Tried, against the default in the same batches:", ""]
        lines += [
            f"- {name.removeprefix('tried/')}: {_difference(cohort, runs, base)}"
            for name, runs in methods.items()
            if name.startswith("tried/") and name != TRIED
            # The same training seeds of both.
            for base in [methods[TRIED][: len(runs)]]
        ]
    return "\n".join(lines)


def _difference(
    cohort: dict, ours: list[dict], theirs: list[dict], few: str | None = None
) -> str:
    """Of mean class accuracy in points, with its 95 % interval over patients: by
    nearest neighbours, or by linear classifiers of so few labelled patients."""
    y, patients = np.array(cohort["y"]), np.array(cohort["patient"])
    right = [
        np.mean(
            [run["few right"][few] if few else run["knn right"] for run in runs], axis=0
        )
        for runs in (ours, theirs)
    ]
    gain = right[0] - right[1]
    of_class = np.unique(y)[:, None] == y[None, :]  # (classes, slides)
    drawn = np.random.default_rng(0).multinomial(
        patients.max() + 1, np.full(patients.max() + 1, 1 / (patients.max() + 1)), DRAWS
    )
    weights = np.vstack([np.ones(patients.max() + 1), drawn])[:, patients]
    total = weights @ of_class.T
    shares = (weights * gain) @ of_class.T / np.maximum(total, 1e-9)
    means = 100 * np.nanmean(np.where(total > 0, shares, np.nan), axis=1)
    low, high = np.quantile(means[1:], (0.025, 0.975))
    return f"{means[0]:+.1f} [{low:+.1f}, {high:+.1f}]"


def few_labels(found: dict) -> str:
    """Accuracy of linear classifiers from 1, 2, 5 and 10 patients per class, and with
    one patient what a method gains over the poolings."""
    lines = [
        "| method | 1 | 2 | 5 | 10 | 1, − mean | 1, − max |",
        "|---|---|---|---|---|---|---|",
    ]
    methods: dict[str, list[dict]] = {}
    for name, record in found["runs"].items():
        if "few" in record:
            methods.setdefault(name.split("/seed ")[0], []).append(record)
    for name, runs in methods.items():
        cells = [
            f"{100 * np.mean([run['few'][n][0] for run in runs]):.1f}"
            f" ± {100 * np.mean([run['few'][n][1] for run in runs]):.1f}"
            for n in ("1", "2", "5", "10")
        ]
        where = "/".join(name.split("/")[:2])
        for pooling in ("mean/no", "max/no"):
            base = methods.get(f"{where}/{pooling}", [])
            both = runs + base
            cells.append(
                _difference(found["cohorts"][where], runs, base, few="1")
                if base and base != runs and all("few right" in run for run in both)
                else ""
            )
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)
