"""Tables as spreadsheets write them: CSV of any common kind, or an .xlsx workbook."""

import csv
import io
import re
import zipfile
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

from spt_core.csv_files import write_csv
from spt_core.errors import InputError

Row = dict[str, str]

# Of one part of a workbook, unpacked: a labels file has some megabytes at most.
MOST_BYTES = 200_000_000
LONGEST_CELL = 10_000
_MAIN = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
_LINK = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"

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
    try:
        if path.stat().st_size > 10 * MOST_BYTES:
            raise InputError(f"{path.name} is larger than any {what}.")
        data = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"There is no {what} {path}.") from None
    except IsADirectoryError:
        raise InputError(f"{path} is a folder, not a {what}.") from None
    if data[:2] == b"PK":
        table = _workbook(data, path.name)
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
    elif b"\0" in data[:200]:
        encodings = ["utf-16-le" if data[1:2] == b"\0" else "utf-16-be"]
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


# workbooks


def _workbook(data: bytes, name: str) -> list[list[str]]:
    """The cells of the first sheet."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as book:
            sheet = _part(book, _first_sheet(book))
            shared = _shared(book)
        return [row for row in _rows(sheet, shared) if any(row)]
    except (
        zipfile.BadZipFile,
        ElementTree.ParseError,
        KeyError,
        IndexError,
        NotImplementedError,
        RuntimeError,
        ValueError,
    ) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"{name} is no workbook that can be read. Save it as CSV UTF-8."
        ) from None


def _part(book: zipfile.ZipFile, path: str) -> ElementTree.Element:
    if book.getinfo(path).file_size > MOST_BYTES:
        raise InputError("The workbook is too large. Save the sheet as CSV UTF-8.")
    data = book.read(path)
    if b"<!DOCTYPE" in data or b"<!ENTITY" in data:  # no workbook has them
        raise ValueError("declarations")
    return ElementTree.fromstring(data)


def _first_sheet(book: zipfile.ZipFile) -> str:
    sheet = _part(book, "xl/workbook.xml").find(f"{_MAIN}sheets/{_MAIN}sheet")
    if sheet is None:
        raise KeyError("sheet")
    for link in _part(book, "xl/_rels/workbook.xml.rels"):
        if link.get("Id") == sheet.get(_LINK):
            target = str(link.get("Target"))
            return target.lstrip("/") if target[:1] == "/" else f"xl/{target}"
    raise KeyError("sheet")


def _shared(book: zipfile.ZipFile) -> list[str]:
    if "xl/sharedStrings.xml" not in book.namelist():
        return []
    return [_text(one) for one in _part(book, "xl/sharedStrings.xml")]


def _text(element: ElementTree.Element) -> str:
    """All that is written in it; readings above the line (rPh) are left out."""
    runs = element.findall(f"{_MAIN}t") + element.findall(f"{_MAIN}r/{_MAIN}t")
    return "".join(run.text or "" for run in runs)


def _rows(sheet: ElementTree.Element, shared: Sequence[str]) -> Iterable[list[str]]:
    for row in sheet.iterfind(f"{_MAIN}sheetData/{_MAIN}row"):
        cells: dict[int, str] = {}
        for cell in row:
            place = re.match(r"[A-Z]+", cell.get("r") or "")
            column = _column(place[0]) if place else len(cells)
            cells[column] = _value(cell, shared)
        yield [cells.get(column, "") for column in range(max(cells, default=-1) + 1)]


def _column(letters: str) -> int:
    number = 0
    for letter in letters:
        number = number * 26 + ord(letter) - ord("A") + 1
    if number > 16_384:  # a workbook's last column
        raise ValueError(letters)
    return number - 1


def _value(cell: ElementTree.Element, shared: Sequence[str]) -> str:
    kind = cell.get("t", "n")
    if kind == "inlineStr":
        inner = cell.find(f"{_MAIN}is")
        return _text(inner) if inner is not None else ""
    value = cell.find(f"{_MAIN}v")
    if value is None or not value.text or kind == "e":
        return ""
    if kind == "s":
        return shared[int(value.text)]
    if kind == "b":
        return "true" if value.text == "1" else "false"
    if kind == "n":
        number = float(value.text)
        return str(int(number)) if number.is_integer() else repr(number)
    return value.text
