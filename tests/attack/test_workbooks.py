"""Workbooks that unpack to too much, or to nothing that can be read."""

import io
import sys
import time
import zipfile
from pathlib import Path

import pytest

from spt_core.errors import InputError
from spt_core.tokens.tables import read_cells
from spt_core.tokens.workbook import workbook_cells

MAIN = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
RELATED = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
HEAD, TAIL = f"<worksheet {MAIN}><sheetData>", "</sheetData></worksheet>"


def cell(text, place=""):
    stated = f' r="{place}"' if place else ""
    return f'<c t="inlineStr"{stated}><is><t>{text}</t></is></c>'


NAMES = f"<row>{cell('slide')}{cell('label')}</row>"


def workbook(sheet, shared=None, packed=zipfile.ZIP_DEFLATED):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", packed) as book:
        book.writestr(
            "xl/workbook.xml",
            f'<workbook {MAIN} xmlns:r="{RELATED}"><sheets>'
            '<sheet name="a" r:id="r1"/></sheets></workbook>',
        )
        book.writestr(
            "xl/_rels/workbook.xml.rels",
            '<Relationships><Relationship Id="r1" Target="sheet1.xml"/>'
            "</Relationships>",
        )
        if shared:
            book.writestr("xl/sharedStrings.xml", shared)
        book.writestr("xl/sheet1.xml", sheet)
    return file.getvalue()


def test_cells_without_places_follow_one_another():
    rows = f"{NAMES}<row><c/>{cell('b')}</row><row>{cell('a', 'A3')}<c/></row>"
    assert workbook_cells(workbook(HEAD + rows + TAIL), "x") == [
        ["slide", "label"],
        ["", "b"],
        ["a"],
    ]


@pytest.mark.parametrize(
    "rows",
    [
        f"<row>{cell('x', 'XFD2')}</row>" * 20_000,
        "<row>" + "<c/>" * 2_000_000 + "</row>",
    ],
)
def test_a_small_file_of_many_cells_is_refused_soon(rows):
    began = time.process_time()
    with pytest.raises(InputError, match="too large"):
        workbook_cells(workbook(HEAD + NAMES + rows + TAIL), "x.xlsx")
    assert time.process_time() - began < 10


@pytest.mark.parametrize("packed", [zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA])
def test_a_damaged_workbook_is_a_sentence(packed):
    data = bytearray(workbook(HEAD + NAMES + TAIL, packed=packed))
    at = data.rfind(b"sheet1.xml", 0, data.rfind(b"PK\1\2"))
    for place in range(at + 12, at + 60):
        data[place] ^= 0x55
    with pytest.raises(InputError, match="no workbook"):
        workbook_cells(bytes(data), "x.xlsx")


@pytest.mark.parametrize(
    "sheet",
    [
        f'<?xml version="1.0" encoding="none"?>{HEAD}{TAIL}',
        f'{HEAD}{NAMES}<row><c t="s"><v>-1</v></c></row>{TAIL}',
        f'{HEAD}<row><c r="ZZZZZZZZ1"/></row>{TAIL}',
        "<!DOCTYPE a [<!ENTITY b 'c'>]>" + HEAD + NAMES + TAIL,
    ],
)
def test_what_no_workbook_holds_is_a_sentence(sheet):
    shared = f"<sst {MAIN}><si><t>q</t></si></sst>"
    with pytest.raises(InputError, match="no workbook"):
        workbook_cells(workbook(sheet, shared), "x.xlsx")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such device")
def test_a_device_is_no_table():
    with pytest.raises(InputError, match="neither a file nor a folder"):
        read_cells(Path("/dev/zero"))


def test_a_formula_without_its_result_is_no_blank_cell():
    rows = f"{NAMES}<row>{cell('x')}<c><f>A1</f></c></row>"
    with pytest.raises(InputError, match="formula without its result"):
        workbook_cells(workbook(HEAD + rows + TAIL), "x")


def test_a_long_number_keeps_its_digits():
    rows = f"{NAMES}<row>{cell('x')}<c><v>12345678901234567891</v></c></row>"
    found = workbook_cells(workbook(HEAD + rows + TAIL), "x")
    assert found[1] == ["x", "12345678901234567891"]
