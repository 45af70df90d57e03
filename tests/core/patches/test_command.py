"""``spt encode`` on a folder: progress, summary, exit code."""

import csv
import json

import pytest

from spt_core.cli import main
from spt_core.errors import InputError
from spt_core.patches.folder import find_slides
from spt_core.slides import open_slide
from tests.core.patches.conftest import make_slide, tissue_picture
from tests.made_slides import write_tiff
from tests.slides_folder import FOLDER, needs

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


@pytest.fixture
def series(monkeypatch):
    """DICOM files that hold nothing but the name of their series."""
    from spt_core.slides import folders

    def read(path, **_):
        return path.read_text() or None

    monkeypatch.setattr(folders, "_series", read)


def lay(folder, **files):
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def found_in(folder):
    return [path.relative_to(folder).as_posix() for path in find_slides([folder])]


def test_dicom_files_hide_no_other_slide(tmp_path, series):
    lay(tmp_path, a_svs="", b_svs="", c_dcm="one", d_dcm="one", e_DCM="two")
    lay(tmp_path, f_dcm="", sub__g_svs="", whole__1_dcm="three", whole__2_dcm="three")
    assert found_in(tmp_path) == [
        "a.svs",
        "b.svs",
        "c.dcm",
        "e.DCM",
        "f.dcm",
        "sub/g.svs",
        "whole",
    ]
    with pytest.raises(InputError, match=r"holds 7 slides.*a.svs, b.svs, c.dcm"):
        open_slide(tmp_path)


def test_a_folder_is_a_dicom_slide_only_if_it_holds_one_series_alone(tmp_path, series):
    one = tmp_path / "one"
    # Notes, and files that are no images, may lie beside it.
    lay(one, b_dcm="a", c_dcm="a", sr_dcm="", readme_txt="", more__x_txt="")
    assert found_in(tmp_path) == ["one"]
    lay(one, d_dcm="b")
    assert found_in(tmp_path) == ["one/b.dcm", "one/d.dcm", "one/sr.dcm"]
    (one / "d.dcm").unlink()
    lay(one, below__s_svs="")
    assert found_in(tmp_path) == ["one/b.dcm", "one/below/s.svs", "one/sr.dcm"]


DICOM = FOLDER / "slides" / "dicom_cmu_small"


@needs(DICOM)
def test_real_dicom_files_beside_another_slide(tmp_path):
    uid = b"1.2.826.0.1.3680043.8.498.21577574112843936045397065457192622591"
    for folder in ("mixed", "whole", "two"):
        (tmp_path / folder).mkdir()
    for path in DICOM.glob("*.dcm"):
        content = path.read_bytes()
        assert uid in content
        for folder in ("mixed", "whole", "two"):
            (tmp_path / folder / path.name).write_bytes(content)
        other = content.replace(uid, uid[:-1] + b"2")
        (tmp_path / "two" / f"9{path.name}").write_bytes(other)
    write_tiff(tmp_path / "mixed" / "a.tif", tissue_picture(600, 500, margin=50))
    names = sorted(path.name for path in DICOM.glob("*.dcm"))
    assert found_in(tmp_path / "whole") == ["."]
    assert found_in(tmp_path / "mixed") == [names[0], "a.tif"]
    assert found_in(tmp_path / "two") == [names[0], f"9{names[0]}"]
    assert open_slide(tmp_path / "whole").path.name == names[0]
    for path in find_slides([tmp_path / "two"]):
        assert open_slide(path).dimensions == (2220, 2967)
    with pytest.raises(InputError, match="holds 2 slides"):
        open_slide(tmp_path / "two")
