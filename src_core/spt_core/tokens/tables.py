"""Tables as spreadsheets write them: CSV of any common kind, or an .xlsx workbook."""

import csv
import io
import re
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from spt_core.csv_files import write_csv
from spt_core.errors import InputError
from spt_core.files import refuse_no_file
from spt_core.tokens.workbook import MOST_BYTES, MOST_CELLS, workbook_cells

Row = dict[str, str]

LONGEST_CELL = 10_000

# What columns are called, by what they mean; the first that is there is taken.
CALLED: Mapping[str, tuple[str, ...]] = {
    "slide": (
        "slide", "slide id", "slide name", "slides", "filename", "file name", "file",
        "image", "image id", "image name", "wsi", "wsi id", "scan", "path", "name",
    ),
    "label": (
        "label", "labels", "class", "diagnosis", "target", "category", "subtype",
        "type", "group", "outcome", "tumour", "tumor", "grade", "dx", "y",
    ),
    "patient": (
        "patient", "patient id", "case", "case id", "case submitter id", "subject",
        "subject id", "participant", "donor", "person", "mrn", "pid",
    ),
    "site": (
        "site", "center", "centre", "hospital", "institution", "source site",
        "scanner", "laboratory", "lab", "cohort",
    ),
    "split": ("split", "set", "partition", "subset", "fold"),
    "mpp": ("mpp", "pixel size", "microns per pixel", "um per pixel"),
}  # fmt: skip


def read_table(path: Path, what: str, columns: str) -> tuple[list[str], Iterable[Row]]:
    """The columns of a table, in lower case, and its rows.

    Parameters
    ----------
    what, columns
        What the file is called in a sentence, and the columns that it needs.
    """
    header, rows = read_cells(path, what, columns)
    names = [name.lower() for name in header]
    return names, [_named(names, row) for row in rows]


def read_cells(
    path: Path, what: str = "table", columns: str = "slide,label"
) -> tuple[list[str], list[list[str]]]:
    """The names of the columns as they are written, and the cells of all rows."""
    refuse_no_file(path)
    try:
        if path.stat().st_size > MOST_BYTES:
            raise InputError(f"{path.name} is larger than any {what}.")
        data = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"There is no {what} {path}.") from None
    except IsADirectoryError:
        raise InputError(f"{path} is a folder, not a {what}.") from None
    if data[:2] == b"PK":
        table = workbook_cells(data, path.name)
    elif data[:4] == b"\xd0\xcf\x11\xe0":
        raise InputError(
            f"{path.name} is a workbook of an old kind (.xls). Save it as .xlsx or CSV."
        )
    else:
        table = _separated(data, path.name)
    if not table:
        raise InputError(f"{path.name} is empty. It needs the columns {columns}.")
    header = [name.strip() for name in table[0]]
    _refuse_unclear(path.name, header, table)
    return header, table[1:]


def _refuse_unclear(
    name: str, header: Sequence[str], table: Sequence[Sequence[str]]
) -> None:
    """Refuse what can be read in two ways, or was not meant so."""
    for column, count in Counter(one.lower() for one in header if one).items():
        if count > 1:
            raise InputError(
                f"{name} has {count} columns {column[:40]!r}. Give each a name of its "
                "own, or remove the others."
            )
    for line, row in enumerate(table, start=1):
        if any(len(cell) > LONGEST_CELL for cell in row):
            raise InputError(
                f"{name}: row {line} has a cell that is longer than any name. Is a "
                "quotation mark not closed?"
            )
        if len(row) > len(header) and any(cell.strip() for cell in row[len(header) :]):
            raise InputError(
                f"{name}: row {line} has {len(row)} cells for {len(header)} columns. "
                "Put text that holds the delimiter in quotation marks."
            )


def guessed_columns(header: Sequence[str]) -> dict[str, str]:
    """Which column holds what, by their names; what is not found is left out."""
    plain = {_plain(name): name for name in reversed(header) if name}
    found: dict[str, str] = {}
    for meaning, names in CALLED.items():
        taken = set(found.values())
        for name in names:
            if name in plain and plain[name] not in taken:
                found[meaning] = plain[name]
                break
    return found


def write_table(path: Path, header: Sequence[str], rows: Iterable[Row]) -> None:
    """Write a CSV file whole: UTF-8, with commas."""
    write_csv(path, header, ([row.get(name, "") for name in header] for row in rows))


def _plain(name: str) -> str:
    """A column's name without capitals, dashes and the like."""
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)
    return re.sub(r"[\s_\-./]+", " ", spaced).strip().lower()


def _named(names: Sequence[str], row: Sequence[str]) -> Row:
    return dict(zip(names, [*row, *[""] * (len(names) - len(row))], strict=False))


# text


def _separated(data: bytes, name: str) -> list[list[str]]:
    text = _decoded(data, name).replace("\r\n", "\n").replace("\r", "\n").lstrip("\n")
    first = text.split("\n", 1)[0]
    stated = first.strip().strip('"')
    delimiter = ""
    if stated.lower().startswith("sep="):  # as Excel writes for itself
        delimiter, text = stated[4:5], text[len(first) + 1 :]
        first = text.split("\n", 1)[0]
    if delimiter not in (",", ";", "\t"):
        outside = "".join(first.split('"')[::2])
        delimiter = max(",;\t", key=outside.count)
    if text.count(delimiter) + text.count("\n") > MOST_CELLS:
        raise InputError(f"{name} has more cells than any table of slides.")
    reader = csv.reader(
        io.StringIO(text, newline=""),
        delimiter=delimiter,
        skipinitialspace=True,
        strict=True,
    )
    try:
        table = list(reader)
    except csv.Error as error:
        why = str(error)
        if "unexpected end of data" in why:
            why = "a quotation mark is opened and never closed"
        elif "field larger" in why:
            why = "a cell is longer than any name"
        raise InputError(f"{name}, up to line {reader.line_num}: {why}.") from None
    while table and not any(table[0]):
        del table[0]
    return table


def _decoded(data: bytes, name: str) -> str:
    """The text, by its mark; else UTF-8, else as Windows writes in western Europe."""
    if data.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        encodings = ["utf-16"]
    elif data.startswith(BOM_UTF8):
        encodings = ["utf-8-sig"]
    elif b"\0" in data[:2]:
        encodings = ["utf-16-be" if data[:1] == b"\0" else "utf-16-le"]
    else:
        encodings = ["utf-8", "cp1252", "latin-1"]
    for encoding in encodings:
        try:
            text = data.decode(encoding)
        except UnicodeDecodeError:
            continue
        if "\0" not in text:
            return text
    raise InputError(f"{name} is not text. Save it as CSV UTF-8, or as .xlsx.")
