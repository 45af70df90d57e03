"""Numbers that are read some steps later, and a step that is skipped on the device."""

import math

import pytest
import torch

from spt_core.training.lagged import EVERY_ON_GPU, LaggedScalars, skip_unless_finite

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def test_without_a_gpu_every_step_is_read_at_once():
    lagged = LaggedScalars(CPU)
    lagged.put(7, {"loss": torch.tensor(1.5), "norm": torch.tensor(2.0)})
    assert list(lagged.due()) == [(7, {"loss": 1.5, "norm": 2.0})]
    assert list(lagged.due()) == list(lagged.all()) == []
    assert LaggedScalars(torch.device("mps")).every == 1


def test_on_a_gpu_many_steps_are_read_together():
    lagged = LaggedScalars(CUDA)
    assert lagged.every == EVERY_ON_GPU
    read = []
    for step in range(2 * EVERY_ON_GPU + 3):
        lagged.put(step, {"loss": torch.tensor(float(step))})
        found = list(lagged.due())
        assert len(found) in (0, EVERY_ON_GPU)
        read += found
    assert len(read) == 2 * EVERY_ON_GPU
    read += lagged.all()  # before a checkpoint, and at the end
    assert read == [(s, {"loss": float(s)}) for s in range(2 * EVERY_ON_GPU + 3)]


def test_steps_may_have_other_numbers_and_half_precision():
    lagged = LaggedScalars(CPU, every=2)
    lagged.put(1, {"loss": torch.tensor(0.5).half()})
    lagged.put(2, {"loss": torch.tensor(math.inf), "away": torch.tensor(3)})
    assert list(lagged.due()) == [
        (1, {"loss": 0.5}),
        (2, {"loss": math.inf, "away": 3.0}),
    ]


def test_nothing_waits_for_a_step_until_it_is_due():
    """On fake tensors reading a value raises: putting one must not."""
    from torch._subclasses.fake_tensor import (
        DataDependentOutputException,
        FakeTensorMode,
    )

    lagged = LaggedScalars(CUDA, every=2)
    with FakeTensorMode():
        lagged.put(1, {"loss": torch.ones((), device="cuda")})
        assert list(lagged.due()) == []
        lagged.put(2, {"loss": torch.ones((), device="cuda")})
        with pytest.raises((DataDependentOutputException, RuntimeError)):
            list(lagged.due())


def steps(*losses):
    """A weight after steps, of which those with a loss that is not finite go wrong."""
    weight = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
    optimiser = torch.optim.AdamW([weight], lr=0.1, fused=True)
    for loss in losses:
        weight.grad = torch.tensor([0.5, -0.5]) * loss
        skip_unless_finite(optimiser, torch.tensor(loss), weight.grad.norm())
        optimiser.step()
    return weight.detach(), optimiser.state[weight]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_step_that_is_not_finite_changes_nothing(bad):
    weight, state = steps(1.0, bad, 0.5)
    expected, expected_state = steps(1.0, 0.5)
    assert torch.equal(weight, expected)
    for name, value in expected_state.items():
        assert torch.equal(state[name], value)


def test_only_a_fused_optimiser_can_skip():
    plain = torch.optim.AdamW([torch.nn.Parameter(torch.ones(1))], fused=False)
    with pytest.raises(ValueError, match="fused"):
        skip_unless_finite(plain, torch.tensor(1.0))
