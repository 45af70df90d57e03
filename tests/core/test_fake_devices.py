"""Every forward pass on tensors of a GPU that is not there.

Fake tensors have a shape, a type and a device but no values: an operation on tensors of
two devices fails on them as it would on a GPU. Precision, memory and whatever else only
a device can answer is tested as logic in ``test_devices.py``.
"""

import copy
from contextlib import contextmanager

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._subclasses.fake_tensor import (
    FakeTensorDeviceMismatchError,
    FakeTensorMode,
)

from spt_core import bundled, devices
from spt_core.devices import copy_to
from spt_core.insight.class_map import window_embeddings
from spt_core.insight.predicting import device_of
from spt_core.insight.windows import WindowSettings, slide_windows
from spt_core.learning import hipt, padding, slide_encoder
from spt_core.learning.aggregators import AGGREGATORS, build_encoder
from spt_core.learning.model_file import load_model
from spt_core.learning.slide_encoder import Attention
from spt_core.learning.statistics import distance
from spt_core.patches.encoder import EncoderCard, TorchEncoder
from spt_core.patches.registry import build_module, load_encoder
from spt_core.patches.stain_step import StainStep
from spt_core.patches.training.hidisc import HiDisc
from spt_core.patches.training.network import PatchNetwork
from spt_core.patches.training.stay import StayNear
from spt_core.slides.stain import Stains
from spt_core.tokens import Tokens
from spt_core.training.heads import HEADS, projection_head
from spt_core.training.objectives import build_objective

DIM, TOKENS, BATCH, CLASSES = 24, 12, 4, 3
STAINS = Stains(np.eye(3)[:, :2], np.ones(2))
DEVICES = [torch.device("cuda"), torch.device("meta")]


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """What is computed here is tiny: threads would only wait for one another."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(params=DEVICES, ids=str)
def device(request):
    return request.param


@contextmanager
def no_gpu_needed():
    """Tensors made here are fake, and so is all that is done with real ones."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        yield


def padded(device, dim=DIM):
    """x, p and mask of a padded batch, as a training step has them."""
    return (
        torch.randn(BATCH, TOKENS, dim, device=device),
        torch.zeros(BATCH, TOKENS, 2, dtype=torch.int32, device=device),
        torch.ones(BATCH, TOKENS, dtype=torch.bool, device=device),
    )


def is_on(device, *tensors):
    assert {tensor.device.type for tensor in tensors} == {device.type}


def small_encoder(in_dim=DIM):
    return build_encoder("small", in_dim, dim=16, heads=2)


# the slide encoder and the other aggregators


@pytest.fixture
def told(monkeypatch):
    """What only numbers can tell, and fake tensors have none: lengths and places."""
    side = np.arange(TOKENS) * 3  # in several regions of 16 cells
    monkeypatch.setattr(padding, "lengths_of", lambda mask: [TOKENS - 1] * len(mask))
    monkeypatch.setattr(
        hipt, "places_of", lambda p: np.stack([side, side], axis=1)[: len(p)]
    )


@pytest.mark.parametrize("name", [*sorted(AGGREGATORS), "small"])
def test_aggregators(name, device, told):
    shallow = {"depth": 1} if name == "hipt" else {}
    made = small_encoder() if name == "small" else AGGREGATORS[name](DIM, **shallow)
    with no_gpu_needed():
        made.to(device)
        x, p, mask = padded(device)
        is_on(device, made(x, p), made(x, p, mask))
        h, attention = made.attend(x[0].half(), p[0])
        is_on(device, h, attention)
        assert attention.shape == (made.heads, TOKENS)


def test_a_slide_is_attended_in_groups(device):
    made = small_encoder()
    with no_gpu_needed():
        made.to(device)
        x, p, _ = padded(device)
        seen = made.attend(x[0], p[0], group=5)
        is_on(device, *seen)
        assert seen.groups == 3
        assert seen.attention.shape == (2, TOKENS)


def test_tokens_still_in_memory_are_attended_on_the_encoders_device(device):
    """``attend`` takes a slide as it was read."""
    made = small_encoder()
    with no_gpu_needed():
        made.to(device)
        x, p, _ = padded(torch.device("cpu"))
        is_on(device, *made.attend(x[0], p[0]))


