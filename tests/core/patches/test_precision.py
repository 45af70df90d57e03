"""In which precision an encoder runs, and on which GPU each worker's does."""

import dataclasses
import logging

import h5py
import numpy as np
import pytest
import torch
from torch import nn

from spt_core import devices, encode_slide, read_tokens
from spt_core.cli import main
from spt_core.events import Note
from spt_core.patches import EncoderCard, SlideTask, TorchEncoder, local_workers
from tests.core.patches.conftest import SETTINGS, make_slide, run_through


def stated_precision(path):
    with h5py.File(path) as file:
        return file.attrs["precision"]


def test_features_in_a_lower_precision_are_nearly_the_same(
    encoded, slide_path, tmp_path
):
    _, result, tokens = encoded
    assert stated_precision(result.path) == "float32"
    settings = dataclasses.replace(SETTINGS, device="cpu", precision="bfloat16")
    _, lower = run_through(encode_slide(slide_path, tmp_path, settings))
    assert stated_precision(lower.path) == "bfloat16"
    x = read_tokens(lower.path).x
    assert not np.array_equal(x, tokens.x)
    away = np.linalg.norm(x - tokens.x, axis=1) / np.linalg.norm(tokens.x, axis=1)
    assert np.median(away) < 0.05


class Overflows(nn.Module):
    """Too large for float16, as some large encoders' activations are."""

    def forward(self, x):
        means = x.mean(dim=(2, 3)) * 1e5
        return means.half() if torch.is_autocast_enabled("cpu") else means


def test_what_float16_cannot_hold_is_encoded_in_float32(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(devices, "inference_precision", lambda *_: torch.float16)
    card = EncoderCard(name="large", dim=3, patch_size=64, mpp=1.0)
    slide = make_slide(tmp_path / "slide.tif", 1300, 1100)
    with caplog.at_level(logging.WARNING):
        events = encode_slide(
            slide, tmp_path, SETTINGS, encoder=TorchEncoder(Overflows(), card)
        )
        _, result = run_through(events)
    x = read_tokens(result.path).x
    assert np.isfinite(x).all()
    assert np.abs(x).max() > 70_000
    assert "leaves the range of float16" in caplog.text
    assert stated_precision(result.path) == "float32"


def test_a_precision_that_the_device_lacks_is_said(slide_path, tmp_path, capsys):
    arguments = ["encode", str(slide_path), "--out", str(tmp_path), "--device", "cpu"]
    assert main([*arguments, "--precision", "float16"]) == 1
    assert "cpu does not compute in float16" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([*arguments, "--precision", "half"])


@pytest.fixture
def two_gpus(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)


def test_a_local_worker_encodes_on_its_own_gpu(two_gpus, monkeypatch, tmp_path):
    monkeypatch.setattr(local_workers._Crew, "_start", lambda *_: None)
    tasks = [SlideTask(tmp_path / "s.tif", str(i), tmp_path / "s.h5") for i in range(3)]
    crew = local_workers._Crew(tasks, SETTINGS, 3)
    used = [crew.settings_of(number).device for number in range(3)]
    assert used == ["cuda:0", "cuda:1", "cuda:0"]
    assert local_workers._Crew(tasks, SETTINGS, 1).settings_of(0).device == "auto"


def test_workers_that_share_a_gpu_are_told_so(two_gpus):
    def notes(device, workers):
        return [note.message for note in local_workers.shared_gpus(device, workers)]

    assert notes("auto", 2) == []
    assert notes("auto", 3) == ["3 workers share 2 GPUs; one worker per GPU is enough."]
    assert notes("cuda:1", 2) == [
        "2 workers share one GPU; one worker per GPU is enough."
    ]
    assert notes("cpu", 8) == []
    assert isinstance(next(local_workers.shared_gpus("cuda", 3)), Note)
