"""The cells of an .xlsx workbook's first sheet, read piece by piece.

A workbook is a zip of XML: some kilobytes of it may unpack to more than any memory, or
state a cell at the far end of every row. What is kept is counted while it is read.
"""

import io
import re
import zipfile
from collections.abc import Iterator, Sequence
from typing import IO, Any
from xml.etree import ElementTree

from spt_core.errors import InputError

# Of one part of a workbook, unpacked: a labels file has some megabytes at most.
MOST_BYTES = 200_000_000
# Of a table, blank ones too: a million rows of thirty columns.
MOST_CELLS = 2**25
_MOST_COLUMNS = 16_384
# A cell of text takes three elements; of more of them the reader takes minutes.
_MOST_ELEMENTS = 2**24
_MAIN = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
_LINK = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"
_PIECE = 2**16


def workbook_cells(data: bytes, name: str) -> list[list[str]]:
    """The cells of the first sheet, without blank rows.

    Raises
    ------
    InputError
        Where it is no workbook, or a larger one than any table of slides.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as book:
            return _kept(_rows(book, _first_sheet(book), _shared(book)))
    except InputError as error:
        raise InputError(f"{name}: {error}") from None
    # Whatever zip, its packers and the XML reader raise, by where the file is wrong.
    except Exception as error:
        raise InputError(
            f"{name} is no workbook that can be read. Save it as CSV UTF-8."
        ) from error


def _kept(rows: Iterator[list[str]]) -> list[list[str]]:
    kept, count = [], 0
    for row in rows:
        while row and not row[-1]:
            row.pop()
        if row:
            kept.append(row)
            count += len(row)
        if count > MOST_CELLS:
            raise _too_large()
    return kept


def _too_large() -> InputError:
    return InputError("the workbook is too large. Save the sheet as CSV UTF-8.")


def _elements(
    book: zipfile.ZipFile, part: str, wanted: Sequence[str]
) -> Iterator[ElementTree.Element]:
    """The wanted elements of a part, one after the other; none is kept."""
    parser: Any = ElementTree.XMLPullParser(("start", "end"))
    open_ones: list[ElementTree.Element] = []
    seen = read = inside = 0
    with book.open(part) as file:
        for piece in _pieces(file):
            read += len(piece)
            parser.feed(piece)
            for event, element in parser.read_events():
                if event == "start":
                    seen += 1
                    inside += element.tag in wanted
                    open_ones.append(element)
                    continue
                open_ones.pop()
                if element.tag in wanted:
                    inside -= 1
                    yield element
                if not open_ones:
                    continue
                if not inside:
                    open_ones[-1].remove(element)
                elif len(open_ones[-1]) > _MOST_COLUMNS:
                    raise _too_large()
            if read > MOST_BYTES or seen > _MOST_ELEMENTS:
                raise _too_large()
    parser.close()


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    before = b""
    while piece := file.read(_PIECE):
        both = (before[-64:] + piece).replace(b"\0", b"")  # UTF-16 too
        if b"<!DOCTYPE" in both or b"<!ENTITY" in both:  # no workbook has them
            raise ValueError("declarations")
        yield piece
        before = piece


def _first_sheet(book: zipfile.ZipFile) -> str:
    sheet = next(_elements(book, "xl/workbook.xml", [f"{_MAIN}sheet"]))
    links = "{http://schemas.openxmlformats.org/package/2006/relationships}"
    known = [f"{links}Relationship", "Relationship"]
    for link in _elements(book, "xl/_rels/workbook.xml.rels", known):
        if link.get("Id") == sheet.get(_LINK):
            target = str(link.get("Target"))
            return target.lstrip("/") if target[:1] == "/" else f"xl/{target}"
    raise KeyError("sheet")


def _shared(book: zipfile.ZipFile) -> list[str]:
    part = "xl/sharedStrings.xml"
    if part not in book.namelist():
        return []
    return [_text(one) for one in _elements(book, part, [f"{_MAIN}si"])]


def _text(element: ElementTree.Element) -> str:
    """All that is written in it; readings above the line (rPh) are left out."""
    runs = element.findall(f"{_MAIN}t") + element.findall(f"{_MAIN}r/{_MAIN}t")
    return "".join(run.text or "" for run in runs)


def _rows(
    book: zipfile.ZipFile, part: str, shared: Sequence[str]
) -> Iterator[list[str]]:
    for row in _elements(book, part, [f"{_MAIN}row"]):
        cells: dict[int, str] = {}
        column = -1
        for cell in row:
            place = re.match(r"[A-Z]+", cell.get("r") or "")
            column = _column(place[0]) if place else column + 1
            if value := _value(cell, shared):
                cells[column] = value
        yield [cells.get(column, "") for column in range(max(cells, default=-1) + 1)]


def _column(letters: str) -> int:
    number = 0
    for letter in letters[:4]:
        number = number * 26 + ord(letter) - ord("A") + 1
    if number > _MOST_COLUMNS:
        raise ValueError(letters)
    return number - 1


def _value(cell: ElementTree.Element, shared: Sequence[str]) -> str:
    kind = cell.get("t", "n")
    if kind == "inlineStr":
        inner = cell.find(f"{_MAIN}is")
        return _text(inner) if inner is not None else ""
    value = cell.find(f"{_MAIN}v")
    if value is None and cell.find(f"{_MAIN}f") is not None:
        raise InputError(
            "a cell is a formula without its result. Open the workbook in a "
            "spreadsheet program and save it there."
        )
    if value is None or not value.text or kind == "e":
        return ""
    if kind == "s":
        number = int(value.text)
        if number < 0:
            raise IndexError(number)
        return shared[number]
    if kind == "b":
        return "true" if value.text == "1" else "false"
    if kind == "n":
        if re.fullmatch("[0-9]+", value.text):
            return str(int(value.text))  # longer than a float is exact
        as_number = float(value.text)
        if as_number.is_integer():
            return str(int(as_number))
        return repr(as_number)
    return value.text
