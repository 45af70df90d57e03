"""What a study found, in words: the first page of its report."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from math import isfinite
from pathlib import Path
from typing import Any

from spt_core.files import written_whole
from spt_core.notice import NOT_FOR_DIAGNOSIS
from spt_core.studies.benchmark_result import Benchmark, BenchmarkRow
from spt_core.studies.benchmark_words import is_shown, p_cell, site_sentences
from spt_core.studies.methods import LINEAR, OWN
from spt_core.studies.paired import Difference, holm, paired_difference
from spt_core.studies.study_settings import COMPARED, Goal, StudySettings
from spt_core.studies.table_text import markdown

CALLED = {
    "mean": "averaging patches",
    "max": "taking the largest value of each feature",
    "abmil": "attention pooling (ABMIL)",
}


@dataclass(frozen=True)
class Comparison:
    """The study's method against another, in mean class accuracy.

    Attributes
    ----------
    shown
        Whether a difference is more than chance, corrected for the comparisons here.
    """

    method: str
    probe: str
    difference: Difference
    shown: bool

    @property
    def says(self) -> str:
        found, called = self.difference, CALLED.get(self.method, self.method)
        low, high = (_points(one) for one in sorted((found.low, found.high)))
        if not self.shown:
            # An interval without 0 and few patients: say why it is not enough.
            is_apart = found.low > 0 or found.high < 0
            p = f" can be chance (p = {p_cell(found.p_holm)} after Holm)"
            return (
                f"No difference to {called} is shown: {_points(found.mean, sign=True)} "
                f"points (95 %: {low} to {high}){p if is_apart else ''}"
            )
        if found.mean > 0:
            where = "Better"
        else:
            where, low, high = "Worse", _points(-found.high), _points(-found.low)
        by = _points(abs(found.mean))
        return f"{where} than {called} by {by} points (95 %: {low} to {high})"


def own_row(found: Benchmark, method: str) -> BenchmarkRow | None:
    """The method's line: of its own classifier, or of a linear one where it has none.

    Chosen beforehand, not by which is better.
    """
    probe = OWN if method in found.supervised else LINEAR
    for row in found.rows:
        if (row.line.method, row.line.probe) == (method, probe):
            return row
    return None


def comparisons(found: Benchmark, method: str) -> list[Comparison]:
    """The study's method against each of :data:`COMPARED`, p-values after Holm."""
    ours = own_row(found, method)
    if ours is None or ours.missing:
        return []
    rows = [
        row
        for name in COMPARED
        if (row := own_row(found, name)) is not None and not row.missing
    ]
    compared = [
        paired_difference(ours.runs, row.runs, found.patients, "accuracy")
        for row in rows
    ]
    adjusted = holm([one.p for one in compared])
    return [
        Comparison(
            row.line.method,
            row.line.probe,
            whole := replace(one, p_holm=p),
            is_shown(whole),
        )
        for row, one, p in zip(rows, compared, adjusted, strict=True)
        if isfinite(one.mean)
    ]


