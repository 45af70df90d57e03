"""Run folders: one process at a time, damage a sentence, signals a stop."""

import json
import os
import signal
import subprocess
import sys
import time

import h5py
import pytest
import torch

from spt_core.cli import main
from spt_core.errors import InputError
from spt_core.events import Progress
from spt_core.files import written_whole
from spt_core.learning.settings import TrainSettings
from spt_core.patches import EncoderCard, EncodeSettings, TorchEncoder, encode_slide
from spt_core.training.run_folder import RunFolder
from tests.attack import run_folders
from tests.core.patches.conftest import make_slide, run_through

POSIX = pytest.mark.skipif(os.name == "nt", reason="Windows has no such signals")
CPU = torch.device("cpu")


def with_checkpoints(path):
    folder = RunFolder(path)
    for step in (1, 2, 3):
        folder.save_checkpoint({"step": step, "w": torch.arange(1000) * step})
    return folder


def test_two_processes_never_train_in_one_folder(tmp_path):
    hold = (
        "import sys, time; from pathlib import Path\n"
        "from spt_core.files import held_by_one\n"
        "with held_by_one(Path(sys.argv[1]) / '.lock'):\n"
        "    print('held', flush=True); time.sleep(60)\n"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", hold, str(tmp_path)], stdout=subprocess.PIPE
    )
    try:
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(InputError, match="Another process trains"):
            RunFolder(tmp_path).held().__enter__()
    finally:
        other.kill()
        other.wait()
        other.stdout.close()
    with RunFolder(tmp_path).held():  # the dead hold nothing
        pass


def test_a_damaged_checkpoint_falls_back_to_the_one_before(tmp_path):
    folder = with_checkpoints(tmp_path)
    assert folder.load_checkpoint(CPU)["step"] == 3
    content = bytearray(folder.checkpoint.read_bytes())
    content[len(content) // 2] ^= 1
    folder.checkpoint.write_bytes(content)
    assert folder.load_checkpoint(CPU)["step"] == 2
    folder.checkpoint.unlink()  # killed between its two renames
    assert folder.is_begun
    assert folder.load_checkpoint(CPU)["step"] == 2
    (tmp_path / "checkpoint-before.pt").write_bytes(b"")
    with pytest.raises(InputError, match="are damaged"):
        folder.load_checkpoint(CPU)


def test_a_folder_of_an_earlier_version_goes_on(tmp_path):
    torch.save({"step": 7}, tmp_path / "checkpoint.pt")
    assert RunFolder(tmp_path).load_checkpoint(CPU) == {"step": 7}


@pytest.mark.parametrize(
    "text",
    ["", "\0", "- 1", "{", "a: [", "objective: {}", "views: 3", "&a [*a]", "1: 2"],
)
def test_a_damaged_config_is_a_sentence(tmp_path, text):
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(InputError, match=r"config\.yaml"):
        TrainSettings.read(tmp_path / "config.yaml")


@pytest.mark.parametrize("bad", ["x,y\n", "\xff\xff", "6,,\n", "7,nan,\n", '"\n'])
def test_damaged_metrics_keep_their_good_rows(tmp_path, bad):
    folder = RunFolder(tmp_path)
    folder.metrics.write_bytes(b"step,loss,knn\n3,1.5,0.5\n" + bad.encode("latin-1"))
    folder.drop_metrics_after(9)
    assert [row["step"] for row in folder.read_metrics()][:1] == ["3"]
    folder.draw_curve()


@POSIX
@pytest.mark.parametrize(
    "name", ["config.yaml", "metrics.csv", "checkpoint.pt", "patients.key"]
)
def test_a_pipe_in_a_run_folder_is_not_waited_for(tmp_path, name):
    folder = run_folders.good_run(tmp_path / "run")
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(InputError, match="a pipe"):
        run_folders.go_on(folder)


@POSIX
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGINT"])
def test_a_signal_stops_a_command_in_one_line_also_while_it_imports(name, tmp_path):
    # Ready as soon as its first line runs, long before torch is imported.
    code = (
        "import sys; from spt_core import cli\n"
        "print('ready', flush=True)\n"
        "sys.exit(cli.main(sys.argv[1:]))\n"
    )
    arguments = ["train", str(tmp_path), "--objective", "simclr", "--out", "x"]
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
    )
    assert process.stdout.readline() == b"ready\n"
    time.sleep(0.3)
    process.send_signal(getattr(signal, name))
    _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert said.decode().strip() in ("spt: Stopped.", "") or "holds no" in said.decode()


def test_a_full_disk_names_the_file_and_what_to_do(tmp_path, monkeypatch, capsys):
    from spt_core.commands import info

    def full(*_):
        with written_whole(tmp_path / "table.csv"):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(info, "run", full)
    assert main(["info", "x"]) == 1
    said = capsys.readouterr().err
    assert "The disk is full" in said
    assert "table.csv" in said
    assert "make room" in said


class BySize(torch.nn.Module):
    """Numbers that differ by how many patches are seen at once, as those of some
    processors do in their last digits.
    """

    def forward(self, x):
        return x.mean(dim=(2, 3)) + 1e-3 * len(x)


def test_a_stopped_encode_ends_in_the_same_bits(tmp_path):
    """However often it was stopped: batches are those of a run that was not."""
    slide = make_slide(tmp_path / "s.tif", 2200, 1900)
    card = EncoderCard(name="by-size", dim=3, patch_size=64, mpp=1.0)
    encoder = TorchEncoder(BySize(), card)
    settings = EncodeSettings(
        encoder="by-size", patch_size=64, target_mpp=1.0, batch_size=24, lanes=1
    )

    def encode(name):
        return encode_slide(slide, tmp_path / name, settings, encoder=encoder)

    _, whole = run_through(encode("whole"))
    for batches in (1, 2, 3):
        events = encode("stopped")
        for event in events:
            batches -= isinstance(event, Progress)
            if batches == 0:
                break
        events.close()
    _, again = run_through(encode("stopped"))
    with h5py.File(whole.path) as a, h5py.File(again.path) as b:
        assert a["features"][:].tobytes() == b["features"][:].tobytes()
        assert a["coords"][:].tobytes() == b["coords"][:].tobytes()


def test_state_is_always_whole(tmp_path):
    folder = RunFolder(tmp_path)
    folder.write_state("running", 1, 2)
    assert json.loads((tmp_path / "state.json").read_text())["status"] == "running"
