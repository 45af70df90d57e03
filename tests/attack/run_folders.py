"""Folders of training runs with something broken in them."""

import random
import shutil

import torch

from spt_core.learning.settings import TrainSettings
from spt_core.training.run_folder import RunFolder, key_in

FILES = (
    "config.yaml",
    "metrics.csv",
    "checkpoint.pt",
    "checkpoint-before.pt",
    "checkpoint.sha256",
    "patients.key",
)


def good_run(path):
    folder = RunFolder(path)
    settings = TrainSettings(features="f", objective="simclr", out=str(path))
    folder.begin(settings)
    for step in (1, 2):
        folder.save_checkpoint({"step": step, "w": torch.arange(100) * step})
        folder.add_metrics({"step": step, "loss": 0.5, "knn": None})
    folder.patient_key()
    return path


def cases(folder, seed, count):
    rng = random.Random(seed)
    good = good_run(folder / "good")
    for number in range(count):
        target = folder / f"run{number}"
        shutil.copytree(good, target)
        name = rng.choice(FILES)
        path = target / name
        content = bytearray(path.read_bytes())
        way = rng.randrange(4)
        if way == 0:
            content = content[: rng.randrange(len(content))]
        elif way == 1:
            for _ in range(rng.choice([1, 5])):
                content[rng.randrange(len(content))] = rng.randrange(256)
        elif way == 2:
            content = bytearray(rng.choice([b"", b"\0" * 50, b"[" * 9000, b"a: &a *a"]))
        else:
            path.unlink()
        if way != 3:
            path.write_bytes(content)
        how = ("cut", "bytes", "replaced", "removed")[way]
        yield f"{seed}/{number} {name} {how}", lambda target=target: go_on(target)


def go_on(path):
    """Read all that going on with a run reads; whether it is sound."""
    folder = RunFolder(path)
    TrainSettings.read(folder.config)
    with folder.held():
        key = key_in(path)
        saved = folder.load_checkpoint(torch.device("cpu"))
        folder.drop_metrics_after(9)
        folder.draw_curve()
    right = saved is None or bool(
        (saved["w"] == torch.arange(100) * saved["step"]).all()
    )
    return right and (key is None or len(key) >= 16)
