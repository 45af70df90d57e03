"""CSV files as we write them: whole, and no cell a formula."""

import csv
from collections.abc import Iterable, Sequence
from itertools import chain
from math import isfinite
from pathlib import Path
from typing import Any, TextIO

from spt_core.files import written_whole

# Spreadsheets take what begins with one of these as a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


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


def write_lines(
    file: TextIO, rows: Iterable[Sequence[Any]], *, delimiter: str = ","
) -> None:
    """Write rows to an open file: the one place where CSV is written."""
    writer = csv.writer(file, delimiter=delimiter, lineterminator="\n")
    for row in rows:
        writer.writerow([csv_cell(cell) for cell in row])


def write_rows(path: Path, rows: Iterable[Sequence[Any]]) -> None:
    """Write rows to an open place, every cell made safe for spreadsheets."""
    with path.open("w", newline="", encoding="utf-8") as file:
        write_lines(file, rows)


def write_csv(path: Path, head: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write a table whole, every cell made safe for spreadsheets."""
    with written_whole(path) as temporary:
        write_rows(temporary, chain([head], rows))
