"""Small training runs, for whoever tests what becomes of one."""

import shutil
from dataclasses import replace

import torch
from safetensors.torch import load_file

from spt_core.events import Progress
from spt_core.learning.settings import TrainSettings

TINY = {"dim": 16, "depth": 2, "heads": 2}


def tiny(cohort, out, objective="simclr", **changes):
    plain = TrainSettings(
        features=str(cohort / "features"),
        objective=objective,
        out=str(out),
        labels=str(cohort / "labels.csv"),
        model="small",
        architecture=TINY,
        epochs=3,
        batch_size=6,
        device="cpu",
        checkpoint_steps=2,
    )
    return replace(plain, **changes)


def weights(path):
    return {n: t for n, t in load_file(path).items() if n.startswith("encoder.")}


def assert_bitwise(one, other):
    one, other = weights(one), weights(other)
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        assert torch.equal(tensor, other[name]), name


def copied(cohort, folder):
    shutil.copytree(cohort / "features", folder / "features")
    shutil.copy(cohort / "labels.csv", folder)
    return folder


def stop_after(events, step):
    """Let a run take so many steps, and cancel it."""
    for event in events:
        if isinstance(event, Progress) and event.done == step:
            break
    events.close()
