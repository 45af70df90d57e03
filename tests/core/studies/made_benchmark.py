"""A made-up benchmark: what a report is written from, without training anything."""

from dataclasses import replace

import numpy as np

from spt_core.insight.calibration import calibration_error, softmax
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
from spt_core.studies.calibration_scores import calibration_slope
from spt_core.studies.divisions import Division, DivisionKind, Divisions
from spt_core.studies.folds import patient_folds
from spt_core.studies.methods import KNN, LINEAR, OWN
from spt_core.studies.paired import holm, paired_difference
from spt_core.studies.scores import (
    METRICS,
    OutOfFold,
    fold_scores,
    interval,
    mean_of_folds,
    of_patients,
    patient_weights,
    pooled_score,
)
from spt_core.studies.table import Score

CLASSES = ("astrocytoma", "oligodendroglioma", "<script>alert(1)</script>")
SITES = ("Ann Arbor", "<b>Genève</b>", "=HYPERLINK(1)")
FOLDS, REPEATS, SEEDS = 5, 2, (0, 1, 2)
# method, probes, how well its shares tell the classes
METHODS = (
    ("mean", (KNN, LINEAR), 0.75),
    ("max", (KNN, LINEAR), 0.7),
    ("giga-ssl", (KNN, LINEAR), 0.95),
    ("ssspt-simclr", (KNN, LINEAR), 1.55),
    ("abmil", (OWN,), 1.3),
    ("suspt", (KNN, LINEAR), 1.8),
)
PLACES = ("split + crop + mask", "split + crop", "split + mask", "split")


def made_benchmark(*, features=("",), patients=60, maps=6, seed=0) -> Benchmark:
    """Six methods on three classes and sites, with ablations, controls, failures."""
    rng = np.random.default_rng(seed)
    kind = np.arange(patients) % len(CLASSES)
    slides = rng.integers(1, 3, patients)
    person = np.repeat(np.arange(patients), slides)
    y, n = kind[person], len(person)
    names = tuple(f"slide-{number:04x}" for number in rng.permutation(65536)[:n])
    people = tuple(f"SECRET^Patient {number}" for number in person)
    site = rng.integers(0, len(SITES), patients)[person]
    folds = [patient_folds(y, list(people), FOLDS, repeat) for repeat in range(REPEATS)]
    hardness = rng.normal(size=(n, len(CLASSES)))

    def runs_of(skill, is_trained):
        made = []
        for _ in SEEDS if is_trained else (0,):
            for parts in folds:
                fold = np.full(n, -1)
                for number, (_, asked) in enumerate(parts):
                    fold[asked] = number
                noise = hardness + 0.6 * rng.normal(size=(n, len(CLASSES)))
                shares = softmax(1.6 * (noise + skill * np.eye(len(CLASSES))[y]))
                made.append(OutOfFold(y, fold, shares))
        return tuple(made)

    weights = patient_weights(y, people, draws=60)

    def row_of(line, skill, is_trained=True):
        runs = runs_of(skill, is_trained)
        pooled = [of_patients(run, people) for run in runs]
        drawn = patient_weights(pooled[0][0].y, pooled[0][1], draws=60)
        missing = 4 if line.method == "giga-ssl" else 0
        return BenchmarkRow(
            line=line,
            values={m: score_of(runs, m, weights) for m in METRICS},
            pooled={m: pooled_score(runs, m) for m in METRICS}
            | {
                "slope": float(
                    np.mean([calibration_slope(run.y, run.shares) for run in runs])
                ),
                "ece": float(
                    np.mean([calibration_error(run.shares, run.y) for run in runs])
                ),
            },
            patient_values={
                m: score_of([one for one, _, _ in pooled], m, drawn)
                for m in ("accuracy", "f1", "auc")
            },
            difference=None,
            site_knn=Score(
                0.9 - 0.2 * skill, 0.04, 0.85 - 0.2 * skill, 0.95 - 0.2 * skill
            )
            if line.probe == KNN
            else None,
            cells=len(runs) * FOLDS - missing,
            missing=missing,
            seconds=0.02 if not is_trained else 40 + 60 * skill,
            runs=runs,
        )

    rows = []
    for number, folder in enumerate(features):
        for method, probes, skill in METHODS:
            for probe in probes:
                line = Line(folder, method, probe)
                better = skill + 0.2 * number + 0.1 * (probe == LINEAR)
                rows.append(row_of(line, better, method not in ("mean", "max")))
    rows = compared(rows, people, "mean")
    knn = {(r.line.features, r.line.method): r for r in rows if r.line.probe == KNN}
    words = [row_of(Line("", "ssspt-simclr", KNN, place), 1.5 - 0.25 * k, False)
             for k, place in enumerate(PLACES)]  # fmt: skip
    limits = [
        row_of(
            Line("", "ssspt-simclr", probe, f"{limit} tokens"), 0.6 + 0.25 * k, False
        )
        for probe in (KNN, LINEAR)
        for k, limit in enumerate((16, 32, 64, 128, 256))
    ]
    permuted = tuple(rng.normal(0.32, 0.04, 20).tolist())
    return Benchmark(
        title="Six methods on gliomas <i>of three sites</i>",
        classes=CLASSES,
        ordered=False,
        y=y,
        names=names,
        patients=people,
        sites=tuple(SITES[one] for one in site),
        is_patient_known=True,
        divisions=Divisions(
            DivisionKind.PATIENT,
            tuple(
                Division(repeat, fold, learn, np.zeros(0, np.int64), asked)
                for repeat, parts in enumerate(folds)
                for fold, (learn, asked) in enumerate(parts)
            ),
            ("Class astrocytoma has few training patients: fixed number of steps.",),
        ),
        folds=FOLDS,
        repeats=REPEATS,
        seeds=SEEDS,
        baseline="mean",
        rows=tuple(rows),
        ablations=(
            Ablation("Transformations", False, tuple(words)),
            Ablation("Token limit", True, tuple(limits)),
        ),
        controls=(
            Control(Line("", "mean", KNN), permuted, 1 / 3, 0.30, 0.345),
            Control(Line("", "abmil", OWN), (0.35,), 1 / 3, np.nan, np.nan),
        ),
        failed=(
            FailedCell(
                "giga-ssl, fold 2 of repeat 0, seed 1", "out of memory <at all>"
            ),
            FailedCell("giga-ssl, fold 3 of repeat 0, seed 1", "stopped: loss is NaN"),
        ),
        maps=tuple(
            SlideMap(
                method,
                folder,
                (
                    0.6 * skill * np.eye(len(CLASSES))[y] @ rng.normal(size=(3, 32))
                    + (1.9 - skill)
                    * np.eye(len(SITES))[site]
                    @ rng.normal(size=(3, 32))
                    + rng.normal(size=(n, 32))
                ).astype(np.float32),
                np.isin(np.arange(n), folds[0][0][1]),
                knn[folder, method].runs[0].shares.argmax(1)
                if (folder, method) in knn
                else np.full(n, -1),
            )
            for folder in features
            for method, _, skill in METHODS[2:maps]
        ),
        position_similarity=made_similarity(),
        attention=tuple(made_attention(rng, names[k], k) for k in range(6)),
        remarks=("Patient encoder trained on 3 of these slides & others.",),
        settings={"methods": [m for m, _, _ in METHODS], "folds": FOLDS, "knn_k": 10},
        command="spt benchmark FEATURES --labels labels.csv --methods mean,max --out R",
        hashes={"Labels": "ab" * 32, "Features": "cd" * 32, "Code": "0.9.0"},
        seconds=5400.0,
    )


