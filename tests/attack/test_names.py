"""Names that a terminal would obey, and that no file takes."""

import os
import shutil
import sys
from dataclasses import dataclass

import pytest

from spt_core.cli import main
from spt_core.commands.console import seen
from spt_core.errors import InputError
from spt_core.records import from_record
from spt_core.slides.folders import slides_in
from spt_core.studies.study_folder import StudyFolder
from tests.made_slides import picture, write_tiff

POSIX = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such names")


def test_nothing_that_a_terminal_obeys_is_printed():
    assert seen("a\x1b[2Jb\rc\x9bd\u202e\te\n") == "a\\x1b[2Jb\\rc\\x9bd\\u202e\te\n"


@POSIX
def test_a_slide_s_name_does_not_colour_the_terminal(tmp_path, capsys):
    path = tmp_path / "a\x1b[31m.tif"
    write_tiff(path, picture(300, 200), levels=1)
    assert main(["info", str(path)]) == 0
    assert main(["info", str(path) + "x"]) == 1
    said = capsys.readouterr()
    assert "\x1b" not in said.out + said.err
    assert "a\\x1b[31m.tif" in said.out


@dataclass(frozen=True)
class Card:
    classes: tuple[str, ...] = ()


@pytest.mark.parametrize("text", ["\ud800", "a\0", "\udfff b"])
def test_text_that_no_file_takes_is_refused_in_a_record(text):
    with pytest.raises(InputError, match="no file takes"):
        from_record(Card, {"classes": [text]}, "the card")


@POSIX
def test_links_that_fan_out_and_folders_in_folders_come_to_an_end(tmp_path, caplog):
    for level in range(40):
        (tmp_path / f"d{level}").mkdir()
        for link in "ab":
            (tmp_path / f"d{level}" / link).symlink_to(f"../d{level + 1}")
    (tmp_path / "d40").mkdir()
    (tmp_path / "d40" / "x.tif").touch()
    assert [path.name for path in slides_in(tmp_path / "d0")] == ["x.tif"]

    deep = tmp_path / "deep"
    deep.mkdir()
    (deep / "y.tif").touch()
    here = os.getcwd()
    try:
        os.chdir(deep)
        for _ in range(900):
            os.mkdir("a")
            os.chdir("a")
    finally:
        os.chdir(here)
    assert [path.name for path in slides_in(deep)] == ["y.tif"]
    assert "too deep" in caplog.text
    shutil.rmtree(deep, ignore_errors=True)


def test_what_is_no_number_is_no_run_of_a_study(tmp_path):
    for name in ("1", "12", "\u00b2", "\u0663", "x", "9" * 200):
        (tmp_path / "runs" / name).mkdir(parents=True)
    assert StudyFolder(tmp_path).run_numbers() == [12, 1]
