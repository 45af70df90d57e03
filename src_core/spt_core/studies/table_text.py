"""Scores as cells of tables: to read, for Markdown, for CSV and for JSON."""

import re
from collections.abc import Iterable, Sequence
from math import isfinite
from typing import Any

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
    titles = [markdown(cell) for cell in head]
    lines = [titles, ["---"] * len(head), *([markdown(c) for c in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def markdown(text: str) -> str:
    """Text that stays within its cell, and is no HTML, link or picture."""
    text = text.replace("&", "&amp;").replace("<", "&lt;")
    text = re.sub(r"([\\|`\[\]])", r"\\\1", text)
    return re.sub(r"\s+", " ", text)


def without_nan(value: Any) -> Any:
    """The same with None for NaN, which JSON does not know."""
    if isinstance(value, dict):
        return {name: without_nan(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(one) for one in value]
    return None if isinstance(value, float) and not isfinite(value) else value