def score_of(runs, metric, weights):
    each = np.concatenate([fold_scores(run, metric) for run in runs])
    each = each[np.isfinite(each)]
    bounds = interval(mean_of_folds(runs, metric, weights))
    return Score(float(each.mean()), float(each.std(ddof=1)), bounds.low, bounds.high)


def compared(rows, people, baseline):
    """The rows with their differences to the baseline of the same probe."""
    base = {
        (r.line.features, r.line.probe): r for r in rows if r.line.method == baseline
    }
    found = []
    for row in rows:
        # The own classifier is compared with the baseline's linear one.
        probe = LINEAR if row.line.probe == OWN else row.line.probe
        other = base[row.line.features, probe]
        difference = None
        if row is not other:
            difference = paired_difference(
                row.runs, other.runs, people, "accuracy", draws=60, permutations=300
            )
        found.append(replace(row, difference=difference))
    held = [row for row in found if row.difference]
    corrected = iter(holm([row.difference.p for row in held]))
    return [
        replace(row, difference=replace(row.difference, p_holm=next(corrected)))
        if row.difference
        else row
        for row in found
    ]


def made_similarity(k=5, side=20):
    at = (2 * np.arange(k) + 1) * side // (2 * k)
    place = np.arange(side)
    rows = np.cos(0.25 * (at[:, None] - place))[:, None, :, None]
    cols = np.exp(-0.02 * (at[:, None] - place) ** 2)[None, :, None, :]
    return (0.5 * rows + 0.5 * cols).astype(np.float32)


def made_attention(rng, name, number):
    row, col = np.mgrid[0:28, 0 : 22 + 5 * number]
    wide = 11 + 2.5 * number
    inside = (row - 14) ** 2 / 180 + (col - wide) ** 2 / wide**2 < 1.1
    p = np.stack([row[inside], col[inside]], axis=1)
    far = ((p - np.array((8 + number, 12))) ** 2).sum(axis=1)
    attention = np.exp(-far / 30) + 0.1 * rng.random(len(p))
    label = CLASSES[number % 3]
    answer = label if number % 4 else CLASSES[(number + 1) % 3]
    return AttentionExample(name, p, attention, label, "suspt", answer, 0.61)
