"""Batch norms over the whole batch: one pass, parts, and several processes."""

import numpy as np
import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from timm.layers import BatchNormAct2d
from torch import nn

import spt_core.training.mixing_step as mixing
from spt_core.errors import InputError
from spt_core.events import Note
from spt_core.patches.training import train_patches
from spt_core.patches.training.start import load_start
from spt_core.patches.training.task import PatchTrainingTask
from spt_core.training.batch_norms import GatheredBatchNorm, share_statistics
from spt_core.training.processes import Processes
from spt_core.training.run_folder import RunFolder
from spt_core.training.step import ExactStep
from tests.core.patches_training.made_tiles import write_tiles
from tests.core.patches_training.test_pool import opened
from tests.core.patches_training.test_train_patches import quick
from tests.events import run_through as finish

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_tiles(tmp_path_factory.mktemp("made") / "data")


def task_of(folder, processes=None, **changes):
    settings = quick(folder, folder / "run", batch_size=96, **changes).resolved(48, 0.5)
    source, _ = opened(settings)
    return PatchTrainingTask(
        settings,
        source,
        load_start(settings.arch, settings.init, 0),
        CPU,
        processes or Processes(),
        RunFolder(folder / "run"),
    )


def gradient_of(task, step=None):
    batch = task.plan.make(0)
    labels = None
    if task.labels is not None:
        labels = task.labels[torch.from_numpy(batch.items)]
    (step or task.compute)(batch, labels)
    weights = [*task.network.parameters(), *task.objective.parameters()]
    return torch.cat([w.grad.flatten() for w in weights if w.grad is not None])


def plainly(task):
    """All views in one pass, and autograd through everything."""
    batch = task.plan.make(0)
    pixels = torch.cat([chunk.inputs[0] for chunk in batch.chunks])
    h = task.network(pixels).unflatten(0, (batch.views, -1))
    labels = None
    if task.labels is not None:
        labels = task.labels[torch.from_numpy(batch.items)]
    task.objective(h, labels=labels)["loss"].backward()
    weights = [*task.network.parameters(), *task.objective.parameters()]
    return torch.cat([w.grad.flatten() for w in weights if w.grad is not None])


def cosine(one, other):
    return float(torch.nn.functional.cosine_similarity(one, other, dim=0))


@pytest.mark.parametrize("method", ["simclr", "hidisc"])
def test_the_gradient_is_the_whole_batchs(folder, method):
    """Chunks of 64 of its 192 views, each with its own statistics, are not enough."""
    want = plainly(task_of(folder, method=method))
    task = task_of(folder, method=method)
    have = gradient_of(task)
    torch.testing.assert_close(have, want, rtol=1e-4, atol=1e-6)
    assert task.compute.remarks == []
    other = task_of(folder, method=method)
    chunked = ExactStep(
        other.network, other.objective, device=CPU, processes=Processes()
    )
    assert cosine(gradient_of(other, chunked), want) < 0.999


def test_parts_are_said_and_hold_no_two_views_of_a_patch(folder):
    task = task_of(folder, micro_batch=32)
    batch = task.plan.make(0)
    parts = list(task.compute._passes(batch, 32))
    assert len(parts) == 6
    found = torch.cat([part.places for part in parts])
    assert sorted(found.tolist()) == list(range(192))
    pixels = torch.cat([chunk.inputs[0] for chunk in batch.chunks])
    sets = []
    for part in parts:
        patches = [place % 96 for place in part.places.tolist()]
        assert len(set(patches)) == len(patches)
        sets.append(frozenset(patches))
        assert torch.equal(part.inputs[0], pixels[part.places])
    assert len(set(sets)) == len(sets)  # nor do the views share their company
    gradient_of(task)
    (remark,) = task.compute.remarks
    assert "see 32 views at a time, not all 192" in remark
    assert "not that of the whole batch" in remark


