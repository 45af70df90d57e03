"""Devices: what can be said without a GPU."""

import pytest
import torch
import torch.distributed as dist

from spt_core import devices
from spt_core.errors import InputError
from spt_core.training.processes import joined, own_device


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


@pytest.fixture
def two_gpus(monkeypatch):
    """A computer with two GPUs, as far as questions about them go."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)


def test_an_encoder_runs_in_float16_where_the_gpu_is_faster_in_it(monkeypatch):
    cpu, mps, cuda = (torch.device(name) for name in ("cpu", "mps", "cuda"))
    assert devices.inference_precision(cpu) is None
    assert devices.inference_precision(mps) is None
    for capability, expected in (
        ((9, 0), torch.float16),
        ((8, 0), torch.float16),
        ((7, 0), torch.float16),
        ((6, 1), None),  # sixty times slower in float16
        ((6, 0), torch.float16),
        ((5, 2), None),
    ):
        monkeypatch.setattr(
            torch.cuda,
            "get_device_capability",
            lambda device, answer=capability: answer,
        )
        assert devices.inference_precision(cuda) is expected
        assert devices.inference_precision(cuda, "float32") is None
        assert devices.inference_precision(cuda, "float16") is torch.float16


def test_a_precision_that_the_device_lacks_is_refused(monkeypatch):
    cpu, mps, cuda = (torch.device(name) for name in ("cpu", "mps", "cuda"))
    assert devices.inference_precision(cpu, "bfloat16") is torch.bfloat16
    assert devices.inference_precision(mps, "float16") is torch.float16
    for device, wanted in ((cpu, "float16"), (mps, "bfloat16")):
        with pytest.raises(InputError, match="does not compute in"):
            devices.inference_precision(device, wanted)
    for able, expected in ((True, torch.bfloat16), (False, None)):
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda answer=able: answer)
        if expected:
            assert devices.inference_precision(cuda, "bfloat16") is expected
        else:
            with pytest.raises(InputError, match="--precision auto"):
                devices.inference_precision(cuda, "bfloat16")
    with pytest.raises(InputError, match="no precision 'half'"):
        devices.inference_precision(cpu, "half")


def test_training_keeps_its_own_precision(monkeypatch):
    """bfloat16 needs no scaler and is what training uses, whatever inference does."""
    monkeypatch.setattr(
        torch.cuda, "is_bf16_supported", lambda including_emulation=True: True
    )
    assert devices.low_precision(torch.device("cuda")) is torch.bfloat16


def test_precisions_have_names():
    assert devices.precision_name(None) == "float32"
    assert devices.precision_name(torch.float16) == "float16"


def test_each_worker_has_its_own_gpu(two_gpus):
    assert [devices.own_gpu("auto", n) for n in range(3)] == [
        *("cuda:0", "cuda:1", "cuda:0")
    ]
    assert devices.own_gpu("cuda", 1) == "cuda:1"
    assert devices.own_gpu("cuda:0", 1) == "cuda:0"  # asked for
    assert devices.own_gpu("cpu", 1) == "cpu"


def test_workers_without_a_gpu_stay_where_they_are(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert devices.own_gpu("auto", 1) == "auto"


def test_cudnn_tries_algorithms_only_while_shapes_are_fixed():
    assert not torch.backends.cudnn.benchmark
    with devices.fixed_shapes(torch.device("cuda")):
        assert torch.backends.cudnn.benchmark
    assert not torch.backends.cudnn.benchmark
    with devices.fixed_shapes(torch.device("cpu")):
        assert not torch.backends.cudnn.benchmark
    torch.use_deterministic_algorithms(True)
    try:
        with devices.fixed_shapes(torch.device("cuda")):
            assert not torch.backends.cudnn.benchmark
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("memory", [5, 64])  # GiB
@pytest.mark.parametrize("heads", [1, 3, 4, 64])
@pytest.mark.parametrize("tokens", [2, 16_383, 16_384, 16_385, 20_001, 90_000])
def test_attention_on_mps_forms_no_array_of_4_gib(monkeypatch, memory, heads, tokens):
    mps = torch.device("mps")
    monkeypatch.setattr(
        torch.mps, "recommended_max_memory", lambda: memory * devices.GIB
    )
    rows = devices.attention_rows(mps, heads, tokens)
    assert 1 <= rows <= tokens
    size = 4 * heads * rows * tokens
    assert size < 2**32
    assert size <= memory * devices.GIB * devices.WORKING_SHARE / 2
    if memory == 64 and rows < tokens:  # and not many fewer than there is room for
        assert size + 4 * heads * tokens >= 2**32
    for other in ("cpu", "cuda"):
        assert devices.attention_rows(torch.device(other), heads, tokens) == tokens


TINY, SMALL, PAPER_2, PAPER = 21_900, 1_061_004, 6_655_628, 19_259_020


@pytest.mark.parametrize(
    ("waiting", "expected"),
    [
        (None, {TINY: 1, SMALL: 1, PAPER_2: 3, PAPER: 8}),  # they spin
        ("ACTIVE", {TINY: 1, SMALL: 1, PAPER_2: 3, PAPER: 8}),
        ("PASSIVE", {TINY: 1, SMALL: 4, PAPER_2: 8, PAPER: 8}),
    ],
)
def test_a_model_is_trained_by_the_threads_it_can_use(monkeypatch, waiting, expected):
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    if waiting:
        monkeypatch.setenv("OMP_WAIT_POLICY", waiting)
    before = torch.get_num_threads()
    torch.set_num_threads(8)
    try:
        for weights, threads in expected.items():
            assert devices.training_threads(weights) == threads
        torch.set_num_threads(1)  # somebody's choice
        assert devices.training_threads(PAPER) == 1
    finally:
        torch.set_num_threads(before)


def test_other_work_within_training_has_all_threads():
    cpu = torch.device("cpu")
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        with devices.all_threads(cpu):
            assert torch.get_num_threads() == 4
        with devices.useful_threads(cpu, TINY):
            assert torch.get_num_threads() == 1
            with devices.all_threads(cpu):
                assert torch.get_num_threads() == 4
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 4
        with devices.useful_threads(torch.device("cuda"), 1_000_000):
            assert torch.get_num_threads() == 4
    finally:
        torch.set_num_threads(before)


@pytest.fixture
def joining(monkeypatch):
    """Write down how processes are joined, without joining any."""
    done = []
    monkeypatch.setattr(torch.cuda, "set_device", lambda d: done.append(("set", d)))
    monkeypatch.setattr(dist, "is_initialized", lambda: False)
    monkeypatch.setattr(
        dist, "init_process_group", lambda *a, **k: done.append(("init", a, k))
    )
    monkeypatch.setattr(dist, "get_rank", lambda: 1)
    monkeypatch.setattr(dist, "get_world_size", lambda: 2)
    monkeypatch.setattr(dist, "destroy_process_group", lambda: done.append(("end",)))
    return done


def torchrun(monkeypatch, *, local_rank, local_world):
    monkeypatch.setenv("WORLD_SIZE", str(local_world))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(local_world))
    monkeypatch.setenv("LOCAL_RANK", str(local_rank))


def test_each_process_sets_its_own_gpu_before_it_joins(joining, monkeypatch, two_gpus):
    torchrun(monkeypatch, local_rank=1, local_world=2)
    device = own_device(devices.choose_device("cuda"))
    assert device == torch.device("cuda:1")
    with joined(device) as processes:
        assert (processes.rank, processes.world) == (1, 2)
    (kind, first), (then, names, options), (end,) = joining
    assert (kind, first) == ("set", device)
    assert (then, names) == ("init", ("nccl",))
    assert options["device_id"] == device
    assert end == "end"


def test_processes_without_gpus_join_without_one(joining, monkeypatch):
    torchrun(monkeypatch, local_rank=1, local_world=2)
    with joined(own_device(torch.device("cpu"))):
        pass
    (_, names, options), _ = joining
    assert names == ("gloo",)
    assert options["device_id"] is None


def test_one_process_sets_the_gpu_that_was_asked_for(joining, two_gpus, monkeypatch):
    for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    with joined(own_device(torch.device("cuda:1"))) as processes:
        assert processes.world == 1
    assert joining == [("set", torch.device("cuda:1"))]


def test_more_processes_than_gpus_is_a_sentence(monkeypatch, two_gpus):
    torchrun(monkeypatch, local_rank=3, local_world=4)
    with pytest.raises(InputError, match="--nproc-per-node 2"):
        own_device(torch.device("cuda"))
    torchrun(monkeypatch, local_rank=1, local_world=2)
    with pytest.raises(InputError, match="cannot share cuda:0"):
        own_device(torch.device("cuda:0"))