def result_sentences(
    settings: StudySettings,
    found: Benchmark | None,
    compared: Sequence[Comparison],
    slides: int,
    trained: str,
) -> list[str]:
    """What was found, first things first.

    Parameters
    ----------
    slides
        How many the model that is handed over has learned from.
    trained
        How it came about, a sentence.
    """
    if found is None:
        is_encoder = settings.aim is Goal.PATCHES
        what = "patch encoder" if is_encoder else "model"
        how = "encode slides with it" if is_encoder else "give labels"
        return [
            f"A {what} was trained on {slides} slides without labels. Nothing is "
            f"claimed of how good it is: {how} to measure it.",
            trained,
        ]
    patients = len(set(found.patients))
    groups = "patients" if found.is_patient_known else "slides, patients not known"
    folds = f"{found.folds} folds" if found.folds > 1 else "the split as given"
    said = []
    for number, one in enumerate(compared):
        where = f", {patients} {groups}, {folds}" if number == 0 else ""
        said.append(f"{one.says}{where}.")
    if not compared:
        said.append(
            "Nothing can be said of how good it is: cells of the comparison failed."
        )
    ours = own_row(found, settings.method)
    if ours is not None:
        score = ours.values["accuracy"]
        said.append(
            f"Mean class accuracy {_points(score.mean)} % (95 %: {_points(score.low)} "
            f"to {_points(score.high)}), of {_probe(ours)}, on slides of patients that "
            "the model of the fold had not learned from."
        )
        if score.low == score.high == 1:
            whose = "patients" if found.is_patient_known else "slides"
            said.append(
                f"All were right, which leaves this interval no width: of {whose} like "
                f"these {patients}, up to {_points(min(1, 3 / patients))} % may still "
                "get a wrong answer."
            )
        said += _of_site(found, settings.method)
    if settings.aim.pretrains:
        said.append(_pretraining(settings, in_folds=found.folds > 1))
    if found.folds > 1:
        whose = (
            "The scores are the folds', not the score of the model that is handed "
            "over: no slide is left that it has not learned from."
        )
    else:
        whose = (
            "The scores are of the model that learned from the part 'train'. The one "
            "that is handed over learned from 'val' too, and never from 'test'."
        )
    return [*said, trained, whose]


def _pretraining(settings: StudySettings, *, in_folds: bool) -> str:
    if settings.pretrain_once and settings.aim is Goal.BOTH and in_folds:
        return (
            "Pre-training was done once, on all slides without labels: the slides that "
            "were tested had been seen, their labels had not."
        )
    if not in_folds:
        return "Pre-training was done once, without the slides of the part 'test'."
    return "Pre-training was repeated in each fold, without the slides that it tests."


def _of_site(found: Benchmark, method: str) -> list[str]:
    rows = tuple(row for row in found.rows if row.line.method == method)
    said = site_sentences(replace(found, rows=rows))
    return [one for one in said if not one.startswith("No embedding")]


def _probe(row: BenchmarkRow) -> str:
    if row.line.probe == OWN:
        return "its own classifier"
    return "a linear classifier on its embeddings"


def write_result(
    folder: Path,
    settings: StudySettings,
    found: Benchmark | None,
    compared: Sequence[Comparison],
    said: Sequence[str],
    facts: dict[str, Any],
) -> None:
    """Write ``RESULT.md`` and ``result.json``."""
    lines = [f"# {markdown(settings.title or 'What the study found')}", ""]
    for one in said:
        lines += [markdown(one), ""]
    rows: list[dict[str, Any]] = []
    if found is not None:
        lines += [
            "| method | tested by | mean class accuracy | 95 % |",
            "|---|---|---|---|",
        ]
        for name in (settings.method, *COMPARED):
            row = own_row(found, name)
            if row is None:
                lines.append(f"| {name} | | failed | |")
                continue
            score = row.values["accuracy"]
            lines.append(
                f"| {name} | {row.line.probe} | {_points(score.mean)} % | "
                f"{_points(score.low)} to {_points(score.high)} |"
            )
            rows.append({"method": name, "probe": row.line.probe, **asdict(score)})
        lines += ["", "All tables and figures: `report.html`.", ""]
    lines.append(NOT_FOR_DIAGNOSIS)
    with written_whole(folder / "RESULT.md") as temporary:
        temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")
    plain = {
        "says": list(said),
        "goal": settings.goal,
        "method": settings.method,
        "rows": rows,
        "comparisons": [{**asdict(one), "says": one.says} for one in compared],
        **facts,
    }
    with written_whole(folder / "result.json") as temporary:
        temporary.write_text(json.dumps(plain, indent=1), encoding="utf-8")


def _points(share: float, *, sign: bool = False) -> str:
    value = 100 * share
    shown = f"{value:+.0f}" if sign else f"{value:.0f}"
    return shown.replace("-0", "0") if shown in ("-0", "+0") else shown
