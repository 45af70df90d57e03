"""What a window watches of a study and a training, where its files were damaged."""

import json

import numpy as np
import pytest

from spt_core.errors import InputError
from spt_core.learning.growth_file import Snapshot, read_snapshot, write_snapshot
from spt_core.studies.study_folder import StudyFolder
from spt_core.studies.study_report import read_study_report


@pytest.mark.parametrize("content", [b"\xff\xfe\xb9", b"[]", b'{"status": 1}', None])
def test_a_state_that_cannot_be_read_is_a_sentence(tmp_path, content):
    file = tmp_path / "state.json"
    file.mkdir() if content is None else file.write_bytes(content)
    with pytest.raises(InputError, match="Remove it"):
        StudyFolder(tmp_path).state()


def test_a_state_that_no_study_has_is_a_sentence(tmp_path):
    numbers = dict.fromkeys(("done", "total", "run", "pid", "began", "when"), 0)
    words = dict.fromkeys(("stage", "message", "request"), "")
    plain = {"status": "nan", "stages": [], "rate": None, **numbers, **words}
    (tmp_path / "state.json").write_text(json.dumps(plain))
    with pytest.raises(InputError, match="Remove it"):
        StudyFolder(tmp_path).state()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("xy", np.zeros((2, 3))),
        ("xy", np.full((3, 2), np.nan)),
        ("y", np.full(3, 9)),
        ("y", np.array(["a", "b", "c"])),
        ("held_out", np.zeros(0, bool)),
        ("attended", np.array(3)),
        ("p", np.array(3)),
        ("p", np.full((4, 2), 10**9)),
        ("attention", np.zeros(3)),
    ],
)
def test_a_snapshot_that_cannot_be_drawn_is_left_out(tmp_path, name, value):
    slides, p = np.arange(3), np.zeros((4, 2), int)
    arrays = {
        "slides": slides.astype(str),
        "xy": np.zeros((3, 2)),
        "y": slides - 1,
        "classes": np.array(["a", "b"]),
        "held_out": slides > 1,
        "attended": np.array(0),
        "p": p,
        "attention": np.ones(4),
    }
    good = Snapshot(
        0, ("0", "1", "2"), *(arrays[n] for n in ("xy", "y")), ("a", "b"),
        *(arrays[n] for n in ("held_out",)), 0, p, arrays["attention"],
    )  # fmt: skip
    write_snapshot(tmp_path, good)
    assert read_snapshot(tmp_path, 0) is not None
    np.savez(tmp_path / "growth" / "00000000.npz", **{**arrays, name: value})
    assert read_snapshot(tmp_path, 0) is None


@pytest.mark.parametrize(
    "plain",
    [
        {"says": []},
        {"rows": [{"method": "m", "probe": "p", "mean": "x", "low": 0, "high": 1}]},
        {"rows": [{"method": "m", "probe": "p", "mean": 10**30, "low": 0, "high": 1}]},
    ],
)
def test_a_report_of_no_numbers_is_a_sentence(tmp_path, plain):
    whole = {"says": ["Found."], "method": "m", "rows": []}
    (tmp_path / "report").mkdir()
    result = tmp_path / "report" / "result.json"
    result.write_text(json.dumps(whole))
    assert read_study_report(tmp_path).says == ("Found.",)
    result.write_text(json.dumps({**whole, **plain}))
    with pytest.raises(InputError, match="Remove it"):
        read_study_report(tmp_path)