def test_a_run_says_that_its_batches_are_parted(folder, tmp_path):
    for name, changes in (("parts", {"micro_batch": 8}), ("whole", {})):
        events, _ = finish(
            train_patches(quick(folder, tmp_path / name, epochs=1, **changes))
        )
        said = [e for e in events if isinstance(e, Note) and "whole batch" in e.message]
        assert len(said) == (name == "parts")


def test_running_statistics_move_once_a_step(folder):
    task = task_of(folder, micro_batch=48)
    seen = []
    task.network.module[1].register_forward_hook(
        lambda module, *_: seen.append(module.running_mean.clone())
    )
    gradient_of(task)
    assert len(seen) == 8  # four parts, embedded and gone back through
    assert all(torch.equal(one, seen[3]) for one in seen[3:])
    assert not torch.equal(seen[2], seen[3])


def test_lack_of_memory_makes_parts_of_one_batch(folder, monkeypatch):
    task = task_of(folder)
    true_pass = ExactStep._pass

    def small_memory(self, chunk, encoder):
        if len(chunk.places) > 50:
            raise torch.OutOfMemoryError("out of memory")
        return true_pass(self, chunk, encoder)

    monkeypatch.setattr(ExactStep, "_pass", small_memory)
    have = gradient_of(task)
    assert task.compute.size == 48
    assert len(task.compute.remarks) == 1
    want = gradient_of(task_of(folder, micro_batch=48))
    torch.testing.assert_close(have, want)
    monkeypatch.setattr(mixing, "SMALLEST", 100)
    with pytest.raises(InputError, match="--statistics frozen"):
        gradient_of(task_of(folder))


def test_the_estimate_of_memory_chooses_the_parts(folder):
    task = task_of(folder)
    batch = task.plan.make(0)
    task.compute.budget = int(4 * task._graph_floats(batch) / 3)
    gradient_of(task)
    assert task.compute.size == 64


@pytest.mark.parametrize(
    ("device", "kind"), [("cuda", nn.SyncBatchNorm), ("cpu", GatheredBatchNorm)]
)
def test_which_batch_norms_processes_share(device, kind):
    module = nn.Sequential(
        nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.Sequential(BatchNormAct2d(4))
    )
    names = set(module.state_dict())
    shared = share_statistics(module, torch.device(device))
    assert isinstance(shared[1], kind)
    assert isinstance(shared[2][0], kind)
    assert set(shared.state_dict()) == names


def one_of_two(rank, folder):
    torch.set_num_threads(1)
    meeting = (folder / "meeting").as_uri()
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2)
    found = {}
    for micro_batch in (None, 16):
        task = task_of(folder, Processes(rank, 2), micro_batch=micro_batch)
        gradient = gradient_of(task)
        found |= {f"gradient {micro_batch}": gradient}
        if micro_batch is None:
            running = task.network.module[4].running_var
            found |= {"running": running, "eval": features(task)}
    save_file(found, folder / f"rank{rank}.safetensors")
    dist.destroy_process_group()


def features(task):
    pixels = np.random.default_rng(0).integers(0, 255, (4, 3, 40, 40))
    with torch.no_grad():
        return task.network.eval()(torch.from_numpy(pixels))


@pytest.mark.slow
def test_two_processes_have_the_statistics_and_the_gradient_of_one(folder):
    alone = task_of(folder)
    want = gradient_of(alone)
    torch.multiprocessing.spawn(one_of_two, (folder,), nprocs=2)
    for rank in (0, 1):
        found = load_file(folder / f"rank{rank}.safetensors")
        have = found["gradient None"]
        assert cosine(have, want) > 0.999999
        torch.testing.assert_close(have, want, rtol=1e-3, atol=1e-5)
        running = alone.network.module[4].running_var
        torch.testing.assert_close(found["running"], running, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(found["eval"], features(alone), rtol=1e-3, atol=1e-5)
        assert found["gradient 16"].isfinite().all()
