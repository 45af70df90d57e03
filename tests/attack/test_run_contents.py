"""Run folders whose files are whole, and hold what no run writes."""

import shutil
from collections import deque

import pytest
import torch

from spt_core.errors import InputError
from spt_core.files import written_whole
from spt_core.learning.settings import TrainSettings
from spt_core.learning.training import resume, train
from spt_core.training.run_folder import RunFolder
from tests.attack.feature_files import good_file


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    (folder / "features").mkdir()
    for number in range(4):
        good_file(folder / "features" / f"s{number}.h5", seed=number)
    settings = TrainSettings(
        features=str(folder / "features"),
        objective="simclr",
        out=str(folder / "run"),
        model="small",
        steps=2,
        checkpoint_steps=1,
    )
    deque(train(settings), maxlen=0)
    return folder / "run"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("step", -1),
        ("step", 10**9),
        ("step", "x"),
        ("ended", None),
        ("best", 3),
        ("sums", [1]),
        ("recent", "x"),
        ("encoder", {}),
        ("objective", None),
        ("optimiser", {"state": {}}),
        ("said", None),
    ],
)
def test_a_checkpoint_of_something_else_is_a_sentence(run, tmp_path, name, value):
    folder = shutil.copytree(run, tmp_path / "run")
    checkpoint = folder / "checkpoint.pt"
    content = torch.load(checkpoint, weights_only=True)
    torch.save({**content, name: value}, checkpoint)
    (folder / "checkpoint.sha256").unlink()
    with pytest.raises(InputError, match="does not fit its run"):
        deque(resume(folder), maxlen=0)


def test_metrics_that_are_no_numbers_are_left_out_of_the_curve(tmp_path):
    folder = RunFolder(tmp_path)
    rows = "step,loss,knn,site_knn\n1,2,abc,nan\n2,3,inf,x\n3,1,0.5,\n"
    folder.metrics.write_text(rows)
    folder.draw_curve()
    assert (tmp_path / "curve.png").exists()


def test_endless_metrics_come_to_an_end(tmp_path):
    folder = RunFolder(tmp_path)
    folder.metrics.write_text("step,loss\n" + "1,2\n" * 500_000)
    assert len(folder.read_metrics()) < 200_000


def test_a_folder_in_a_file_s_place_is_called_by_its_name(tmp_path):
    (tmp_path / "state.json").mkdir()
    with (
        pytest.raises(OSError, match="state") as refused,
        written_whole(tmp_path / "state.json") as temporary,
    ):
        temporary.write_text("x")
    assert refused.value.filename == str(tmp_path / "state.json")
