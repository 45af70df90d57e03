"""Two processes (gloo, by torchrun) against one with the same global batch."""

import json
import os
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file

from tests.core.learning.regions import write_region_cohort


@pytest.fixture(scope="module")
def cohort(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cohort")
    write_region_cohort(folder, slides=12)
    return folder


def run_command(cohort, out, objective, processes):
    launcher = ["-m", "spt_core"]
    if processes > 1:
        launcher = [
            *("-m", "torch.distributed.run", "--standalone"),
            *("--nproc-per-node", str(processes), *launcher),
        ]
    command = [
        *(sys.executable, *launcher, "train", str(cohort / "features")),
        *("--labels", str(cohort / "labels.csv"), "--objective", objective),
        *("--out", str(out), "--model", "small", "--dim", "16", "--heads", "2"),
        *("--epochs", "2", "--batch-size", "6", "--device", "cpu", "--json"),
        *("--learning-rate", "1e-3"),
    ]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=280,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


# BYOL has a second network and SimCLR the batch's negatives: between them all that
# travels. The others are left to the slow run.
@pytest.mark.parametrize(
    "objective",
    [
        "simclr",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("byol", "vicreg", "supcon", "classify")
        ),
    ],
)
@pytest.mark.skipif(os.name == "nt", reason="torchrun needs libuv on Windows")
def test_two_processes_train_the_model_of_one(cohort, tmp_path, objective):
    alone = run_command(cohort, tmp_path / "one", objective, 1)
    together = run_command(cohort, tmp_path / "two", objective, 2)
    # one process speaks: the same events, not twice as many
    assert [e["event"] for e in alone] == [e["event"] for e in together]
    for one, other in zip(alone, together, strict=True):
        if one["event"] == "epoch":
            assert one["loss"] == pytest.approx(other["loss"], rel=1e-4)
    one, two = (
        load_file(tmp_path / name / "last.safetensors") for name in ("one", "two")
    )
    for name, tensor in one.items():
        if name.startswith(("encoder.", "class.")):
            # four steps of AdamW, whose steps are of the size of the learning rate
            torch.testing.assert_close(tensor, two[name], atol=2e-4, rtol=1e-3)
