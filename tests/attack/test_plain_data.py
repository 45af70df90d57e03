"""JSON and arrays in the folders of runs, studies and benchmarks, as nobody writes."""

import json
import os
import sys
import zipfile

import numpy as np
import pytest

from spt_core.errors import InputError
from spt_core.insight.codebook import read_codebook
from spt_core.learning.growth_file import read_snapshot, snapshot_file
from spt_core.patients_key import read_key
from spt_core.plain_data import arrays_of, from_json, json_of
from spt_core.studies.bench import read_slide_list
from spt_core.studies.study_folder import StudyFolder
from spt_core.studies.study_folds import read_folds
from spt_core.studies.study_patches import PATCHES_FILE
from spt_core.studies.study_requests import latest_run_of
from spt_core.studies.study_runs import latest_run
from spt_core.weights_file import read_weights

DEEP = "[" * 100_000
ODD = [DEEP, "", "9" * 5000, "null", "3", '"x"', "{}", "[1]", '{"status": 3}', "\x00"]


@pytest.fixture
def study(tmp_path):
    (tmp_path / "runs" / "1").mkdir(parents=True)
    return StudyFolder(tmp_path)


def test_what_is_too_deep_is_a_value_error():
    with pytest.raises(ValueError, match="too deep"):
        from_json(DEEP)


@pytest.mark.parametrize("text", ODD)
def test_a_study_s_files_are_read_or_a_sentence(study, text):
    for name in ("state.json", "folds.json", "runs/1/run.json"):
        (study.path / name).write_text(text)
    study.events.write_text(f'{text}\n{{"event": "x"}}\n')
    assert study.read_events()[0][-1] == {"event": "x"}
    assert all(isinstance(event, dict) for event in study.read_events()[0])
    for ask in (study.state, lambda: latest_run(study), lambda: read_folds(study, 5)):
        with pytest.raises(InputError):
            ask()
    if text != '{"status": 3}':
        with pytest.raises(InputError):
            latest_run_of(study)
    (study.path / "runs" / "1" / PATCHES_FILE).write_text(text)


@pytest.mark.parametrize("fold", [-1, 5, 1.5, "1", None, True])
def test_a_fold_that_there_is_not_is_refused(study, fold):
    plain = {"folds": 5, "patients": {"a": 0, "b": fold}}
    study.folds.write_text(json.dumps(plain))
    with pytest.raises(InputError, match="states a fold"):
        read_folds(study, 5)


@pytest.mark.parametrize("text", ODD)
def test_a_codebook_is_read_or_a_sentence(tmp_path, text):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(InputError):
        read_codebook(tmp_path / "x.json")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such pipes")
def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "x")
    for read in (json_of, arrays_of, read_key, read_weights, read_slide_list):
        with pytest.raises(ValueError, match="a pipe"):
            read(tmp_path / "x")


def headed(shape):
    words = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}}}"
    head = words.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\0" + len(head).to_bytes(2, "little") + head


@pytest.mark.parametrize(
    "arrays",
    [
        b"",
        b"PK\3\4" + b"\0" * 50,
        {"xy.npy": headed((2**40, 2**10))},
        {"xy.npy": headed((2**62, 2**62))},
        {"xy.npy": headed((-1, 2))},
        {"xy.npy": b"\x80\x04N."},
        {"xy.npy": b"x"},
        {"xy": b"x"},
    ],
)
def test_arrays_that_are_none_are_a_value_error(tmp_path, arrays):
    path = snapshot_file(tmp_path, 3)
    path.parent.mkdir()
    if isinstance(arrays, bytes):
        path.write_bytes(arrays)
    else:
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in arrays.items():
                archive.writestr(name, content)
    with pytest.raises(ValueError, match=r"\w"):
        arrays_of(path)
    assert read_snapshot(tmp_path, 3) is None


def test_packed_arrays_are_not_unpacked(tmp_path):
    np.savez_compressed(tmp_path / "x.npz", a=np.zeros(2**20))
    with pytest.raises(ValueError, match="packed"):
        arrays_of(tmp_path / "x.npz")
