"""A benchmark's tables, once for HTML and Markdown."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import isfinite
from typing import TypeVar

from spt_core.studies.benchmark_result import Benchmark, BenchmarkRow, Line
from spt_core.studies.benchmark_words import (
    line_name,
    of_site,
    p_cell,
    points,
    probes_of,
)
from spt_core.studies.table import Score
from spt_core.studies.table_text import (
    NOT_DEFINED,
    TITLES,
    interval_cell,
    markdown,
    markdown_table,
)

T = TypeVar("T")
MAIN = ("accuracy", "f1", "auc")
SHORT = TITLES | {"accuracy": "accuracy", "brier": "Brier"}
POOLED = {"accuracy": "accuracy, pooled", "auc": "AUC, pooled"}
CALIBRATION = {"ece": "calibration error", "slope": "slope"}


@dataclass(frozen=True)
class Cell:
    """Words, smaller words below them, and whether it is the best of its column."""

    text: str = "–"
    small: str = ""
    best: bool = False


@dataclass(frozen=True)
class Table:
    """A table with its title.

    ``groups`` stand above the head: each a name and how many columns it spans.
    """

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    groups: tuple[tuple[str, int], ...] = ()
    note: str = ""

    def html(self) -> str:
        above = ""
        if self.groups:
            spans = "".join(
                f'<th colspan="{wide}"{_ruled(name)}>{escape(name)}</th>'
                for name, wide in self.groups
            )
            above = f"<tr>{spans}</tr>"
        head = "".join(f"<th>{escape(name)}</th>" for name in self.head)
        body = "".join(
            f"<tr>{''.join(_html(cell) for cell in row)}</tr>" for row in self.rows
        )
        note = f'<p class="note">{escape(self.note)}</p>' if self.note else ""
        return (
            f"<h3>{escape(self.title)}</h3>"
            f'<div class="wide" tabindex="0"><table class="scores"><thead>{above}'
            f"<tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{note}"
        )

    def markdown(self) -> str:
        names = [name for name, wide in self.groups for _ in range(wide)]
        head = [
            markdown(f"{group}: {name}" if group else name)
            for group, name in zip(
                names or [""] * len(self.head), self.head, strict=True
            )
        ]
        rows = [[_plain(cell) for cell in row] for row in self.rows]
        note = f"\n\n{markdown(self.note)}" if self.note else ""
        return f"## {markdown(self.title)}\n\n{markdown_table(head, rows)}{note}\n"


def paper_tables(found: Benchmark) -> list[Table]:
    """Pooling and self-supervised methods, and supervised ones, as the paper has."""
    parts = (
        ("Pooling and self-supervised methods", False),
        ("Supervised methods", True),
    )
    tables = []
    for title, is_supervised in parts:
        rows = tuple(
            row
            for row in found.rows
            if (row.line.method in found.supervised) == is_supervised
        )
        if rows:
            tables.append(_by_probe(title, rows))
    return tables


def difference_table(found: Benchmark) -> Table:
    """Every line against the baseline, with what it rests on."""
    rows = []
    for row in found.rows:
        d = row.difference
        cells = [Cell("the baseline" if row.line.method == found.baseline else "–")]
        cells += [Cell(""), Cell("")]
        if d is not None and isfinite(d.mean):
            bounds = f"({points(d.low)} to {points(d.high)})" if isfinite(d.low) else ""
            cells = [
                Cell(f"{round(100 * d.mean, 1) + 0.0:+.1f}", bounds),
                Cell(p_cell(d.p)),
                Cell(p_cell(d.p_holm)),
            ]
        seconds = Cell(f"{row.seconds:.3g} s")
        rows.append((*_names(row.line), *cells, _cells(row), seconds))
    head = (
        *_name_head(found.rows),
        "points",
        "p",
        "p (Holm)",
        "cells",
        "time per cell",
    )
    return Table(
        f"Difference to {found.baseline} in mean class accuracy",
        head,
        _trimmed(found.rows, rows),
        note="In brackets the paired 95 % interval. The own classifier is compared "
        f"with the linear answer of {found.baseline}.",
    )


def more_scores(found: Benchmark) -> Table:
    """What the paper's tables do not have: AUPRC, calibration, kappa, pooled."""
    metrics = [
        name
        for name in ("auprc", "brier", "kappa")
        if any(name in row.values for row in found.rows)
    ]
    rows = [
        (
            *_names(row.line),
            *(_score(row.values.get(name)) for name in metrics),
            *(_number(row.pooled.get(name)) for name in (*CALIBRATION, *POOLED)),
        )
        for row in found.rows
    ]
    head = (
        *_name_head(found.rows),
        *(SHORT[name] for name in metrics),
        *CALIBRATION.values(),
        *POOLED.values(),
    )
    return Table(
        "Precision, calibration and pooled scores", head, _trimmed(found.rows, rows)
    )


def patient_table(found: Benchmark) -> Table | None:
    """Scores of patients, where they have several slides."""
    held = [row for row in found.rows if row.patient_values]
    if not held:
        return None
    rows = [
        (*_names(row.line), *(_score((row.patient_values or {}).get(m)) for m in MAIN))
        for row in held
    ]
    head = (*_name_head(held), *(SHORT[name] for name in MAIN))
    return Table("Of patients", head, _trimmed(held, rows))


def site_table(found: Benchmark) -> Table | None:
    """kNN of site beside kNN of class."""
    held = of_site(found.rows)
    if not held:
        return None
    rows = [
        (*_names(row.line)[:2], _score(row.values["accuracy"]), _score(row.site_knn))
        for row in held
    ]
    head = ("features", "method", "kNN of class", "kNN of site")
    return Table(
        "Class and site by nearest neighbours",
        _without_features(held, head),
        tuple(_without_features(held, row) for row in rows),
        note="Mean class accuracy, and the same over sites.",
    )


