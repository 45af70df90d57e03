"""Scores as cells of tables: to read, for Markdown, for CSV and for JSON."""

import csv
import re
from collections.abc import Iterable, Sequence
from itertools import chain
from math import isfinite
from pathlib import Path
from typing import Any

from spt_core.files import written_whole
from spt_core.studies.table import Score

TITLES = {
    "accuracy": "mean class accuracy",
    "f1": "F1",
    "auc": "AUC",
    "auprc": "AUPRC",
    "brier": "Brier",
    "kappa": "kappa",
}
NOT_DEFINED = "not defined"
# Spreadsheets take what begins with one of these as a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def score_cell(score: Score) -> str:
    """Mean ± standard deviation, and the interval where there is one."""
    if not isfinite(score.mean):
        return NOT_DEFINED
    text = f"{score.mean:.3f} ± {score.sd:.3f}"
    bounds = interval_cell(score)
    return f"{text} {bounds}" if bounds else text


def interval_cell(score: Score) -> str:
    return f"({score.low:.3f} to {score.high:.3f})" if isfinite(score.low) else ""


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *([markdown(c) for c in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def markdown(text: str) -> str:
    """Text that stays within its cell, and is no HTML."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|")
    return re.sub(r"\s+", " ", text)


def csv_cell(value: Any) -> Any:
    """The same, but no formula: ``'=1+1`` for ``=1+1``. Numbers stay numbers."""
    if isinstance(value, float):
        return "" if not isfinite(value) else value
    if isinstance(value, str) and value.startswith(_FORMULA) and not _is_number(value):
        return f"'{value}"
    return value


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def write_csv(path: Path, head: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write a table whole, every cell made safe for spreadsheets."""
    with (
        written_whole(path) as temporary,
        temporary.open("w", newline="", encoding="utf-8") as file,
    ):
        writer = csv.writer(file)
        for row in chain([head], rows):
            writer.writerow([csv_cell(cell) for cell in row])


def without_nan(value: Any) -> Any:
    """The same with None for NaN, which JSON does not know."""
    if isinstance(value, dict):
        return {name: without_nan(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(one) for one in value]
    return None if isinstance(value, float) and not isfinite(value) else value
