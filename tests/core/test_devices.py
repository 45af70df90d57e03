"""Devices: what can be said without a GPU."""

import pytest
import torch

from spt_core import devices
from spt_core.errors import InputError


def test_the_best_device_is_chosen(monkeypatch):
    for cuda, mps, best in (
        (True, True, "cuda"),
        (False, True, "mps"),
        (False, False, "cpu"),
    ):
        monkeypatch.setattr(torch.cuda, "is_available", lambda answer=cuda: answer)
        monkeypatch.setattr(
            torch.backends.mps, "is_available", lambda answer=mps: answer
        )
        assert devices.choose_device().type == best


def test_a_device_that_is_not_there_is_refused(monkeypatch):
    assert devices.choose_device("cpu") == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match="cuda is not available"):
        devices.choose_device("cuda")
    with pytest.raises(InputError, match="no device 'gpu'"):
        devices.choose_device("gpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert devices.choose_device("cuda:1").index == 1
    with pytest.raises(InputError, match="has 2 GPUs"):
        devices.choose_device("cuda:2")


def test_mixed_precision_is_for_gpus_alone(monkeypatch):
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    assert devices.low_precision(cpu) is None
    with devices.autocast(cpu):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32
    assert devices.gradient_scaler(cpu) is None
    emulated, native = True, True

    def is_bf16_supported(including_emulation=True):
        return native or (emulated and including_emulation)

    monkeypatch.setattr(torch.cuda, "is_bf16_supported", is_bf16_supported)
    assert devices.low_precision(cuda) is torch.bfloat16
    assert devices.gradient_scaler(cuda) is None
    native = False  # a GPU before Ampere
    assert devices.low_precision(cuda) is torch.float16


def test_lanes_are_for_devices_with_a_queue_for_each():
    threads = torch.get_num_threads()
    assert devices.usual_lanes(torch.device("cuda")) == (2, threads)
    assert devices.usual_lanes(torch.device("mps")) == (1, threads)
    assert devices.usual_lanes(torch.device("cpu"))[0] >= 1


def test_a_cpu_needs_no_pinned_memory():
    tensor = torch.ones(3)
    assert devices.ready_to_copy(tensor, torch.device("cpu")) is tensor
    assert devices.copy_to(tensor, torch.device("cpu")) is tensor
    doubles = torch.ones(3, dtype=torch.float64)
    assert devices.copy_to(doubles, torch.device("cpu")).dtype == torch.float32
    assert devices.working_bytes(torch.device("cpu")) < 2 * devices.GIB
