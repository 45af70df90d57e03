"""What a benchmark found, in words."""

from collections import Counter
from math import isfinite

from spt_core.studies.benchmark_result import (
    Benchmark,
    BenchmarkRow,
    Control,
    Line,
)
from spt_core.studies.methods import KNN, OWN
from spt_core.studies.paired import Difference
from spt_core.studies.scores import DRAWS
from spt_core.training.signals import tells_site_better

LEVEL = 0.05


def line_name(line: Line) -> str:
    """Such as ``uni · ssspt-simclr (kNN), 64 tokens``."""
    name = f"{line.features} · {line.method}" if line.features else line.method
    return f"{name} ({line.probe})" + (f", {line.variant}" if line.variant else "")


def points(share: float) -> str:
    return f"{100 * share:.1f}"


def p_cell(p: float | None) -> str:
    return "" if p is None or not isfinite(p) else f"{p:.2g}"


def is_shown(found: Difference | None) -> bool:
    """Whether a difference is more than chance, by its corrected p-value."""
    if found is None:
        return False
    p = found.p if found.p_holm is None else found.p_holm
    return isfinite(p) and p < LEVEL and (found.low > 0 or found.high < 0)


def comparison(row: BenchmarkRow, baseline: str) -> str:
    """One row against the baseline: who is above, by how much, how surely."""
    found = row.difference
    if found is None or not isfinite(found.mean):
        return f"{line_name(row.line)} could not be compared with {baseline}"
    where = "above" if found.mean >= 0 else "below"
    low, high = (
        (found.low, found.high) if found.mean >= 0 else (-found.high, -found.low)
    )
    sure = f"95 %: {points(low)} to {points(high)}; " if isfinite(low) else ""
    p = (
        f"p = {p_cell(found.p)}, not corrected"
        if found.p_holm is None
        else f"p = {p_cell(found.p_holm)} after Holm"
    )
    return (
        f"{line_name(row.line)} is {points(abs(found.mean))} points {where} "
        f"{baseline} ({sure}{p})"
    )


def headline(found: Benchmark) -> tuple[list[str], bool]:
    """The sentences of the best comparison, and whether a difference is shown."""
    compared = [
        row
        for row in found.rows
        if row.difference is not None and isfinite(row.difference.mean)
    ]
    if not compared:
        return [f"Nothing was compared with {found.baseline}."], False

    def gain(row: BenchmarkRow) -> float:
        return row.difference.mean if row.difference else 0.0

    shown = [row for row in compared if is_shown(row.difference)]
    above = sorted((row for row in shown if gain(row) > 0), key=gain, reverse=True)
    below = sorted((row for row in shown if gain(row) < 0), key=gain)
    said = []
    if above:
        said.append(f"{comparison(above[0], found.baseline)}.")
        if len(above) > 1:
            rest = ", ".join(line_name(row.line) for row in above[1:])
            said.append(f"Also above {found.baseline}: {rest}.")
    else:
        best = max(compared, key=gain)
        said += [
            f"No method is shown to be above {found.baseline}.",
            f"The largest difference: {comparison(best, found.baseline)}.",
        ]
    if below:
        names = ", ".join(line_name(row.line) for row in below)
        said.append(f"Below {found.baseline}: {names}.")
    if above and len(compared) > 1:
        said.append(
            f"The first is the largest of {len(compared)} comparisons, and the largest "
            "of many looks larger than it is."
        )
    return said, bool(above)


def how(found: Benchmark) -> list[str]:
    """What was compared, on which slides, and what was learned from."""
    counts = Counter(found.y.tolist())
    classes = ", ".join(
        f"{name} ({counts.get(number, 0)})" for number, name in enumerate(found.classes)
    )
    methods = dict.fromkeys(row.line.method for row in found.rows)
    patients = len(set(found.patients))
    of = f" of {patients} patients" if found.is_patient_known else ""
    sites = {site for site in found.sites if site}
    at = f" at {len(sites)} sites" if len(sites) > 1 else ""
    said = [
        f"{len(methods)} methods ({', '.join(methods)}) on {len(found.y)} slides{of}"
        f"{at}; classes and their slides: {classes}."
    ]
    share = "patient" if found.is_patient_known else "slide"
    times = f", drawn {found.repeats} times" if found.repeats > 1 else ""
    seeds = (
        f"; trained methods {len(found.seeds)} times each, with other seeds"
        if len(found.seeds) > 1
        else ""
    )
    folds = f"{found.folds} fold" + ("s" if found.folds > 1 else "")
    said.append(
        f"{folds} {found.divisions.kind.value}{times}{seeds}. No {share} is both "
        "learned from and tested; epochs and strengths were chosen within the training "
        "part, and every test part was used once."
    )
    if any(row.line.method not in found.supervised for row in found.rows):
        said.append(f"Self-supervised methods learned from {found.learned_from}.")
    if not found.is_patient_known:
        said.append(
            "Patients are not known: slides of one person may be both learned from "
            "and tested, which makes all scores too high and all intervals too narrow."
        )
    return said


