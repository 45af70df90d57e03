"""Tables that no spreadsheet takes for a program, from one place."""

import ast
import csv
from pathlib import Path

import napari_spt
import spt_core
from spt_core.csv_files import csv_cell, write_csv
from spt_core.tokens.tables import write_table

WRITERS = {"writer", "DictWriter", "to_csv", "savetxt"}


def test_csv_is_written_in_one_place():
    found = []
    for package in (spt_core, napari_spt):
        root = Path(package.__file__).parent
        for path in root.rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                names = []
                if isinstance(node, ast.Attribute) and node.attr in WRITERS:
                    owner = node.value
                    is_csv = not isinstance(owner, ast.Name) or owner.id in (
                        "csv", "np", "numpy",
                    )  # fmt: skip
                    names = [node.attr] if is_csv or node.attr == "to_csv" else []
                elif isinstance(node, ast.ImportFrom) and node.module == "csv":
                    names = [one.name for one in node.names]
                found += [str(path.relative_to(root)) for _ in names]
    assert found == ["csv_files.py"]


def test_formulas_become_text_and_numbers_stay_numbers(tmp_path):
    for bad in ("=1+1", "+a", "-a", "@x", "\t=1", "\r=1", "\n=1", "-1+cmd|x"):
        assert csv_cell(bad) == f"'{bad}"
    for good in ("a", "-1.5", "+3", "1e-3", "-inf", "", -1.5, 7):
        assert csv_cell(good) == good
    write_csv(tmp_path / "a.csv", ["=head", "x"], [["=cell", -1.5]])
    write_table(tmp_path / "b.csv", ["=head", "x"], [{"=head": "=cell", "x": "-1.5"}])
    for name in ("a.csv", "b.csv"):
        with (tmp_path / name).open(newline="") as file:
            assert list(csv.reader(file)) == [["'=head", "x"], ["'=cell", "-1.5"]]