def ablation_table(title: str, rows: Sequence[BenchmarkRow]) -> Table:
    made = []
    for row in rows:
        scores = [_score(row.values.get(name)) for name in MAIN]
        made.append((*_names(row.line), Cell(row.line.variant), *scores, _cells(row)))
    made = _best(made, [4, 5, 6])
    head = (*_name_head(rows), "variant", *(SHORT[name] for name in MAIN), "cells")
    return Table(title, head, _trimmed(rows, made))


def control_table(found: Benchmark) -> Table | None:
    if not found.controls:
        return None
    rows = []
    for control in found.controls:
        times = len(control.scores)
        mean = sum(control.scores) / times if times else float("nan")
        bounds = Score(mean, 0.0, control.low, control.high)
        rows.append(
            (
                Cell(line_name(control.line)),
                Cell(str(times)),
                Cell(f"{mean:.3f}", interval_cell(bounds)),
                Cell(f"{control.chance:.3f}"),
            )
        )
    head = ("line", "permutations", "mean class accuracy", "chance")
    return Table(
        "Control: labels permuted between patients",
        head,
        tuple(rows),
        note="In brackets the 95 % interval of the mean. Small stratified folds sit "
        "slightly below chance.",
    )


def all_tables(found: Benchmark) -> list[Table]:
    """Every table, in the order of the report."""
    tables: list[Table | None] = [
        *paper_tables(found),
        difference_table(found),
        site_table(found),
        more_scores(found),
        patient_table(found),
        *(ablation_table(f"Ablation: {a.title}", a.rows) for a in found.ablations),
        control_table(found),
    ]
    return [table for table in tables if table is not None]


def _by_probe(title: str, rows: tuple[BenchmarkRow, ...]) -> Table:
    """One row per method, the scores of each probe side by side."""
    probes = probes_of(rows)
    methods = dict.fromkeys((row.line.features, row.line.method) for row in rows)
    held = {(r.line.features, r.line.method, r.line.probe): r for r in rows}
    made = []
    for features, method in methods:
        its = [held.get((features, method, probe)) for probe in probes]
        short = max((row for row in its if row), key=lambda row: row.missing)
        few = "" if not short.missing else _cells(short).text + " cells"
        cells = [Cell(features), Cell(method, few)]
        for row in its:
            cells += [_score(row.values.get(m)) if row else Cell() for m in MAIN]
        made.append(tuple(cells))
    made = _best(made, range(2, 2 + len(MAIN) * len(probes)))
    head = ("features", "method", *(SHORT[m] for _ in probes for m in MAIN))
    groups = (("", 1), *((probe, len(MAIN)) for probe in probes))
    if any(row.line.features for row in rows):
        groups = (("", 2), *groups[1:])
    return Table(
        title,
        _without_features(rows, head),
        tuple(_without_features(rows, row) for row in made),
        groups,
        note="Mean ± standard deviation, in brackets the 95 % interval; accuracy is "
        "mean class accuracy. Bold: the highest of its column.",
    )


def _best(
    rows: Sequence[tuple[Cell, ...]], columns: Sequence[int]
) -> list[tuple[Cell, ...]]:
    """The same with the highest cell of each column marked."""
    made = [list(row) for row in rows]
    for column in columns:
        known = [
            (float(row[column].text.split()[0]), number)
            for number, row in enumerate(made)
            if row[column].text not in ("–", NOT_DEFINED)
        ]
        top = max(known, default=(0.0, -1))[0]
        for value, number in known if len(known) > 1 else ():
            if value == top:
                cell = made[number][column]
                made[number][column] = Cell(cell.text, cell.small, best=True)
    return [tuple(row) for row in made]


def _score(score: Score | None) -> Cell:
    if score is None:
        return Cell()
    if not isfinite(score.mean):
        return Cell(NOT_DEFINED)
    return Cell(f"{score.mean:.3f} ± {score.sd:.3f}", interval_cell(score))


def _number(value: float | None) -> Cell:
    if value is None:
        return Cell()
    return Cell(f"{value:.3f}" if isfinite(value) else NOT_DEFINED)


def _cells(row: BenchmarkRow) -> Cell:
    total = row.cells + row.missing
    return Cell(f"{row.cells} of {total}" if row.missing else str(row.cells))


def _names(line: Line) -> tuple[Cell, Cell, Cell]:
    return Cell(line.features), Cell(line.method), Cell(line.probe)


def _name_head(rows: Sequence[BenchmarkRow]) -> tuple[str, ...]:
    return _without_features(rows, ("features", "method", "probe"))


def _trimmed(
    rows: Sequence[BenchmarkRow], cells: Sequence[tuple[Cell, ...]]
) -> tuple[tuple[Cell, ...], ...]:
    return tuple(_without_features(rows, row) for row in cells)


def _without_features(
    rows: Sequence[BenchmarkRow], cells: tuple[T, ...]
) -> tuple[T, ...]:
    """Leave out the first column where there is one set of features only."""
    return cells if any(row.line.features for row in rows) else cells[1:]


def _html(cell: Cell) -> str:
    text = escape(cell.text)
    if cell.best:
        text = f"<b>{text}</b>"
    small = f"<small>{escape(cell.small)}</small>" if cell.small else ""
    return f"<td>{text}{small}</td>"


def _plain(cell: Cell) -> str:
    text = f"{cell.text} {cell.small}".strip()
    return f"**{text}**" if cell.best else text


def _ruled(name: str) -> str:
    return ' class="group"' if name else ""
