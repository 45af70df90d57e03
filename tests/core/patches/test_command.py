"""``spt encode`` on a folder: progress, summary, exit code."""

import csv
import json

import pytest

from spt_core.cli import main
from spt_core.patches.folder import find_slides
from tests.core.patches.conftest import make_slide, tissue_picture
from tests.made_slides import write_tiff

OPTIONS = ["--encoder", "small-random", "--patch-size", "64", "--target-mpp", "1"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two good slides, a damaged one, one without a pixel size, and other files."""
    folder = tmp_path_factory.mktemp("folder")
    make_slide(folder / "a.tif", 1200, 1000)
    (folder / "deeper").mkdir()
    make_slide(folder / "deeper" / "b.1.tif", 1300, 1100, seed=1)
    (folder / "bad.svs").write_bytes(b"II*\0 not a slide")
    write_tiff(folder / "unknown.tif", tissue_picture(1200, 1000), mpp_xy=None)
    (folder / "notes.txt").write_text("no slide")
    (folder / ".hidden.tif").write_text("no slide")
    return folder


def table(out):
    with (out / "summary.csv").open(encoding="utf-8") as file:
        return {row["slide"]: row for row in csv.DictReader(file)}


def test_one_bad_slide_never_stops_the_rest(folder, tmp_path, capsys):
    out = tmp_path / "f"
    assert main(["encode", str(folder), "--out", str(out), *OPTIONS]) == 1
    rows = table(out)
    assert {name: row["status"] for name, row in rows.items()} == {
        "a": "done",
        "b.1": "done",
        "bad": "failed",
        "unknown": "failed",
    }
    assert "--slide-mpp" in rows["unknown"]["reason"]
    assert "damaged or incomplete" in rows["bad"]["reason"]
    assert int(rows["a"]["patches"]) > 10
    said = capsys.readouterr()
    assert "2 done" in said.out
    assert "2 failed" in said.out
    assert "Traceback" not in said.err
    names = {p.name for p in out.iterdir()}
    assert names == {"a.h5", "b.1.h5", "summary.csv"}

    # The rest with what was missing; what is done is skipped.
    labels = tmp_path / "labels.csv"
    labels.write_text("slide,label,mpp\nunknown.tif,,0.5\na.tif,x,\n")
    files = [str(folder / "a.tif"), str(folder / "unknown.tif")]
    again = ["encode", *files, "--out", str(out), "--labels", str(labels), *OPTIONS]
    assert main(again) == 0
    rows = table(out)
    assert rows["a"]["status"] == "skipped"
    assert rows["unknown"]["status"] == "done"


def test_json_is_one_object_a_line(folder, tmp_path, capsys):
    arguments = ["encode", str(folder / "a.tif"), "--out", str(tmp_path), *OPTIONS]
    assert main([*arguments, "--json"]) == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    kinds = [event["event"] for event in events]
    assert kinds[0] == "slidestarted"
    assert kinds[-1] == "summary"
    last = [event for event in events if event["event"] == "progress"][-1]
    assert last["done"] == last["total"]
    assert last["rate"] > 0


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--min-tissue", "2"], "a number from 0 to 1"),
        (["--patch-size", "0"], "--patch-size must be greater than 0"),
        (["--slide-mpp", "-1"], "--slide-mpp must be greater than 0"),
        (["--encoder", "nonsense"], "There is no encoder 'nonsense'"),
    ],
)
def test_wrong_options_are_a_sentence(options, sentence, folder, tmp_path, capsys):
    arguments = ["encode", str(folder / "a.tif"), "--out", str(tmp_path), *OPTIONS]
    assert main([*arguments, *options]) == 1
    assert sentence in capsys.readouterr().err


def test_slides_of_a_folder(folder, tmp_path, capsys):
    names = [path.name for path in find_slides([folder])]
    assert names == ["a.tif", "bad.svs", "b.1.tif", "unknown.tif"]
    dicom = tmp_path / "dicom"
    dicom.mkdir()
    for i in range(3):
        (dicom / f"{i}.dcm").write_bytes(b"")
    assert find_slides([tmp_path]) == [dicom]
    assert main(["encode", str(tmp_path / "none"), "--out", str(tmp_path)]) == 1
    assert "There is no file or folder" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    assert main(["encode", str(tmp_path / "empty"), "--out", str(tmp_path)]) == 1
    assert "no slides in the folder" in capsys.readouterr().err