@pytest.mark.parametrize("rows", [1, 5, 12, 100])
def test_attention_by_parts_is_the_attention_of_the_whole(monkeypatch, rows):
    torch.manual_seed(0)
    made = Attention(16, 2)
    tokens = torch.randn(3, TOKENS, 16)
    mask = torch.rand(3, TOKENS) < 0.7
    mask[:, 0] = True
    with torch.no_grad():
        whole = made(tokens), made(tokens, mask)
        monkeypatch.setattr(slide_encoder, "attention_rows", lambda *_: rows)
        for have, want in zip((made(tokens), made(tokens, mask)), whole, strict=True):
            torch.testing.assert_close(have, want, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("tokens", [16_000, 16_384, 20_000])
def test_a_long_slide_on_mps_never_needs_an_array_of_4_gib(monkeypatch, tokens):
    """As the slide encoder asks for it, on tensors without values."""
    monkeypatch.setattr(torch.mps, "recommended_max_memory", lambda: 48 * devices.GIB)
    mps, asked = torch.device("mps"), []
    monkeypatch.setattr(
        slide_encoder,
        "attention_rows",
        lambda device, heads, n: devices.attention_rows(mps, heads, n),
    )
    whole = F.scaled_dot_product_attention

    def seen(q, k, v, attn_mask=None):
        asked.append(4 * q.shape[0] * q.shape[1] * q.shape[2] * k.shape[2])
        return whole(q, k, v, attn_mask=attn_mask)

    monkeypatch.setattr(F, "scaled_dot_product_attention", seen)
    made = build_encoder("paper-2", 512)
    with no_gpu_needed():
        made.to("meta")
        x = torch.empty(tokens, 512, device="meta")
        p = torch.empty(tokens, 2, dtype=torch.int64, device="meta")
        assert made.attend(x, p).groups == 1
    assert max(asked) < 2**32
    assert sum(asked) == 4 * 4 * (tokens + 1) ** 2
    assert (len(asked) > 1) == (tokens + 1 >= 16_384)


# heads and objectives


@pytest.mark.parametrize("head", HEADS)
def test_heads(head, device):
    made = projection_head(16, 16, 8, head=head)
    with no_gpu_needed():
        is_on(device, made.to(device)(torch.randn(BATCH, 16, device=device)))


@pytest.mark.parametrize("name", ["simclr", "vicreg", "byol", "supcon", "classify"])
@pytest.mark.parametrize("head", HEADS)
def test_objectives(name, head, device):
    encoder = small_encoder()
    made = build_objective(
        name, encoder, head=head, classes=CLASSES, class_weights=torch.ones(CLASSES)
    )
    with no_gpu_needed():
        encoder.to(device)
        made.to(device)
        h = torch.randn(2, BATCH, 16, device=device)
        labels = torch.zeros(BATCH, dtype=torch.int64, device=device)
        h_target = None
        if made.target is not None:
            x, p, mask = padded(device)
            h_target = torch.stack([made.target(x, p, mask)] * 2)
        parts = made(h, labels=labels, h_target=h_target)
        is_on(device, *parts.values())
        made.after_step(encoder, 0.5)


@pytest.mark.parametrize("name", ["clam", "dsmil"])
def test_an_encoders_own_loss(name, device):
    encoder = build_encoder(name, DIM, classes=CLASSES)
    made = build_objective("classify", encoder, classes=CLASSES)
    with no_gpu_needed():
        encoder.to(device)
        made.to(device)
        labels = torch.zeros(BATCH, dtype=torch.int64, device=device)
        views = encoder.for_objective(*padded(device))[None]
        is_on(device, *made(views, labels=labels).values())


def test_patch_objectives(device):
    network = PatchNetwork(build_module("small-random"), 64, (0.5,) * 3, (0.2,) * 3)
    made = StayNear(HiDisc(64), network, 0.1)
    with no_gpu_needed():
        network.to(device)
        made.to(device)
        pixels = torch.zeros(BATCH, 3, 64, 64, dtype=torch.uint8, device=device)
        h = torch.stack([network(pixels)] * 2)
        target = torch.stack([made.target(pixels)] * 2)
        whose = torch.zeros(BATCH, 3, dtype=torch.int64, device=device)
        is_on(device, *made(h, labels=whose, h_target=target).values())


# patch encoders


@pytest.fixture(scope="module")
def encoders():
    vit = EncoderCard(name="vit", dim=192, patch_size=64, mpp=0.5, input_size=224)
    return {
        "bundled": load_encoder(bundled.ENCODER),
        "small-random": load_encoder("small-random"),
        "resnet34": TorchEncoder(
            build_module("resnet34"),
            EncoderCard(name="resnet34", dim=512, patch_size=64, mpp=0.5),
        ),
        "vit": TorchEncoder(build_module("vit_tiny_patch16_224"), vit),
    }


@pytest.mark.parametrize(
    ("name", "stained", "side"),
    [
        ("bundled", False, 64),
        ("bundled", True, 64),
        ("bundled", True, 80),  # resampled
        ("resnet34", True, 80),
        ("vit", True, 80),
    ],
)
def test_patch_encoders(name, stained, side, device, encoders):
    made = copy.deepcopy(encoders[name])
    stain = StainStep(STAINS) if stained else None
    with no_gpu_needed(), torch.no_grad():
        made.to(device)
        pixels = torch.zeros(BATCH, side, side, 3, dtype=torch.uint8)
        x = made(copy_to(pixels, device), 64, stain)
        is_on(device, x)
        assert x.shape == (BATCH, made.card.dim)
        assert x.dtype == torch.float32


# the model in use


@pytest.fixture(scope="module")
def tokens():
    side = 24
    p = np.stack(np.divmod(np.arange(side * side), side), axis=1)
    model = load_model(bundled.slide_model_path())
    dim = model.card.tokens.dim
    rng = np.random.default_rng(0)
    x = rng.normal(size=(len(p), dim)).astype(np.float16)
    return Tokens(x, p, p * 300)


@pytest.fixture
def model():
    return load_model(bundled.slide_model_path())


def test_class_scores_of_a_whole_slide(model, tokens, device):
    with no_gpu_needed():
        model.to(device)
        x, p = torch.from_numpy(tokens.x), torch.from_numpy(tokens.p)
        h, attention = model.encoder.attend(copy_to(x, device), copy_to(p, device))
        scores = model.logits(h[None])
        is_on(device, h, attention, scores)
        assert scores.shape == (1, len(model.classes))


def test_windows_of_the_class_map(model, tokens, device):
    settings = WindowSettings(side=8, stride=4, limit=64, fewest=4)
    windows = slide_windows(tokens.p, settings)
    with no_gpu_needed():
        model.to(device)
        assert device_of(model).type == device.type
        seen = 0
        for chosen, h in window_embeddings(model, tokens, windows.members, settings):
            is_on(device, h, model.logits(h))
            seen += len(chosen)
    assert seen == len(windows.members) > 10


@pytest.mark.parametrize("which", ["mean_token", "embedding"])
def test_distance_from_the_training_slides(model, tokens, device, which):
    """The statistics are where the model file was loaded to."""
    with no_gpu_needed():
        model.to(device)
        there = {name: t.to(device) for name, t in model.statistics.items()}
        if which == "embedding":
            x, p = torch.from_numpy(tokens.x), torch.from_numpy(tokens.p)
            value = model.encoder.attend(copy_to(x, device), copy_to(p, device)).h
        else:
            mean = tokens.x.mean(axis=0, dtype=np.float64)
            value = copy_to(torch.from_numpy(mean), device)
        assert value.dtype == torch.float32  # some devices have no double precision
        is_on(device, distance(there, which, value))


# what these tests are for


class Forgets(nn.Module):
    """A forward pass with a tensor that was not moved with the module."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.scale = torch.ones(16)  # no buffer: ``to`` does not know it

    def forward(self, x, p, mask=None):
        return self.inner(x, p, mask) * self.scale


class MakesOnTheCpu(nn.Module):
    """A forward pass that makes a tensor without saying where."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x, p, mask=None):
        return self.inner(x + torch.arange(x.shape[-1]), p, mask)


class KeepsAMask(nn.Module):
    """A forward pass that brings its mask from the CPU."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x, p, mask=None):
        return self.inner(x, p, torch.ones(x.shape[:2], dtype=torch.bool))


@pytest.mark.parametrize("planted", [Forgets, MakesOnTheCpu, KeepsAMask])
def test_a_tensor_left_on_the_cpu_is_caught(planted, device):
    made = planted(small_encoder())
    cpu = padded(torch.device("cpu"))
    made(*cpu)  # nobody without a GPU would notice
    with no_gpu_needed():
        made.to(device)
        with pytest.raises(
            (FakeTensorDeviceMismatchError, RuntimeError), match="devic"
        ):
            made(*padded(device))


def test_a_stain_step_left_on_the_cpu_is_caught(device, encoders):
    made = copy.deepcopy(encoders["small-random"])

    class Left(StainStep):
        def __call__(self, pixels):
            return (pixels.permute(0, 2, 3, 1) @ self._matrix).permute(0, 3, 1, 2)

    with no_gpu_needed():
        made.to(device)
        pixels = torch.zeros(BATCH, 64, 64, 3, dtype=torch.uint8, device=device)
        with pytest.raises(
            (FakeTensorDeviceMismatchError, RuntimeError), match="devic"
        ):
            made(pixels, 64, Left(STAINS))


def test_an_encoder_left_on_the_cpu_is_caught(device, encoders):
    made = copy.deepcopy(encoders["small-random"])
    with no_gpu_needed():
        pixels = torch.zeros(BATCH, 64, 64, 3, dtype=torch.uint8, device=device)
        with pytest.raises(
            (FakeTensorDeviceMismatchError, RuntimeError), match="devic"
        ):
            made(pixels, 64)
