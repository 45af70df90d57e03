"""A benchmark's curves: ROC, confusion, reliability, differences, ablations."""

import re
from collections.abc import Sequence
from math import isfinite, log2

import numpy as np
from numpy.typing import NDArray

from spt_core.studies.benchmark_result import Ablation, BenchmarkRow
from spt_core.studies.benchmark_words import is_shown, line_name
from spt_core.studies.calibration_scores import reliability
from spt_core.studies.scores import OutOfFold
from spt_core.studies.svg import (
    FAINT,
    INK,
    LETTER,
    SHARE_TICKS,
    Plot,
    colour,
    legend,
    shortened,
)

SIDE = 300
NOT_SHOWN = "#8a8a8a"  # a difference that may be chance
# More classes than these have one mean curve, and no numbers in their squares.
MOST_CLASSES, MOST_NUMBERS = 8, 10
# Letters of a class that are shown beside a square.
NAME = 17
_ACROSS = np.linspace(0, 1, 101)


def roc_curve(
    positive: NDArray[np.bool_], score: NDArray[np.floating]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """False and true positive rates from (0, 0) to (1, 1); ties are one step."""
    order = np.argsort(-score, kind="stable")
    last = np.append(np.flatnonzero(np.diff(score[order])), len(score) - 1)
    found = np.cumsum(positive[order])[last]
    false = last + 1 - found
    true_rate = np.append(0.0, found / max(1, positive.sum()))
    return np.append(0.0, false / max(1, (~positive).sum())), true_rate


def mean_roc(
    runs: Sequence[OutOfFold], one: int
) -> tuple[NDArray[np.float64], float] | None:
    """The mean over folds of a class's ROC curves (101,), and of their areas.

    None where no fold has slides of the class and others.
    """
    curves, areas = [], []
    for run in runs:
        for _, y, shares in run.parts():
            positive = y == one
            if positive.all() or not positive.any():
                continue
            false, true = roc_curve(positive, shares[:, one])
            curves.append(np.interp(_ACROSS, false, true))
            curves[-1][0] = 0.0
            areas.append(float(np.diff(false) @ (true[1:] + true[:-1]) / 2))
    if not curves:
        return None
    return np.mean(curves, axis=0), float(np.mean(areas))


def roc_figure(row: BenchmarkRow, classes: Sequence[str]) -> str:
    """One class against the rest, mean over folds, with the area of each."""
    plot = _titled("ROC")
    plot.x_axis(SHARE_TICKS, "false positive rate")
    plot.y_axis(SHARE_TICKS, "true positive rate")
    plot.line((0, 1), (0, 1), FAINT, width=1, dash="4 4")
    drawn = [1] if len(classes) == 2 else range(len(classes))
    found = {one: mean_roc(row.runs, one) for one in drawn}
    known = {one: curve for one, curve in found.items() if curve is not None}
    named = [(colour(one), classes[one], *known[one]) for one in known]
    if len(classes) > MOST_CLASSES and known:
        mean = np.mean([curve for curve, _ in known.values()], axis=0)
        area = float(np.mean([area for _, area in known.values()]))
        named = [(colour(0), "mean of classes", mean, area)]
    for shade, _, curve, _ in named:
        plot.line(_ACROSS, curve, shade)
    right, bottom = plot.at(1, 0)
    for number, (shade, name, _, area) in enumerate(reversed(named)):
        py = bottom - 9 - 15 * number
        words = f"{shortened(name, 20)} {area:.2f}"
        plot.text(right - 20, py, words, anchor="end", size=11)
        plot.box(right - 16, py - 8, 9, 9, shade)
    plot.frame()
    return plot.svg(f"ROC of {line_name(row.line)}")


def confusion(runs: Sequence[OutOfFold], classes: int) -> NDArray[np.float64]:
    """Slides by class (rows) and answer (columns), mean over runs."""
    total = np.zeros((classes, classes))
    for run in runs:
        asked = run.fold >= 0
        np.add.at(total, (run.y[asked], run.shares[asked].argmax(axis=1)), 1)
    return total / max(1, len(runs))


def confusion_figure(row: BenchmarkRow, classes: Sequence[str]) -> str:
    """Which class was taken for which, as shares of each class."""
    k = len(classes)
    counts = confusion(row.runs, k)
    total = counts.sum(axis=1, keepdims=True)
    shares = np.divide(counts, total, out=np.zeros_like(counts), where=total > 0)
    longest = min(NAME, max(len(name) for name in classes))
    room = 11 * LETTER * longest
    plot = _titled("Confusion", left=32 + room, bottom=34 + 0.6 * room)
    plot.x, plot.y = (0, k), (k, 0)
    for true in range(k):
        for answer in range(k):
            (px, py), (right, below) = (
                plot.at(answer, true),
                plot.at(answer + 1, true + 1),
            )
            share = float(shares[true, answer])
            plot.box(px, py, right - px, below - py, _blue(share))
            if k <= MOST_NUMBERS:
                fill = "#fff" if share > 0.5 else INK
                middle, centre = (px + right) / 2, (py + below) / 2
                size, low = (13, 1) if k <= 4 else (10, 4)
                plot.text(
                    middle, centre + low, f"{share:.2f}", anchor="middle", size=size,
                    fill=fill,
                )  # fmt: skip
                if k <= 4:
                    plot.text(
                        middle, centre + 14, f"{counts[true, answer]:.0f}",
                        anchor="middle", size=10, fill=fill,
                    )  # fmt: skip
    for number in range(0, k, 1 if k <= 20 else k // 10):
        name = shortened(classes[number], NAME)
        px, py = plot.at(number + 0.5, number + 0.5)
        plot.text(plot.left - 6, py + 4, name, anchor="end", size=11)
        _, bottom = plot.at(0, k)
        plot.text(px + 4, bottom + 12, name, anchor="end", size=11, turned=-35)
    plot.y_axis((), "class")
    plot.x_axis((), "answer")
    plot.frame()
    return plot.svg(f"Confusion of {line_name(row.line)}")


def reliability_figure(row: BenchmarkRow) -> str:
    """How often an answer of some confidence is right."""
    error, slope = row.pooled.get("ece"), row.pooled.get("slope")
    said = [
        f"{name} {value:.2f}"
        for name, value in (("error", error), ("slope", slope))
        if value is not None and isfinite(value)
    ]
    plot = _titled("Reliability" + (f": {', '.join(said)}" if said else ""))
    plot.x_axis(SHARE_TICKS, "confidence of the answer")
    plot.y_axis(SHARE_TICKS, "share that is right")
    plot.line((0, 1), (0, 1), FAINT, width=1, dash="4 4")
    y, shares = asked_of(row.runs)
    bins = [one for one in reliability(y, shares) if one[2]]
    most = max((count for _, _, count in bins), default=1)
    plot.line([b[0] for b in bins], [b[1] for b in bins], colour(0))
    for confidence, right, count in bins:
        plot.dots([confidence], [right], colour(0), size=5 + 9 * (count / most) ** 0.5)
    plot.frame()
    return plot.svg(f"Reliability of {line_name(row.line)}")


def asked_of(
    runs: Sequence[OutOfFold],
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Classes and shares of all runs' asked slides, one after the other."""
    asked = [run.fold >= 0 for run in runs]
    return (
        np.concatenate([run.y[rows] for run, rows in zip(runs, asked, strict=True)]),
        np.concatenate(
            [run.shares[rows] for run, rows in zip(runs, asked, strict=True)]
        ),
    )


def difference_figure(rows: Sequence[BenchmarkRow], baseline: str) -> str:
    """Every line's difference to the baseline with its interval; "" without any."""
    drawn = [
        (row, row.difference)
        for row in rows
        if row.difference is not None and isfinite(row.difference.low)
    ]
    if not drawn:
        return ""
    bounds = [100 * value for _, d in drawn for value in (d.low, d.high)]
    step = _step(max(*bounds, 0) - min(*bounds, 0))
    low = step * np.floor(min(*bounds, 0) / step)
    high = step * np.ceil(max(*bounds, 0) / step)
    letters = max(len(line_name(row.line)) for row, _ in drawn)
    left = min(220.0, 16 + 12 * LETTER * letters)
    plot = Plot(500, 30 + 26 * len(drawn) + 44, (low, high), (len(drawn), 0), left=left)
    plot.right = 26  # half of the last number
    ticks = np.arange(low, high + step / 2, step)
    plot.x_axis(
        [(t, f"{t:+g}" if t else "0") for t in ticks], f"points above {baseline}"
    )
    plot.line((0, 0), (0, len(drawn)), FAINT, width=1.5)
    for number, (row, d) in enumerate(drawn):
        y = number + 0.5
        shade = colour(0) if is_shown(d) else NOT_SHOWN
        plot.line((100 * d.low, 100 * d.high), (y, y), shade, width=2.5)
        plot.dots([100 * d.mean], [y], shade, size=10)
        _, py = plot.at(0, y)
        name = shortened(line_name(row.line), int((left - 10) / (12 * LETTER)))
        plot.text(left - 8, py + 4, name, anchor="end")
    return plot.svg(f"Differences to {baseline}")


def ablation_figure(ablation: Ablation) -> str:
    """Accuracy over the numbers in the variants, a line per method and probe."""
    variants = list(dict.fromkeys(row.line.variant for row in ablation.rows))
    place = variant_places(variants)
    drawn: dict[tuple[str, str, str], list[BenchmarkRow]] = {}
    for row in ablation.rows:
        if isfinite(row.values["accuracy"].mean):
            key = (row.line.features, row.line.method, row.line.probe)
            drawn.setdefault(key, []).append(row)
    scores = [row.values["accuracy"] for rows in drawn.values() for row in rows]
    if not scores:
        return ""
    ends = [v for s in scores for v in (s.mean, s.low, s.high) if isfinite(v)]
    step = _step(max(ends) - min(ends))
    low, high = step * np.floor(min(ends) / step), step * np.ceil(max(ends) / step)
    xs = list(place.values())
    pad = 0.06 * (max(xs) - min(xs) or 1)
    plot = Plot(
        480, 300, (min(xs) - pad, max(xs) + pad), (low, max(high, low + step)), left=58
    )
    unit = {re.sub(r"[-+]?[\d.]+", "", v).strip() for v in variants if _number(v)}
    plot.x_axis([(place[v], _tick(v)) for v in variants], " ".join(sorted(unit))[:40])
    ticks = np.arange(low, max(high, low + step) + step / 2, step)
    plot.y_axis([(t, f"{t:.2f}") for t in ticks], "mean class accuracy")
    shades, spread = [], 0.012 * (max(xs) - min(xs) or 1)
    for number, ((features, method, probe), rows) in enumerate(drawn.items()):
        rows = sorted(rows, key=lambda row: place[row.line.variant])
        # Side by side, so that intervals do not hide one another.
        aside = spread * (number - (len(drawn) - 1) / 2)
        x = [place[row.line.variant] + aside for row in rows]
        for px, row in zip(x, rows, strict=True):
            score = row.values["accuracy"]
            if isfinite(score.low):
                plot.line((px, px), (score.low, score.high), colour(number), width=1.5)
        means = [row.values["accuracy"].mean for row in rows]
        plot.line(x, means, colour(number))
        plot.dots(x, means, colour(number), size=8)
        name = f"{features} · {method}" if features else method
        shades.append((colour(number), f"{name} ({probe})"))
    plot.frame()
    return plot.svg(f"Ablation: {ablation.title}") + legend(shades)


def variant_places(variants: Sequence[str]) -> dict[str, float]:
    """Where variants stand on an axis: by their number, or its logarithm.

    One without a number, such as "no limit", comes last.
    """
    numbers = {v: float(m.group()) for v in variants if (m := _number(v))}
    if not numbers:
        return {variant: float(k) for k, variant in enumerate(variants)}
    least, most = min(numbers.values()), max(numbers.values())
    if least > 0 and most / least >= 8:
        numbers = {variant: log2(value) for variant, value in numbers.items()}
    known = sorted(numbers.values())
    gap = (known[-1] - known[0]) / max(1, len(known) - 1) or 1.0
    rest = [variant for variant in variants if variant not in numbers]
    places = numbers | {v: known[-1] + gap * (k + 1) for k, v in enumerate(rest)}
    return {variant: places[variant] for variant in variants}


def _number(variant: str) -> re.Match[str] | None:
    return re.search(r"\d+(\.\d+)?", variant)


def _tick(variant: str) -> str:
    found = _number(variant)
    return found.group() if found else shortened(variant, 12)


def _step(width: float) -> float:
    """A round distance of ticks, about five for the width."""
    rough = max(width, 1e-9) / 5
    size = 10.0 ** np.floor(np.log10(rough))
    return float(size * next(k for k in (1, 2, 5, 10) if rough <= k * size * 1.0001))


def _titled(title: str, left: float = 46, bottom: float = 42) -> Plot:
    """A square frame with its title above."""
    plot = Plot(SIDE, SIDE + 14, left=left, top=26, bottom=bottom)
    plot.text(plot.left, 17, title, bold=True)
    return plot


def _blue(share: float) -> str:
    """White for 0 to blue for 1."""
    light, dark = np.array((255, 255, 255)), np.array((33, 82, 140))
    red, green, blue = np.round(light + share * (dark - light)).astype(int)
    return f"#{red:02x}{green:02x}{blue:02x}"
