"""The slide encoder against its definition, written plainly."""

import numpy as np
import pytest
import torch
from torch import nn

from spt_core import SlideEncoder
from spt_core.learning.aggregators import AGGREGATORS, build_encoder
from spt_core.learning.slide_encoder import PRESETS
from spt_core.training.heads import projection_head


def count(*modules):
    return sum(weight.numel() for m in modules for weight in m.parameters())


@pytest.mark.parametrize(
    ("preset", "expected"),
    [
        ("paper-2", 6_654_348),
        ("paper-4", 12_956_044),
        ("paper", 19_257_740),
        ("paper-8", 25_559_436),
    ],
)
def test_the_papers_four_sizes(preset, expected):
    with torch.device("meta"):
        encoder = build_encoder(preset, 512)
        head = projection_head(512, 512, 128, head="paper")
    assert count(encoder, head) == expected


def test_small_has_about_a_million_weights():
    assert 0.9e6 < count(build_encoder("small", 512)) < 1.1e6


def some_slide(n, d=24, seed=0, scale=1.0):
    rng = torch.Generator().manual_seed(seed)
    return (
        scale * torch.randn(n, d, generator=rng),
        torch.randint(0, 150, (n, 2), generator=rng),
    )


@pytest.fixture
def encoder():
    torch.manual_seed(0)
    # sharper attention than at the start, so that a mistake would show
    made = SlideEncoder(24, dim=32, depth=3, heads=4)
    with torch.no_grad():
        for weight in made.parameters():
            if weight.ndim == 2:
                weight.mul_(2)
    return made.eval()


def plain_forward(encoder, x, p):
    """f as the paper and the design say it, one token matrix, softmax(QK')."""
    waves = p.float() @ encoder.positions.project.weight.T
    features = torch.cat([waves.cos(), waves.sin()], 1) / np.sqrt(96)
    tokens = encoder.input(x) + encoder.positions.mlp(features)
    t = torch.cat([encoder.cls[None], tokens])
    attention = None
    for block in [*encoder.blocks, encoder.last]:
        normed = block.norm1(t)
        q, k, v = (normed @ block.attention.qkv.weight.T).chunk(3, dim=1)
        mixed, attention = [], []
        for head in range(encoder.heads):
            each = encoder.dim // encoder.heads
            part = slice(head * each, (head + 1) * each)
            weights = (q[:, part] @ k[:, part].T / each**0.5).softmax(dim=1)
            attention.append(weights[0, 1:])
            mixed.append(weights @ v[:, part])
        t = t + block.attention.out(torch.cat(mixed, 1))
        t = t + block.mlp(block.norm2(t))
    return encoder.norm(t[0]), torch.stack(attention)


@pytest.mark.parametrize("n", [1, 2, 7, 300])
def test_attend_and_forward_equal_the_plain_transformer(encoder, n):
    x, p = some_slide(n)
    with torch.no_grad():
        h, attention = plain_forward(encoder, x, p)
    seen = encoder.attend(x, p)
    torch.testing.assert_close(seen.h, h, atol=1e-5, rtol=0)
    torch.testing.assert_close(seen.attention, attention, atol=1e-5, rtol=1e-4)
    assert seen.groups == 1
    assert (seen.attention.sum(1) < 1).all()  # CLS keeps a part for itself
    with torch.no_grad():
        batch = encoder(x[None], p[None])
    torch.testing.assert_close(batch[0], h, atol=1e-5, rtol=0)


