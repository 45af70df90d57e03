"""Training the aggregators that slide models are compared with."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from spt_core.errors import InputError
from spt_core.events import Note
from spt_core.learning import bags
from spt_core.learning import finish as finishing
from spt_core.learning.aggregators import build_encoder
from spt_core.learning.batches import SlidePlan, graph_floats
from spt_core.learning.cohort import open_cohort
from spt_core.learning.finish import build_for
from spt_core.learning.model_card import read_model_card
from spt_core.learning.model_file import load_model
from spt_core.learning.settings import TrainSettings
from spt_core.learning.task import Epoch
from spt_core.learning.training import resume, train
from spt_core.learning.views import ViewSettings
from spt_core.tokens import TokenFacts, Tokens, read_labels, write_tokens
from spt_core.training.objectives import build_objective
from spt_core.training.processes import Processes
from spt_core.training.step import ExactStep
from tests.core.learning.runs import assert_bitwise, stop_after, tiny
from tests.events import run_through as finish

CPU = torch.device("cpu")
SMALL = {
    "abmil": {"dim": 16, "dropout": 0.25},
    "clam": {"dim": 16},
    "dsmil": {"dim": 16},
    "transmil": {"dim": 16, "heads": 2},
    "hipt": {"dim": 24, "depth": 2, "heads": 2, "dropout": 0.05},
}
NAMES = sorted(SMALL)
WHOLE = ViewSettings(views=1, crop=False, mask=False)


def baseline(cohort, out, model, **changes):
    plain = tiny(cohort, out, "classify", model=model, architecture=SMALL[model])
    return replace(plain, **changes)


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """Three classes, told by a tenth of the tokens."""
    folder = tmp_path_factory.mktemp("planted")
    rng = np.random.default_rng(0)
    kinds = rng.normal(size=(3, 16))
    lines = ["slide,label"]
    for number in range(12):
        n = int(rng.integers(60, 120))
        x = rng.normal(size=(n, 16))
        x[rng.permutation(n)[: n // 10]] += 3 * kinds[number % 3]
        p = np.stack(np.divmod(np.sort(rng.permutation(900)[:n]), 30), axis=1)
        facts = TokenFacts(
            encoder="made-up", mpp=0.5, patch_size=256, l0_patch_xy=(256, 256)
        )
        tokens = Tokens(x.astype("f4"), p, p[:, ::-1] * 256, facts)
        write_tokens(folder / "features" / f"s{number:02d}.h5", tokens)
        lines.append(f"s{number:02d},{'abc'[number % 3]}")
    (folder / "labels.csv").write_text("\n".join(lines) + "\n")
    return folder


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name in ("transmil", "hipt")))
        for name in NAMES
    ],
)
def test_three_classes_are_learned_from_a_tenth_of_the_tokens(planted, tmp_path, model):
    epochs, rate = (24, 3e-3) if model == "hipt" else (16, 1e-2)
    run = baseline(
        planted,
        tmp_path / "run",
        model,
        epochs=epochs,
        learning_rate=rate,
        validate_epochs=epochs,
        checkpoint_steps=100,
    )
    events, result = finish(train(run))
    losses = [event.loss for event in events if isinstance(event, Epoch)]
    assert np.mean(losses[-3:]) < 0.6 * losses[0]
    model_file = load_model(result.last)
    assert model_file.classes == ["a", "b", "c"]
    cohort = open_cohort(planted / "features", read_labels(planted / "labels.csv"))
    right = 0
    for slide, y in zip(cohort, cohort.class_numbers(), strict=True):
        x, p = torch.from_numpy(slide.tokens()), torch.from_numpy(slide.p)
        with torch.no_grad():
            scores = model_file.logits(model_file.encoder.attend(x, p).h)
        right += int(scores.argmax() == y)
    assert right >= 10
    said = " ".join(event.message for event in events if isinstance(event, Note))
    assert f"{model} sees whole slides" in said
    assert not read_model_card(result.last).views.crop


@pytest.mark.slow
@pytest.mark.parametrize("model", ["hipt"])
def test_a_stopped_run_draws_the_same_dropout_when_it_goes_on(planted, tmp_path, model):
    _, straight = finish(train(baseline(planted, tmp_path / "straight", model)))
    stop_after(train(baseline(planted, tmp_path / "run", model)), 4)
    torch.rand(7)  # whatever was drawn in between
    _, result = finish(resume(tmp_path / "run"))
    assert_bitwise(result.last, straight.last)


# gradients


@pytest.fixture(scope="module")
def open_planted(planted):
    return open_cohort(planted / "features", read_labels(planted / "labels.csv"))


def gradients(cohort, model, *, micro_batch=None, chunk=1, step=0):
    torch.manual_seed(0)
    options = {"classes": 3} if model in ("clam", "dsmil") else {}
    encoder = build_encoder(model, cohort.dim, **SMALL[model], **options)
    objective = build_objective("classify", encoder, classes=3)
    plan = SlidePlan(cohort, WHOLE, 12, seed=3, device=CPU, chunk=chunk)
    compute = ExactStep(
        encoder,
        objective,
        device=CPU,
        processes=Processes(),
        graph_floats=partial(graph_floats, encoder),
        micro_batch=micro_batch,
    )
    batch = plan.make(step)
    torch.rand(step + chunk)  # what has been drawn before does not matter
    loss = compute(batch, torch.from_numpy(cohort.class_numbers()[batch.items]))["loss"]
    named = [*encoder.named_parameters(), *objective.named_parameters()]
    return float(loss), {name: weight.grad.clone() for name, weight in named}


@pytest.mark.parametrize("model", NAMES)
def test_micro_batches_have_the_gradient_of_one_pass(open_planted, model):
    """Own losses and dropout included: the second pass draws what the first drew."""
    loss, whole = gradients(open_planted, model)
    others = [{"micro_batch": 4}]
    if model == "dsmil":  # which draws nothing, so that padding may be anything
        others += [{"chunk": 1000}, {"chunk": 5, "micro_batch": 2}]
    for changes in others:
        its_loss, parts = gradients(open_planted, model, **changes)
        assert its_loss == pytest.approx(loss, rel=1e-5)
        for name, gradient in whole.items():
            torch.testing.assert_close(parts[name], gradient, atol=2e-5, rtol=1e-3)


def test_dropout_is_other_in_each_step(open_planted):
    """Of the same slides, whose views are all of their tokens."""
    losses = {gradients(open_planted, "abmil", step=step)[0] for step in range(3)}
    assert len(losses) == 3
    losses = [gradients(open_planted, "dsmil", step=step)[0] for step in range(3)]
    assert losses == pytest.approx([losses[0]] * 3, rel=1e-5)


def test_two_ranks_draw_what_one_process_draws(open_planted):
    torch.manual_seed(0)
    encoder = build_encoder("abmil", open_planted.dim, **SMALL["abmil"])
    objective = build_objective("classify", encoder, classes=3)

    def embedded(rank, world):
        plan = SlidePlan(open_planted, WHOLE, 12, 3, CPU, 1, rank, world)
        processes = Processes(rank, world)
        compute = ExactStep(encoder, objective, device=CPU, processes=processes)
        with torch.no_grad():
            return compute._embed(plan.make(5))

    both = torch.cat([embedded(0, 2), embedded(1, 2)], dim=1)
    torch.testing.assert_close(both, embedded(0, 1))


def test_views_are_not_padded_where_dropout_is_drawn(planted, tmp_path, monkeypatch):
    """Crops too, which others are given many at a time."""
    sizes, make = [], SlidePlan.make

    def watched(self, step):
        batch = make(self, step)
        sizes.extend(chunk.inputs[-1].shape for chunk in batch.chunks)
        assert all(chunk.inputs[-1].all() for chunk in batch.chunks)
        return batch

    monkeypatch.setattr(SlidePlan, "make", watched)
    views = ViewSettings(max_tokens=20)
    finish(train(baseline(planted, tmp_path / "run", "abmil", epochs=1, views=views)))
    assert {size[0] for size in sizes} == {1}
    assert len({size[1] for size in sizes}) > 1


# what is refused, limited or left alone


@pytest.mark.parametrize("model", ["clam", "dsmil"])
def test_models_with_classes_learn_by_classify_alone(planted, tmp_path, model):
    with pytest.raises(InputError, match=f"{model} has a loss of its own"):
        baseline(planted, tmp_path, model, objective="simclr")
    _, first = finish(train(baseline(planted, tmp_path / "first", model, epochs=1)))
    assert load_model(first.last).encoder.config["classes"] == 3
    tuned = tiny(planted, tmp_path / "second", "supcon", init=str(first.last))
    with pytest.raises(InputError, match="train it with the objective classify"):
        finish(train(tuned))
    two = planted / "features", tmp_path / "two.csv"
    lines = (planted / "labels.csv").read_text().replace(",c", ",b")
    two[1].write_text(lines)
    tuned = tiny(
        planted,
        tmp_path / "third",
        "classify",
        init=str(first.last),
        labels=str(two[1]),
    )
    with pytest.raises(InputError, match=f"a {model} model of 3 classes"):
        finish(train(tuned))


def test_a_new_hipt_starts_from_weights_of_regions(open_planted, tmp_path):
    source = build_encoder("hipt", 16, **SMALL["hipt"])
    save_file(source.region.state_dict(), tmp_path / "regions.safetensors")
    settings = TrainSettings(
        "x",
        "classify",
        "y",
        labels="l.csv",
        model="hipt",
        architecture=SMALL["hipt"],
        region_weights=str(tmp_path / "regions.safetensors"),
    )
    encoder, _ = build_for(settings, open_planted)
    for name, weight in encoder.region.state_dict().items():
        assert torch.equal(weight, source.region.state_dict()[name]), name
    with pytest.raises(InputError, match="Only a new model 'hipt'"):
        replace(settings, model="abmil")


def test_a_frozen_encoder_drops_nothing(planted, tmp_path):
    """The classifier learns from the embeddings that are used with it."""
    _, first = finish(train(baseline(planted, tmp_path / "first", "abmil", epochs=1)))
    start = {"init": str(first.last), "freeze": True, "epochs": 3}
    events, one = finish(train(tiny(planted, tmp_path / "one", "classify", **start)))
    assert_bitwise(one.last, first.last)
    encoder = load_model(first.last).encoder
    assert encoder.has_dropout
    card = read_model_card(one.last)
    assert card.architecture.options["dropout"] == 0.25
    losses = [event.loss for event in events if isinstance(event, Epoch)]
    plain = build_encoder("abmil", 16, dim=16, dropout=0.0)
    plain.load_state_dict(encoder.state_dict())
    settings = tiny(planted, tmp_path / "two", "classify", **start)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            finishing,
            "load_model",
            lambda path: replace(load_model(path), encoder=plain),
        )
        events, _ = finish(train(settings))
    assert losses == [event.loss for event in events if isinstance(event, Epoch)]


def test_a_slide_whose_graph_does_not_fit_is_seen_in_part(
    planted, tmp_path, monkeypatch
):
    encoder = build_encoder("transmil", 16, **SMALL["transmil"])
    enough = 4 * (50 * encoder.token_floats + encoder.slide_floats) + 1
    monkeypatch.setattr(bags, "working_bytes", lambda device: enough)
    run = baseline(planted, tmp_path / "run", "transmil", epochs=1)
    events, result = finish(train(run))
    said = " ".join(event.message for event in events if isinstance(event, Note))
    assert "transmil sees at most 50 tokens of a slide" in said
    assert "12 of 12 slides have more" in said
    views = read_model_card(result.last).views
    assert (views.crop, views.mask, views.max_tokens) == (False, True, 50)


@pytest.mark.parametrize("model", NAMES)
def test_the_memory_of_a_graph_is_about_what_is_foretold(model):
    """Numbers that autograd keeps, against what batches are planned by."""
    encoder, n = build_encoder(model, 64), 600
    kept = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    x = torch.randn(1, n, 64)
    p = torch.stack([torch.arange(n) // 32, torch.arange(n) % 32], dim=1)[None]
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        result = encoder.for_objective(x, p)
    for known in (x, *encoder.parameters()):
        kept.pop(known.untyped_storage().data_ptr(), None)
    found = sum(kept.values()) / 4
    foretold = encoder.token_floats * n + encoder.slide_floats
    assert 0.4 * foretold < found < 1.1 * foretold
    assert result.requires_grad


def test_settings_name_them_all():
    for model in NAMES:
        settings = TrainSettings("x", "classify", "y", labels="l.csv", model=model)
        assert settings.model == model
    with pytest.raises(InputError):
        TrainSettings("x", "classify", "y", labels="l.csv", model="other")
