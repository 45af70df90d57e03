"""The folder of a run: one header of metrics.csv, and nothing lost by a kill."""

import csv
import errno
import os

import pytest
import torch

from spt_core.training import run_folder
from spt_core.training.run_folder import RunFolder


def rows_of(folder):
    with folder.metrics.open(newline="") as file:
        return list(csv.DictReader(file))


def test_rows_follow_the_first_ones_header(tmp_path):
    folder = RunFolder(tmp_path)
    folder.add_metrics({"step": 3, "loss": 1.5, "knn": None})
    folder.add_metrics({"knn": 0.5, "loss": 1.25, "step": 6})
    assert rows_of(folder) == [
        {"step": "3", "loss": "1.5", "knn": ""},
        {"step": "6", "loss": "1.25", "knn": "0.5"},
    ]


def test_a_run_with_more_columns_goes_on_with_them(tmp_path):
    """As runs of patch training that were begun by an older version."""
    folder = RunFolder(tmp_path)
    folder.metrics.write_text(
        "step,loss,slides_per_second,patches_per_second\n3,1.5,,10.0\n6,1.0,,10.0\n"
    )
    folder.drop_metrics_after(3)
    folder.add_metrics({"step": 6, "loss": 0.5, "patches_per_second": 20.0})
    assert [row["loss"] for row in rows_of(folder)] == ["1.5", "0.5"]
    assert [row["patches_per_second"] for row in rows_of(folder)] == ["10.0", "20.0"]


def test_half_a_row_left_by_a_kill_is_dropped(tmp_path):
    folder = RunFolder(tmp_path)
    folder.metrics.write_text("step,loss,knn\n3,1.5,0.5\n6,1.")
    folder.drop_metrics_after(9)
    assert [row["step"] for row in rows_of(folder)] == ["3"]


class Killed(BaseException):
    """The process ends here; nothing of it is cleaned up."""


def test_a_kill_while_rows_are_dropped_drops_no_other(tmp_path, monkeypatch):
    folder = RunFolder(tmp_path)
    for step in (3, 6, 9):
        folder.add_metrics({"step": step, "loss": 1.0})

    def kill(*_):
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", kill)
        with pytest.raises(Killed):
            folder.drop_metrics_after(6)
    assert [row["step"] for row in rows_of(folder)] == ["3", "6", "9"]
    folder.drop_metrics_after(6)
    assert [row["step"] for row in rows_of(folder)] == ["3", "6"]


def test_kills_between_sum_and_name_leave_the_checkpoint_good(tmp_path, monkeypatch):
    """Each time the sum of a checkpoint is noted that never gets its name."""
    folder = RunFolder(tmp_path)
    folder.save_checkpoint({"step": 1})
    replace = os.replace

    def kill(source, target):
        if target in (folder.checkpoint, folder._before):
            raise Killed
        replace(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(run_folder.os, "replace", kill)
        for step in (2, 3, 4):
            with pytest.raises(Killed):
                folder.save_checkpoint({"step": step})
    assert folder.load_checkpoint(torch.device("cpu")) == {"step": 1}


@pytest.mark.parametrize("text", ["", "\0" * 65, "garbage\n", "\xff"])
def test_a_damaged_list_of_sums_loses_no_checkpoint(tmp_path, text):
    folder = RunFolder(tmp_path)
    folder.save_checkpoint({"step": 1})
    (tmp_path / "checkpoint.sha256").write_bytes(text.encode("latin-1"))
    assert folder.load_checkpoint(torch.device("cpu")) == {"step": 1}


def test_what_a_kill_left_is_removed_by_the_next_to_hold_the_folder(tmp_path):
    folder = RunFolder(tmp_path)
    (tmp_path / "growth").mkdir()
    left = [".checkpoint.0123456789ab.pt", "growth/.00000003.0123456789ab.npz"]
    kept = ["best.safetensors", ".mine", "growth/00000003.npz"]
    for name in (*left, *kept):
        (tmp_path / name).write_text("x")
    with folder.held():
        assert not any((tmp_path / name).exists() for name in left)
        assert all((tmp_path / name).exists() for name in kept)


def test_a_checkpoint_that_a_quota_refuses_is_named(tmp_path):
    """torch has an error of its own for that, and the disk has room."""
    resource = pytest.importorskip("resource")
    folder = RunFolder(tmp_path)
    folder.save_checkpoint({"step": 1})
    known = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, known[1]))
    try:
        with pytest.raises(OSError, match=r"checkpoint\.pt") as raised:
            folder.save_checkpoint({"step": 2, "weights": torch.zeros(50_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, known)
    assert raised.value.errno == errno.EFBIG
    assert folder.load_checkpoint(torch.device("cpu")) == {"step": 1}
    assert not list(tmp_path.glob(".*"))