def test_gradients_equal_the_plain_transformers(encoder):
    x, p = some_slide(20)
    direction = torch.randn(32)
    found = torch.autograd.grad(
        encoder(x[None], p[None])[0] @ direction, list(encoder.parameters())
    )
    plain = torch.autograd.grad(
        plain_forward(encoder, x, p)[0] @ direction, list(encoder.parameters())
    )
    for one, other in zip(found, plain, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("name", sorted(AGGREGATORS))
def test_padding_changes_nothing(name, encoder):
    made = encoder if name == "transformer" else AGGREGATORS[name](24).eval()
    slides = [some_slide(n, seed=n) for n in (1, 5, 40)]
    x, p = torch.full((3, 64, 24), 99.0), torch.full((3, 64, 2), 12345)
    mask = torch.zeros(3, 64, dtype=torch.bool)
    for row, (x_one, p_one) in enumerate(slides):
        x[row, : len(x_one)], p[row, : len(p_one)] = x_one, p_one
        mask[row, : len(x_one)] = True
    with torch.no_grad():
        padded = made(x, p, mask)
        for h, (x_one, p_one) in zip(padded, slides, strict=True):
            alone = made(x_one[None], p_one[None])[0]
            torch.testing.assert_close(h, alone, atol=1e-5, rtol=1e-5)
            whole, attention = made.attend(x_one, p_one)
            torch.testing.assert_close(whole, alone, atol=1e-5, rtol=1e-5)
            assert attention.shape == (made.heads, len(x_one))


def test_order_of_tokens_does_not_matter(encoder):
    x, p = some_slide(50)
    order = torch.randperm(50)
    h, attention = encoder.attend(x, p)
    h_other, attention_other = encoder.attend(x[order], p[order])
    torch.testing.assert_close(h, h_other, atol=1e-5, rtol=0)
    torch.testing.assert_close(attention[:, order], attention_other)


def test_positions_matter(encoder):
    x, p = some_slide(50)
    moved = encoder.attend(x, p.flip(0)).h
    assert (moved - encoder.attend(x, p).h).abs().max() > 1e-3


def test_many_tokens_are_joined_from_interleaved_groups():
    """Twice 1,000 like tokens: two groups see what one pass sees."""
    torch.manual_seed(1)
    made = SlideEncoder(24, dim=32, depth=2, heads=4).eval()
    x, p = some_slide(1000)
    x, p = x.repeat_interleave(2, 0), p.repeat_interleave(2, 0)
    exact, joined = made.attend(x, p), made.attend(x, p, group=1000)
    assert exact.groups == 1
    assert joined.groups == 2
    # each group has its own CLS, so its share of the whole is counted twice: 1 in 1001
    torch.testing.assert_close(joined.attention, exact.attention, atol=1e-7, rtol=5e-3)
    torch.testing.assert_close(joined.h, exact.h, atol=1e-2, rtol=1e-2)
    for tokens in (999, 1001, 2500):
        x, p = some_slide(tokens)
        seen = made.attend(x, p, group=1000)
        assert seen.groups == -(-tokens // 1000)
        assert seen.attention.shape == (4, tokens)
        assert (seen.attention.sum(1) < 1).all()


@pytest.mark.slow
def test_two_groups_of_10_000_against_the_exact_pass_at_20_000():
    torch.manual_seed(2)
    made = SlideEncoder(24, dim=16, depth=2, heads=2).eval()
    n, side = 20_000, 142
    p = torch.stack([torch.arange(n) // side, torch.arange(n) % side], dim=1)
    # neighbours are alike, as tissue is: a wave over the slide, and noise
    x = torch.sin(p.float() @ torch.randn(2, 24) / 20) + 0.3 * torch.randn(n, 24)
    exact, joined = made.attend(x, p), made.attend(x, p, group=10_000)
    assert (exact.groups, joined.groups) == (1, 2)
    cosine = torch.cosine_similarity(exact.h, joined.h, dim=0)
    assert cosine > 0.999
    for one, other in zip(exact.attention, joined.attention, strict=True):
        assert np.corrcoef(one, other)[0, 1] > 0.99
        torch.testing.assert_close(one.sum(), other.sum(), atol=1e-3, rtol=1e-3)


def test_groups_weigh_by_their_log_sum_exp():
    """With one layer tokens do not see one another, so the join has a formula.

    One pass divides by c + S (CLS and all patches); the join by g c + S, because each
    of g groups has a CLS of its own.
    """
    torch.manual_seed(3)
    made = SlideEncoder(24, dim=32, depth=1, heads=4).eval()
    with torch.no_grad():
        made.last.attention.qkv.weight.mul_(4)
    x, p = some_slide(403, scale=3)
    exact = made.attend(x, p).attention
    joined = made.attend(x, p, group=100)
    assert joined.groups == 5
    cls_share = 1 - exact.sum(dim=1, keepdim=True)
    expected = exact / (1 + 4 * cls_share)
    torch.testing.assert_close(joined.attention, expected, atol=1e-6, rtol=1e-4)
    assert exact.max() > 0.02  # far from even, or weights would not be tested


def test_attend_takes_half_precision_and_any_preset():
    made = build_encoder("small", 48, dim=24, heads=3).eval()
    x, p = some_slide(30, d=48)
    h, attention = made.attend(x.half(), p)
    assert h.dtype == torch.float32
    assert attention.shape == (3, 30)
    assert set(PRESETS) == {"paper", "paper-2", "paper-4", "paper-8", "small"}


def test_no_input_layer_when_the_token_already_fits():
    assert isinstance(SlideEncoder(32, dim=32, depth=1).input, nn.Identity)
    with pytest.raises(ValueError, match="cannot be shared"):
        SlideEncoder(8, dim=30, heads=4)


def test_abmil_is_the_formula():
    torch.manual_seed(0)
    made = AGGREGATORS["abmil"](24, dim=16, hidden=8).eval()
    x, p = some_slide(12)
    with torch.no_grad():
        t = (x @ made.input[0].weight.T + made.input[0].bias).relu()
        v = (t @ made.value.weight.T + made.value.bias).tanh()
        u = (t @ made.gate.weight.T + made.gate.bias).sigmoid()
        a = ((v * u) @ made.score.weight[0] + made.score.bias).softmax(0)
    h, attention = made.attend(x, p)
    torch.testing.assert_close(attention[0], a)
    torch.testing.assert_close(h, a @ t)