def of_site(rows: tuple[BenchmarkRow, ...]) -> list[BenchmarkRow]:
    """The kNN rows whose embeddings were also asked for the site."""
    return [row for row in rows if row.line.probe == KNN and row.site_knn is not None]


def site_sentences(found: Benchmark) -> list[str]:
    """Which embeddings know the site better than the class."""
    asked = of_site(found.rows)
    sites = len({site for site in found.sites if site})
    won = [
        line_name(row.line)
        for row in asked
        if row.site_knn is not None
        and tells_site_better(
            row.site_knn.mean,
            sites,
            row.values["accuracy"].mean,
            len(found.classes),
        )
    ]
    if not asked:
        return []
    if not won:
        return ["No embedding tells sites better than classes."]
    verb = "tells" if len(won) == 1 else "tell"
    return [
        f"{', '.join(won)} {verb} the site of a slide better than its class: such "
        "embeddings hold much of scanner and staining, and a class that is commoner at "
        "one site may be known by its site."
    ]


def control_sentence(control: Control) -> str:
    """What a control with permuted labels says."""
    times = len(control.scores)
    mean = sum(control.scores) / times if times else float("nan")
    said = f"{line_name(control.line)}: {mean:.3f}, chance {control.chance:.3f}"
    if not isfinite(control.low):
        return f"{said}; too few permutations for an interval."
    if control.low > control.chance:
        return f"{said}. Above chance although nothing can be learned: something leaks."
    return f"{said}. No leak is seen."


def meaning(found: Benchmark) -> list[tuple[str, str]]:
    """What each number is."""
    over = "patients" if found.is_patient_known else "slides"
    has_own = any(row.difference and row.line.probe == OWN for row in found.rows)
    own = " A model's own answer is compared with the linear one." if has_own else ""
    said = [
        (
            "mean class accuracy",
            "The mean over classes of the share of each that was found (balanced "
            "accuracy), not the share of all slides that were right.",
        ),
        ("F1", "Of two classes the second's; of more, the mean over those present."),
        (
            "AUC, AUPRC",
            "One class against the rest, mean over classes, within each fold, then "
            "averaged. AUPRC by chance is the share of the class, not 0.5.",
        ),
        (
            "±",
            "The standard deviation over folds, drawings and seeds. It is no interval: "
            "folds share most of their training slides.",
        ),
        (
            "(low to high)",
            f"The 95 % interval from {DRAWS:,} resamplings of the {over} within their "
            "class. It is of these fitted models: how much a repeated training would "
            "vary is not in it.",
        ),
        (
            "difference",
            f"In mean class accuracy, to {found.baseline} with the same features and "
            f"the same probe, both on the same resampled {over}.{own}",
        ),
        (
            "p",
            f"From swapping the two methods' predictions {over[:-1]} by {over[:-1]} at "
            "random; p (Holm) is corrected for the number of comparisons.",
        ),
        (
            "Brier, calibration error, slope",
            "Whether shares are to be believed. Brier: the squared error of the "
            "shares, less is better. Calibration error: by how much confidence and "
            "accuracy differ, over ten bins. Slope: 1 is right, below 1 too sure, "
            "above 1 too unsure.",
        ),
        (
            "pooled",
            "Of all folds' slides together. Scores of different folds' models are "
            "compared with one another then.",
        ),
    ]
    if found.ordered:
        said.append(
            (
                "kappa",
                "Quadratic weighted kappa of the ordered classes: 1 is full agreement, "
                "0 that of chance; far misses count more.",
            )
        )
    if any(row.patient_values for row in found.rows):
        said.append(("of patients", "By the mean of the shares of a patient's slides."))
    if of_site(found.rows):
        said.append(
            (
                "kNN of site",
                "How well the site of a slide is known from its neighbours of other "
                "patients: what a model knows of scanner and staining.",
            )
        )
    return said


def probes_of(rows: tuple[BenchmarkRow, ...]) -> list[str]:
    """The probes of some rows, the model's own answer first."""
    found = dict.fromkeys(row.line.probe for row in rows)
    return sorted(found, key=lambda probe: probe != OWN)
