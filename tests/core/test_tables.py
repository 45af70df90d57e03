"""Tables as spreadsheets write them."""

import zipfile

import pytest

from spt_core.errors import InputError
from spt_core.tokens import read_labels
from spt_core.tokens.tables import guessed_columns, read_cells, write_table

ROWS = [["a", "Köln"], ["b", "with, comma"]]


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "cp1252"]
)
@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_any_common_encoding_and_delimiter(tmp_path, encoding, delimiter):
    lines = [["slide", "label"], *ROWS]
    text = "".join(
        delimiter.join(f'"{cell}"' for cell in line) + "\r\n" for line in lines
    )
    path = tmp_path / "labels.csv"
    path.write_bytes(text.encode(encoding))
    header, rows = read_cells(path)
    assert header == ["slide", "label"]
    assert rows == ROWS
    assert read_labels(path).by_slide["a"].label == "Köln"


def test_excels_own_first_line_and_lines_within_cells(tmp_path):
    path = tmp_path / "labels.csv"
    path.write_bytes(b'sep=;\r\nslide;label;note\r\na;x;"two\r\nlines"\r\n')
    header, rows = read_cells(path)
    assert header == ["slide", "label", "note"]
    assert rows == [["a", "x", "two\nlines"]]


MAIN = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"


def workbook(path, sheet, strings=""):
    """As Excel writes one; the first sheet is not the first file."""
    with zipfile.ZipFile(path, "w") as book:
        book.writestr("xl/worksheets/sheet1.xml", f"<worksheet {MAIN}/>")
        book.writestr(
            "xl/worksheets/sheet2.xml",
            f"<worksheet {MAIN}><sheetData>{sheet}</sheetData></worksheet>",
        )
        book.writestr(
            "xl/workbook.xml",
            f'<workbook {MAIN} xmlns:r="{OFFICE}"><sheets>'
            '<sheet name="Cases" r:id="rId7"/><sheet name="More" r:id="rId1"/>'
            "</sheets></workbook>",
        )
        book.writestr(
            "xl/_rels/workbook.xml.rels",
            '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/'
            'relationships"><Relationship Id="rId1" Target="worksheets/sheet1.xml"/>'
            '<Relationship Id="rId7" Target="/xl/worksheets/sheet2.xml"/>'
            "</Relationships>",
        )
        if strings:
            book.writestr("xl/sharedStrings.xml", f"<sst {MAIN}>{strings}</sst>")
    return path


def test_a_workbook(tmp_path):
    path = workbook(
        tmp_path / "labels.xlsx",
        '<row r="1"><c r="A1" t="s"><v>0</v></c><c r="B1" t="s"><v>1</v></c>'
        '<c r="C1" t="inlineStr"><is><t>patient</t></is></c></row>'
        '<row r="3"><c r="A3"><v>17.0</v></c><c r="C3" t="str"><v>p1</v></c></row>'
        '<row r="4"><c r="A4"><v>0.5</v></c><c r="B4" t="s"><v>2</v></c></row>',
        "<si><t>Slide</t></si><si><r><t>la</t></r><r><t>bel</t></r></si>"
        "<si><t>Köln</t></si>",
    )
    header, rows = read_cells(path)
    assert header == ["Slide", "label", "patient"]
    assert rows == [["17", "", "p1"], ["0.5", "Köln"]]
    found = read_labels(path).by_slide
    assert (found["17"].label, found["17"].patient) == (None, "p1")


def test_workbooks_that_are_none(tmp_path):
    path = tmp_path / "labels.xlsx"
    path.write_bytes(b"PK\x03\x04 and no more")
    with pytest.raises(InputError, match="no workbook"):
        read_cells(path)
    workbook(path, "<row><c><v>1</v></c></row>", "<!DOCTYPE a [<!ENTITY b 'c'>]>")
    with pytest.raises(InputError, match="no workbook"):
        read_cells(path)
    path.write_bytes(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1")
    with pytest.raises(InputError, match="old kind"):
        read_cells(path)


@pytest.mark.parametrize(
    ("header", "found"),
    [
        (["slide", "label"], {"slide": "slide", "label": "label"}),
        (
            ["Case ID", "FileName", "Diagnosis", "Center", "age"],
            {
                "patient": "Case ID",
                "slide": "FileName",
                "label": "Diagnosis",
                "site": "Center",
            },
        ),
        (["slide_id", "case_id", "Class"],
         {"slide": "slide_id", "patient": "case_id", "label": "Class"}),
        (["a", "b"], {}),
    ],
)  # fmt: skip
def test_columns_are_guessed(header, found):
    assert guessed_columns(header) == found


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "labels.csv"
    write_table(path, ["slide", "label"], [{"slide": "a,b", "label": 'x "y"'}])
    assert read_cells(path) == (["slide", "label"], [["a,b", 'x "y"']])
