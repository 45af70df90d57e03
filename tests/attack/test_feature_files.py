"""Bad feature files: a sentence each, and the others go on."""

import csv
import os
import sys

import pytest

from spt_core import read_tokens
from spt_core.cli import main
from spt_core.learning.cohort import open_cohort
from tests.attack import foreign_files, forks
from tests.attack.feature_files import cases, good_file

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks and limits")


def test_every_bad_feature_file_is_a_sentence(tmp_path):
    good = good_file(tmp_path / "good.h5")
    table = forks.Table()
    for name, case in cases(good, tmp_path, seed=1, count=60):
        table.add("features", name, *forks.run(case))
    assert not table.failed, str(table)
    assert table.counts["features"]["sentence"] > 30


def test_every_bad_file_of_another_tool_is_a_sentence(tmp_path):
    table = forks.Table()
    for name, case in foreign_files.cases(tmp_path, seed=2, count=80):
        table.add("foreign", name, *forks.run(case))
    assert not table.failed, str(table)
    assert table.counts["foreign"]["sentence"] > 40


def test_the_good_files_of_other_tools_are_read(tmp_path):
    for form, path in foreign_files.good_files(tmp_path / "good").items():
        assert foreign_files.read(path), form


@pytest.mark.parametrize("ending", [".h5", ".pt"])
def test_a_pipe_is_not_waited_for(tmp_path, ending):
    os.mkfifo(tmp_path / f"s{ending}")
    end, words = forks.run(lambda: read_tokens(tmp_path / f"s{ending}"), seconds=20)
    assert (end, "a pipe" in words) == ("sentence", True)


def test_a_folder_goes_on_without_its_bad_files(tmp_path, capsys):
    for number in range(6):
        good_file(tmp_path / f"s{number}.h5", seed=number)
    (tmp_path / "s2.h5").write_bytes(b"not hdf5")
    content = (tmp_path / "s4.h5").read_bytes()
    (tmp_path / "s4.h5").write_bytes(content[: len(content) // 2])
    cohort = open_cohort(tmp_path)
    assert [slide.name for slide in cohort] == ["s0", "s1", "s3", "s5"]
    assert list(cohort.left_out) == ["s2", "s4"]
    out = tmp_path / "embedded.csv"
    arguments = ["embed", str(tmp_path), "--model", "mean", "--out", str(out)]
    assert main([*arguments, "--include-slide-name"]) == 1
    said = capsys.readouterr().err
    assert "s2.h5" in said
    assert "s4.h5" in said
    with out.open() as file:
        assert [row["slide"] for row in csv.DictReader(file)] == [
            slide.name for slide in cohort
        ]


def test_a_folder_of_bad_files_alone_is_one_sentence(tmp_path, capsys):
    (tmp_path / "a.h5").write_bytes(b"x")
    out = tmp_path / "e.csv"
    assert main(["embed", str(tmp_path), "--model", "mean", "--out", str(out)]) == 1
    assert "a.h5 cannot be read as a feature file" in capsys.readouterr().err
    assert not out.exists()
