"""Bad tables of labels: right, or a sentence; and no formula in what we write."""

import csv
import sys
import time

import pytest

from spt_core.errors import InputError
from spt_core.patches.folder import write_summary
from spt_core.patches.settings import SlideResult
from spt_core.tokens import read_labels
from tests.attack import forks
from tests.attack.label_tables import cases


@pytest.mark.skipif(sys.platform != "linux", reason="forks and limits")
def test_every_bad_table_is_right_or_a_sentence(tmp_path):
    table = forks.Table()
    for name, case in cases(tmp_path, seed=3, count=60):
        table.add("labels", name, *forks.run(case))
    assert not table.failed, str(table)
    assert table.counts["labels"]["sentence"] > 10


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("slide,label,label\na,x,y\n", "2 columns 'label'"),
        ('slide,label\na,"x\nb,y\n', "never closed"),
        ("slide,label,mpp\na,x,nan\n", "mpp is 'nan'"),
        ("slide,label,mpp\na,x,-0.5\n", "mpp is '-0.5'"),
        ("slide,label,mpp\na,x,1_0\n", "mpp is '1_0'"),
        ("slide,label\na," + "x" * 20_000 + "\n", "longer than any name"),
        ("slide,label\na," + "x" * 200_000 + "\n", "longer than any name"),
        ("slide,label\na,tumour, benign\n", "3 cells for 2 columns"),
        ("slide,label\n" + "a,b\n" * 99 + "a,\0\n", "not text"),
        ("sep=;\n", "is empty"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, text, words):
    path = tmp_path / "labels.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=words):
        read_labels(path)


@pytest.mark.parametrize(
    "text",
    [
        "sep=;\nslide;label\na;x\nb;y\n",
        '"sep=;"\r\nslide;label\r\na;x\r\nb;y\r\n',
        '\ufeffslide,label\n"a",x\nb,"y",\n',
        "slide\tlabel\ra\tx\rb\ty",
    ],
)
def test_what_spreadsheets_write_is_read(tmp_path, text):
    path = tmp_path / "labels.csv"
    path.write_bytes(text.encode())
    rows = read_labels(path).by_slide
    assert {name: row.label for name, row in rows.items()} == {"a": "x", "b": "y"}


def test_a_line_separator_in_a_name_is_part_of_it(tmp_path):
    path = tmp_path / "labels.csv"
    path.write_text("slide,label\na\u2028b,x\nc,y\n", encoding="utf-8")
    assert list(read_labels(path).by_slide) == ["a\u2028b", "c"]


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        ("a", "A", "differ in capitals"),
        ("a", "a\u200b", "differ in capitals"),
        ("small cell", "small-cell", "differ in capitals"),
        ("1", "1.0", "differ in capitals"),
        ("a", "nan", "programs write"),
        ("a", "N/A", "programs write"),
    ],
)
def test_classes_that_may_be_one_or_none_are_remarked(tmp_path, first, second, words):
    path = tmp_path / "labels.csv"
    path.write_text(f"slide,label\nx,{first}\ny,{second}\n", encoding="utf-8")
    (remark,) = read_labels(path).remarks
    assert words in remark


@pytest.mark.slow
def test_a_million_rows_take_seconds(tmp_path):
    path = tmp_path / "labels.csv"
    with path.open("w") as file:
        file.write("slide,label,patient\n")
        file.writelines(f"s{i},{i % 3},p{i // 2}\n" for i in range(1_000_000))
    began = time.process_time()
    assert len(read_labels(path).by_slide) == 1_000_000
    assert time.process_time() - began < 40


def test_no_cell_that_we_write_is_a_formula(tmp_path):
    names = ["=1+1", "+x", "-x", "@x", "-1.5"]
    write_summary(tmp_path, [SlideResult(n, "failed", reason=n) for n in names])
    with (tmp_path / "summary.csv").open(newline="") as file:
        rows = list(csv.reader(file))[1:]
    assert [row[0] for row in rows] == ["'=1+1", "'+x", "'-x", "'@x", "-1.5"]
    assert [row[4] for row in rows] == [row[0] for row in rows]


@pytest.mark.parametrize(
    ("first", "second", "alike"),
    [
        ("p1", "P1", True),
        ("p1", "p1\u200b", True),
        ("p\u00e9", "pe\u0301", True),
        ("1", "1.0", True),
        ("1-11", "11-1", False),
        ("p1", "p2", False),
    ],
)
def test_patients_that_may_be_one_are_remarked(tmp_path, first, second, alike):
    path = tmp_path / "labels.csv"
    text = f"slide,label,patient,split\nx,a,{first},train\ny,b,{second},test\n"
    path.write_text(text, encoding="utf-8")
    remarks = read_labels(path).remarks
    assert [one.startswith("The patients") for one in remarks] == [True] * alike


def test_a_null_in_a_cell_is_no_utf_16(tmp_path):
    path = tmp_path / "labels.csv"
    path.write_bytes(b"slide,label\nab\0,x\nc,y\n")
    with pytest.raises(InputError, match="is not text"):
        read_labels(path)
