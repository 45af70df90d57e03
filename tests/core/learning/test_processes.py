"""Two processes (gloo, by torchrun) against one with the same global batch."""

import json
import os
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file

from spt_core.errors import InputError
from spt_core.learning.batches import SlidePlan
from spt_core.learning.cohort import open_cohort
from spt_core.learning.slide_encoder import SlideEncoder
from spt_core.learning.views import ViewSettings
from spt_core.tokens import read_labels
from spt_core.training.objectives import build_objective
from spt_core.training.processes import Processes
from spt_core.training.run import TrainingRun
from spt_core.training.run_folder import RunFolder
from spt_core.training.step import ExactStep
from tests.core.learning.regions import write_region_cohort

CPU = torch.device("cpu")


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


OBJECTIVES = ("simclr", "vicreg", "byol", "supcon", "classify")
APART = "simclr within sites"


def gradients(folder, processes, micro_batch=None):
    """Loss and gradients of one batch of eight slides, for each objective."""
    cohort = open_cohort(folder / "features", read_labels(folder / "labels.csv"))
    found = {}
    # Two slides of each patient, and three sites.
    number = torch.arange(len(cohort))
    groups = torch.stack([number // 2, number // 4], dim=1)
    for name in (*OBJECTIVES, APART):
        torch.manual_seed(0)
        encoder = SlideEncoder(cohort.dim, dim=16, depth=2, heads=2)
        objective = build_objective(name.split()[0], encoder, classes=3)
        views = ViewSettings(views=1 if name == "classify" else 2)
        plan = SlidePlan(
            cohort, views, 8, 3, CPU, rank=processes.rank, world=processes.world
        )
        batch = plan.make(0)
        labels = torch.from_numpy(cohort.class_numbers()[batch.items])
        if name == APART:
            labels = groups[batch.items]
        compute = ExactStep(
            encoder,
            objective,
            device=CPU,
            processes=processes,
            micro_batch=micro_batch,
        )
        loss = compute(batch, labels)["loss"]
        found[f"{name} loss"] = loss
        for part in (encoder, objective):
            for key, weight in part.named_parameters():
                if weight.grad is not None:
                    found[f"{name} {key}"] = weight.grad
    return found


def one_of_two(rank, folder):
    torch.set_num_threads(1)
    meeting = (folder / "meeting").as_uri()
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2)
    save_file(gradients(folder, Processes(rank, 2)), folder / f"rank{rank}.safetensors")
    dist.destroy_process_group()


def test_two_processes_have_the_gradient_of_one(cohort):
    """Every objective: negatives, covariances and batch statistics of all slides."""
    alone = gradients(cohort, Processes())
    torch.multiprocessing.spawn(one_of_two, (cohort,), nprocs=2)
    for rank in (0, 1):
        together = load_file(cohort / f"rank{rank}.safetensors")
        assert together.keys() == alone.keys()
        for name, expected in alone.items():
            scale = max(1.0, float(expected.abs().max()))
            torch.testing.assert_close(
                together[name] / scale, expected / scale, atol=2e-5, rtol=1e-4
            )


def test_small_bits_have_the_gradient_of_the_whole_batch(cohort):
    alone, bits = (gradients(cohort, Processes(), size) for size in (None, 3))
    for name, expected in alone.items():
        scale = max(1.0, float(expected.abs().max()))
        torch.testing.assert_close(
            bits[name] / scale, expected / scale, atol=2e-5, rtol=1e-4
        )
    assert alone[f"{APART} loss"] < alone["simclr loss"]  # fewer are kept apart


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="torchrun needs libuv on Windows")
def test_two_processes_train_the_model_of_one(cohort, tmp_path):
    alone = run_command(cohort, tmp_path / "one", "simclr", 1)
    together = run_command(cohort, tmp_path / "two", "simclr", 2)
    # one process speaks: the same events, not twice as many
    assert [e["event"] for e in alone] == [e["event"] for e in together]
    for one, other in zip(alone, together, strict=True):
        if one["event"] == "epoch":
            assert one["loss"] == pytest.approx(other["loss"], rel=1e-4)
    one, two = (
        load_file(tmp_path / name / "last.safetensors") for name in ("one", "two")
    )
    for name, tensor in one.items():
        # The heads' BatchNorm takes any shift of h away, so that the gradient of the
        # last bias is rounding alone, of which AdamW makes whole steps.
        if name.startswith("encoder.") and name != "encoder.norm.bias":
            # four steps of AdamW, whose steps are of the size of the learning rate
            torch.testing.assert_close(tensor, two[name], atol=2e-4, rtol=1e-3)


def test_a_lost_process_stops_the_others_with_a_sentence(tmp_path, monkeypatch):
    """As a stop does: what is done is kept, also where the keeping needs the others."""

    def lost(*_):
        raise RuntimeError(
            "[/x/pair.cc:561] Connection closed by peer [127.0.0.1]:39828. GLHF!"
        )

    monkeypatch.setattr(dist, "barrier", lost)
    run = TrainingRun.__new__(TrainingRun)
    run.folder, run.processes = RunFolder(tmp_path), Processes(0, 2)
    run.consistent, run.step, run.saved_step, run.steps = True, 5, 3, 9
    monkeypatch.setattr(run, "checkpoint", run.processes.wait, raising=False)
    with (
        pytest.raises(InputError, match=r"was lost.*\(Connection closed.*--resume"),
        run.recorded(),
    ):
        run.processes.wait()
    state = json.loads((tmp_path / "state.json").read_text())
    assert state["status"] == "stopped"
    assert "was lost" in state["message"]
