"""A made-up cohort that a tiny model learns in seconds, and models of known answers."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from spt_core import load_model
from spt_core.learning.aggregators import GatedAttention, MeanPooling
from spt_core.learning.model_card import (
    Architecture,
    ModelCard,
    TokenKind,
    TrainingSummary,
)
from spt_core.learning.model_file import SlideModel
from spt_core.learning.settings import TrainSettings
from spt_core.learning.training import train
from spt_core.tokens import write_tokens
from tests.events import run_through
from tests.made_tokens import DIM, FACTS, grid_tokens


@pytest.fixture(autouse=True, scope="package")
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def made_slide(kind, rng, *, n=144, shift=0.0):
    """Tokens of which every fourth shows the class; all others are alike."""
    x = rng.normal(size=(n, DIM))
    shows = np.arange(n) % 4 == 0
    x[shows, kind] += 4.0
    return (x + shift).astype(np.float32), shows


def write_cohort(folder, slides=28, seed=0, prefix="slide", people="person"):
    rng = np.random.default_rng(seed)
    lines = ["slide,label,patient"]
    for number in range(slides):
        x, _ = made_slide(number % 2, rng)
        name = f"{prefix}{number:03d}"
        tokens = grid_tokens(x, name=name, slide_fingerprint=f"{seed}-{number}")
        write_tokens(folder / "features" / f"{name}.h5", tokens)
        lines.append(f"{name},{'ab'[number % 2]},{people}{number // 2}")
    (folder / "labels.csv").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """The folder of a cohort, with a run that learned it."""
    folder = write_cohort(tmp_path_factory.mktemp("insight"))
    settings = TrainSettings(
        features=str(folder / "features"),
        labels=str(folder / "labels.csv"),
        objective="classify",
        out=str(folder / "run"),
        model="small",
        architecture={"dim": 32, "depth": 2, "heads": 2},
        epochs=24,
        batch_size=7,
        learning_rate=5e-3,
        device="cpu",
        validate_epochs=10_000,
        checkpoint_steps=10_000,
    )
    for _ in train(settings):
        pass
    return folder


@pytest.fixture(scope="session")
def model_path(trained):
    return trained / "run" / "last.safetensors"


@pytest.fixture
def model(model_path):
    return load_model(model_path)


def made_card(dim=DIM, *, facts=FACTS, **more):
    """The card of a model that takes the made-up tokens."""
    return ModelCard(
        architecture=Architecture("mean", {"in_dim": dim}),
        tokens=TokenKind.of(facts, dim),
        training=TrainingSummary(slides=50),
        classes=("a", "b"),
        **more,
    )


def changed(model, **more):
    """Put something else on a model's card."""
    model.card = replace(model.card, **more)


def trained_otherwise(model, **more):
    """Put something else on a model's card, of its training."""
    changed(model, training=replace(model.card.training, **more))


def classifier_of_first_feature(dim, scale=4.0):
    """Class a where the embedding's first number is above 0, else b."""
    head = torch.nn.Linear(dim, 2)
    with torch.no_grad():
        head.weight.zero_()
        head.bias.zero_()
        head.weight[0, 0], head.weight[1, 0] = scale, -scale
    return head


@pytest.fixture
def mean_model():
    """Says a where the mean of the tokens' first feature is above 0."""
    return SlideModel(MeanPooling(DIM), made_card(), classifier_of_first_feature(DIM))


@pytest.fixture
def looking_model():
    """Attends to tokens with a large second feature, and decides by their first."""
    encoder = GatedAttention(DIM, dim=DIM, hidden=1)
    with torch.no_grad():
        for weight in encoder.parameters():
            weight.zero_()
        encoder.input[0].weight.copy_(torch.eye(DIM))
        encoder.value.weight[0, 1] = 1.0
        encoder.gate.bias.fill_(10.0)
        encoder.score.weight.fill_(8.0)
    head = classifier_of_first_feature(DIM)
    with torch.no_grad():
        head.bias.copy_(torch.tensor([-4.0, 4.0]))
    return SlideModel(encoder, made_card(), head)


@pytest.fixture
def no_double_on_the_device(monkeypatch):
    """As on MPS: double precision only of what has come back by ``.cpu()``.

    The CPU plays the device, so what comes back is marked.
    """
    plain_double, plain_to = torch.Tensor.double, torch.Tensor.to

    def cpu(tensor):
        back = tensor.detach().clone()
        back.came_back = True
        return back

    def double(tensor):
        if not hasattr(tensor, "came_back"):
            raise TypeError("double precision on the device")
        return plain_double(tensor)

    def to(tensor, *args, **more):
        if tensor.dtype is torch.float64:
            raise TypeError("double precision goes to the device")
        return plain_to(tensor, *args, **more)

    monkeypatch.setattr(torch.Tensor, "cpu", cpu)
    monkeypatch.setattr(torch.Tensor, "double", double)
    monkeypatch.setattr(torch.Tensor, "to", to)


def finish(events):
    """What a generator returns, and the events on the way."""
    seen, result = run_through(events)
    return result, seen
