"""Small cohorts for tests of benchmarks: signal, patients and sites as one likes."""

import csv

import numpy as np

from spt_core.studies.benchmark_settings import BenchmarkSettings
from spt_core.tokens import write_tokens
from tests.made_tokens import DIM, grid_tokens

QUICK = {
    "methods": ("mean", "ssspt-simclr", "abmil"),
    "folds": 3,
    "steps": 8,
    "workers": 1,
    "device": "cpu",
}


def write_benchmark_cohort(
    folder,
    *,
    patients=18,
    slides_each=2,
    classes="ab",
    sites=3,
    signal=3.0,
    site_signal=0.0,
    tokens=25,
    unlabelled=0,
    name="u{:02d}",
    seed=0,
):
    """Features and labels.csv; a quarter of the tokens shows the class."""
    rng = np.random.default_rng(seed)
    rows = []
    for patient in range(patients):
        kind, site = patient % len(classes), patient // len(classes) % sites
        for number in range(slides_each):
            x = rng.normal(size=(tokens, DIM))
            x[::4, kind] += signal
            x[:, DIM - 1 - site] += site_signal
            slide = f"s{patient:02d}-{number}"
            write_tokens(
                folder / "features" / f"{slide}.h5",
                grid_tokens(x, name=slide, slide_fingerprint=f"{seed}-{slide}"),
            )
            rows.append((slide, classes[kind], f"Jane{patient}", f"site{site}"))
    for called in (name.format(number) for number in range(unlabelled)):
        x = rng.normal(size=(tokens, DIM))
        write_tokens(
            folder / "features" / f"{called}.h5",
            grid_tokens(x, name=called, slide_fingerprint=f"{seed}-{called}"),
        )
    with (folder / "labels.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(("slide", "label", "patient", "site"))
        writer.writerows(rows)
    return folder


def quick_settings(folder, out, **changes):
    """Of a benchmark that takes seconds."""
    return BenchmarkSettings(
        **{
            "features": (str(folder / "features"),),
            "labels": str(folder / "labels.csv"),
            "out": str(out),
            **QUICK,
            **changes,
        }
    )
