"""The exact gradient: micro-batches, chunks, processes and lack of memory."""

from functools import partial

import numpy as np
import pytest
import torch

import spt_core.training.step as step_module
from spt_core.devices import is_out_of_memory, with_back_off
from spt_core.learning.batches import SlidePlan, graph_floats
from spt_core.learning.cohort import open_cohort
from spt_core.learning.slide_encoder import SlideEncoder
from spt_core.learning.views import ViewSettings
from spt_core.tokens import read_labels
from spt_core.training.batch import made_ahead
from spt_core.training.objectives import build_objective
from spt_core.training.processes import Processes
from spt_core.training.step import ExactStep
from tests.core.learning.regions import write_region_cohort

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def cohort(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cohort")
    features = write_region_cohort(folder, slides=24)
    return open_cohort(features, read_labels(folder / "labels.csv"))


def gradients(cohort, name, *, micro_batch=None, chunk=64, head="batchnorm"):
    torch.manual_seed(0)
    encoder = SlideEncoder(cohort.dim, dim=16, depth=2, heads=2)
    objective = build_objective(name, encoder, classes=3, head=head)
    views = ViewSettings(views=1 if name == "classify" else 2)
    plan = SlidePlan(cohort, views, 24, seed=3, device=CPU, chunk=chunk)
    compute = ExactStep(
        encoder,
        objective,
        device=CPU,
        processes=Processes(),
        graph_floats=partial(graph_floats, encoder),
        micro_batch=micro_batch,
    )
    batch = plan.make(0)
    labels = torch.from_numpy(cohort.class_numbers()[batch.items])
    loss = compute(batch, labels)["loss"]
    named = [*encoder.named_parameters(), *objective.named_parameters()]
    return float(loss), {n: w.grad.clone() for n, w in named if w.grad is not None}


def assert_same(one, other):
    assert one[0] == pytest.approx(other[0], rel=1e-5)
    assert one[1].keys() == other[1].keys()
    for name, gradient in one[1].items():
        scale = max(1.0, float(gradient.abs().max()))
        torch.testing.assert_close(
            gradient / scale, other[1][name] / scale, atol=2e-5, rtol=1e-4
        )


@pytest.mark.parametrize("name", ["simclr", "vicreg", "byol", "supcon", "classify"])
def test_micro_batches_have_the_gradient_of_one_pass(cohort, name):
    whole = gradients(cohort, name, chunk=1000)
    assert_same(whole, gradients(cohort, name, micro_batch=5))
    assert_same(whole, gradients(cohort, name, micro_batch=1))
    assert_same(whole, gradients(cohort, name, chunk=7))


def test_one_pass_is_plain_backpropagation(cohort):
    """Against autograd through everything at once, padded in one tensor."""
    torch.manual_seed(0)
    encoder = SlideEncoder(cohort.dim, dim=16, depth=2, heads=2)
    objective = build_objective("simclr", encoder)
    plan = SlidePlan(cohort, ViewSettings(), 24, seed=3, device=CPU, chunk=1000)
    (chunk,) = plan.make(0).chunks
    h = encoder(*chunk.inputs)[chunk.places.argsort()]
    loss = objective(h.view(2, 24, 16))["loss"]
    loss.backward()
    named = [*encoder.named_parameters(), *objective.named_parameters()]
    assert_same(
        (loss.item(), {name: weight.grad for name, weight in named}),
        gradients(cohort, "simclr", chunk=5),
    )


def test_a_failing_pass_is_halved_and_the_gradient_is_the_same(cohort, monkeypatch):
    whole = gradients(cohort, "simclr")
    true_pass, sizes = ExactStep._pass, []

    def small_memory(self, chunk, encoder):
        sizes.append(len(chunk.places))
        if len(chunk.places) > 6:
            raise torch.OutOfMemoryError("out of memory")
        return true_pass(self, chunk, encoder)

    monkeypatch.setattr(step_module.ExactStep, "_pass", small_memory)
    assert_same(whole, gradients(cohort, "simclr"))
    assert max(sizes) > 6


def test_memory_that_graphs_would_not_fit_is_not_asked_for(cohort, monkeypatch):
    whole = gradients(cohort, "simclr")
    monkeypatch.setattr(step_module, "working_bytes", lambda device: 1000)
    assert_same(whole, gradients(cohort, "simclr"))


def test_a_frozen_encoder_gets_no_gradient(cohort):
    encoder = SlideEncoder(cohort.dim, dim=16, depth=1, heads=2).requires_grad_(False)
    objective = build_objective("classify", encoder, classes=3)
    compute = ExactStep(encoder, objective, device=CPU, processes=Processes())
    batch = SlidePlan(cohort, ViewSettings(views=1), 24, seed=0, device=CPU).make(0)
    compute(batch, torch.from_numpy(cohort.class_numbers()[batch.items]))
    assert all(weight.grad is None for weight in encoder.parameters())
    assert objective.classifier.weight.grad.abs().sum() > 0


def test_every_slide_is_used_once_an_epoch(cohort):
    plan = SlidePlan(cohort, ViewSettings(), 8, seed=0, device=CPU)
    for epoch in range(3):
        seen = np.concatenate([plan.slides(3 * epoch + step) for step in range(3)])
        np.testing.assert_array_equal(np.sort(seen), np.arange(24))
    assert not np.array_equal(plan.slides(0), plan.slides(3))


def test_batches_made_ahead_are_those_made_alone(cohort):
    plan = SlidePlan(cohort, ViewSettings(), 8, seed=0, device=CPU)
    with made_ahead(plan.make, 2, 7) as batches:
        for step, batch in enumerate(batches, start=2):
            alone = plan.make(step)
            np.testing.assert_array_equal(batch.items, alone.items)
            for one, other in zip(batch.chunks, alone.chunks, strict=True):
                torch.testing.assert_close(one.inputs, other.inputs, atol=0, rtol=0)


def test_two_ranks_share_the_batch_of_one(cohort):
    def views(rank, world):
        plan = SlidePlan(
            cohort, ViewSettings(), 8, seed=0, device=CPU, rank=rank, world=world
        )
        made = plan.make(1)
        share, found = 8 // world, {}
        for chunk in made.chunks:
            xs, _, masks = chunk.inputs
            for place, x, mask in zip(chunk.places, xs, masks, strict=True):
                view, slide = divmod(int(place), share)
                found[view, int(made.items[rank * share + slide])] = x[mask]
        return found

    alone, parts = views(0, 1), {**views(0, 2), **views(1, 2)}
    assert alone.keys() == parts.keys()
    for key, x in alone.items():
        torch.testing.assert_close(x, parts[key], atol=0, rtol=0)


def test_back_off_halves_until_it_works():
    tried = []

    def work(size):
        tried.append(size)
        if size > 12:
            raise RuntimeError("MPS backend out of memory (MPS allocated: 1 GB)")
        return "done"

    assert with_back_off(work, 100) == ("done", 12)
    assert tried == [100, 50, 25, 12]

    def never(size):
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(torch.OutOfMemoryError):
        with_back_off(never, 8)

    def other(size):
        raise RuntimeError("shapes do not match")

    with pytest.raises(RuntimeError, match="shapes"):
        with_back_off(other, 8)


def test_what_counts_as_out_of_memory():
    assert is_out_of_memory(MemoryError())
    assert is_out_of_memory(
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: ...")
    )
    assert not is_out_of_memory(ValueError("out of memory"))
